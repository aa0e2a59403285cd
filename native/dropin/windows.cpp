// The system's side of the drop-in on Windows: a child in a job object that dies with us.
#ifdef _WIN32

#ifndef NOMINMAX
#define NOMINMAX
#endif
#include "system.h"

#include <windows.h>

#include <shellapi.h>

#include <algorithm>

namespace dropin {

namespace {

std::optional<std::wstring> wide(const std::string & text) {
    if (text.empty()) {
        return std::wstring();
    }
    const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text.data(), (int) text.size(), nullptr, 0);
    if (n <= 0) {
        return std::nullopt;
    }
    std::wstring result((size_t) n, L'\0');
    MultiByteToWideChar(CP_UTF8, 0, text.data(), (int) text.size(), result.data(), n);
    return result;
}

std::string narrow(const std::wstring & text) {
    if (text.empty()) {
        return "";
    }
    const int   n = WideCharToMultiByte(CP_UTF8, 0, text.data(), (int) text.size(), nullptr, 0, nullptr, nullptr);
    std::string result((size_t) std::max(n, 0), '\0');
    WideCharToMultiByte(CP_UTF8, 0, text.data(), (int) text.size(), result.data(), n, nullptr, nullptr);
    return result;
}

// A path that is no valid text names nothing.
std::wstring wide_path(const std::string & path) {
    return wide(path).value_or(L"\\\\?\\invalid");
}

// One argument in the quoting that CommandLineToArgvW and the C runtime undo.
std::wstring quoted(const std::wstring & arg) {
    if (!arg.empty() && arg.find_first_of(L" \t\n\v\"") == std::wstring::npos) {
        return arg;
    }
    std::wstring result = L"\"";
    size_t       slashes = 0;
    for (const wchar_t c : arg) {
        if (c == L'\\') {
            ++slashes;
            continue;
        }
        result.append(c == L'"' ? slashes * 2 + 1 : slashes, L'\\');
        slashes = 0;
        result += c;
    }
    result.append(slashes * 2, L'\\');
    return result + L"\"";
}

// What follows the program's name in our command line, as the host wrote it.
std::wstring command_tail() {
    const wchar_t * at     = GetCommandLineW();
    bool            quotes = false;
    for (; *at && (quotes || (*at != L' ' && *at != L'\t')); ++at) {
        quotes = quotes != (*at == L'"');
    }
    return at;
}

HANDLE new_job() {
    const HANDLE job = CreateJobObjectW(nullptr, nullptr);
    if (job) {
        JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits = {};
        limits.BasicLimitInformation.LimitFlags     = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
        SetInformationJobObject(job, JobObjectExtendedLimitInformation, &limits, sizeof(limits));
    }
    return job;
}

// Started inside a job before it can start anything itself. Without a job it is a plain child.
bool start(const std::wstring & program, std::wstring command, STARTUPINFOW & info, DWORD flags, HANDLE job,
           PROCESS_INFORMATION & process) {
    const DWORD priority = GetPriorityClass(GetCurrentProcess()); // a raised one is not inherited
    if (!CreateProcessW(program.c_str(), command.data(), nullptr, nullptr, TRUE,
                        flags | priority | CREATE_SUSPENDED | CREATE_UNICODE_ENVIRONMENT, nullptr, nullptr, &info,
                        &process)) {
        return false;
    }
    if (job) {
        AssignProcessToJobObject(job, process.hProcess);
    }
    ResumeThread(process.hThread);
    CloseHandle(process.hThread);
    return true;
}

// Changes our own environment, which children inherit, until it goes out of scope.
class environment {
  public:
    explicit environment(const env_changes & changes) {
        for (const auto & change : changes) {
            const auto name = wide(change.first);
            const auto value = change.second ? wide(*change.second) : std::nullopt;
            if (!name || (change.second && !value)) {
                good = false;
                return;
            }
            before.emplace_back(*name, current(*name));
            SetEnvironmentVariableW(name->c_str(), value ? value->c_str() : nullptr);
        }
    }

    ~environment() {
        for (auto entry = before.rbegin(); entry != before.rend(); ++entry) {
            SetEnvironmentVariableW(entry->first.c_str(), entry->second ? entry->second->c_str() : nullptr);
        }
    }

    environment(const environment &)             = delete;
    environment & operator=(const environment &) = delete;

    static std::optional<std::wstring> current(const std::wstring & name) {
        SetLastError(ERROR_SUCCESS);
        std::wstring value(GetEnvironmentVariableW(name.c_str(), nullptr, 0), L'\0');
        if (value.empty()) {
            return GetLastError() == ERROR_ENVVAR_NOT_FOUND ? std::nullopt : std::optional<std::wstring>(L"");
        }
        value.resize(GetEnvironmentVariableW(name.c_str(), value.data(), (DWORD) value.size()));
        return value;
    }

    bool good = true;

  private:
    std::vector<std::pair<std::wstring, std::optional<std::wstring>>> before;
};

int run_as_child(const std::string & program, const std::wstring & tail) {
    const auto path = wide(program);
    if (!path) {
        return -1;
    }
    STARTUPINFOW info = {};
    info.cb           = sizeof(info);
    info.dwFlags      = STARTF_USESTDHANDLES;
    info.hStdInput    = GetStdHandle(STD_INPUT_HANDLE);
    info.hStdOutput   = GetStdHandle(STD_OUTPUT_HANDLE);
    info.hStdError    = GetStdHandle(STD_ERROR_HANDLE);
    for (const HANDLE handle : { info.hStdInput, info.hStdOutput, info.hStdError }) {
        if (handle && handle != INVALID_HANDLE_VALUE) {
            SetHandleInformation(handle, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
        }
    }
    PROCESS_INFORMATION process = {};
    const HANDLE        job     = new_job();
    if (!start(*path, quoted(*path) + tail, info, 0, job, process)) {
        if (job) {
            CloseHandle(job);
        }
        return -1;
    }
    // Ctrl-C reaches the whole console: the server decides how to end, we wait for it.
    SetConsoleCtrlHandler([](DWORD) -> BOOL { return TRUE; }, TRUE);
    WaitForSingleObject(process.hProcess, INFINITE);
    DWORD code = 1;
    GetExitCodeProcess(process.hProcess, &code);
    ExitProcess(code); // all 32 bits, which a return from main would keep but -1 would not tell apart
}

} // namespace

strings command_line() {
    strings    result;
    int        n    = 0;
    wchar_t ** argv = CommandLineToArgvW(GetCommandLineW(), &n);
    for (int i = 1; argv && i < n; ++i) {
        result.push_back(narrow(argv[i]));
    }
    LocalFree(argv);
    return result;
}

strings own_paths(const std::string &) {
    std::wstring path(32768, L'\0');
    path.resize(GetModuleFileNameW(nullptr, path.data(), (DWORD) path.size()));
    strings paths;
    if (!path.empty()) {
        paths.push_back(narrow(path));
    }
    return paths;
}

std::optional<std::string> variable(const char * name) {
    const auto value = environment::current(wide_path(name));
    return value ? std::optional<std::string>(narrow(*value)) : std::nullopt;
}

std::optional<std::string> read_file(const std::string & path, size_t limit) {
    const HANDLE file = CreateFileW(wide_path(path).c_str(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, nullptr,
                                    OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
    if (file == INVALID_HANDLE_VALUE) {
        return std::nullopt;
    }
    LARGE_INTEGER size = {};
    std::string   content;
    bool good = GetFileType(file) == FILE_TYPE_DISK && GetFileSizeEx(file, &size) && (size_t) size.QuadPart <= limit;
    if (good) {
        content.resize((size_t) size.QuadPart);
        DWORD n = 0;
        good    = content.empty() || (ReadFile(file, content.data(), (DWORD) content.size(), &n, nullptr) != 0 &&
                                   n == content.size());
    }
    CloseHandle(file);
    return good ? std::optional<std::string>(content) : std::nullopt;
}

bool is_file(const std::string & path) {
    const DWORD attributes = GetFileAttributesW(wide_path(path).c_str());
    return attributes != INVALID_FILE_ATTRIBUTES && !(attributes & FILE_ATTRIBUTE_DIRECTORY);
}

bool is_absolute(const std::string & path) {
    const bool drive = path.size() > 2 && path[1] == ':' && (path[2] == '\\' || path[2] == '/');
    return drive || path.compare(0, 2, "\\\\") == 0;
}

std::string folder_of(const std::string & path) {
    const size_t slash = path.find_last_of("\\/");
    return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

std::string resolved(const std::string & path) {
    const HANDLE file = CreateFileW(wide_path(path).c_str(), 0, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                                    nullptr, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr);
    if (file == INVALID_HANDLE_VALUE) {
        return path;
    }
    std::wstring real(32768, L'\0');
    real.resize(GetFinalPathNameByHandleW(file, real.data(), (DWORD) real.size(), FILE_NAME_NORMALIZED));
    CloseHandle(file);
    return real.empty() ? path : narrow(real);
}

bool same_program(const std::string & a, const std::string & b) {
    WIN32_FILE_ATTRIBUTE_DATA x = {};
    WIN32_FILE_ATTRIBUTE_DATA y = {};
    if (!GetFileAttributesExW(wide_path(a).c_str(), GetFileExInfoStandard, &x) ||
        !GetFileAttributesExW(wide_path(b).c_str(), GetFileExInfoStandard, &y)) {
        return false;
    }
    const size_t limit = 64u << 20;
    return x.nFileSizeLow == y.nFileSizeLow && x.nFileSizeHigh == y.nFileSizeHigh && x.nFileSizeHigh == 0 &&
           x.nFileSizeLow < limit && read_file(a, limit) == read_file(b, limit);
}

std::optional<std::string> output_of(const std::string & program, const strings & args, const strings &,
                                     const env_changes & env, int timeout_ms, size_t limit) {
    const auto path = wide(program);
    if (!path) {
        return std::nullopt;
    }
    std::wstring command = quoted(*path);
    for (const auto & arg : args) {
        const auto word = wide(arg);
        if (!word) {
            return std::nullopt;
        }
        command += L" " + quoted(*word);
    }
    command += command_tail();

    SECURITY_ATTRIBUTES inheritable = { sizeof(inheritable), nullptr, TRUE };
    HANDLE              from        = nullptr;
    HANDLE              to          = nullptr;
    if (!CreatePipe(&from, &to, &inheritable, 0)) {
        return std::nullopt;
    }
    SetHandleInformation(from, HANDLE_FLAG_INHERIT, 0);
    const HANDLE null = CreateFileW(L"NUL", GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE, &inheritable,
                                    OPEN_EXISTING, 0, nullptr);
    STARTUPINFOW info = {};
    info.cb           = sizeof(info);
    info.dwFlags      = STARTF_USESTDHANDLES;
    info.hStdInput    = null;
    info.hStdOutput   = to;
    info.hStdError    = GetStdHandle(STD_ERROR_HANDLE);

    const environment   changed(env);
    const HANDLE        job     = new_job();
    PROCESS_INFORMATION process = {};
    const bool started = changed.good && start(*path, command, info, CREATE_NO_WINDOW, job, process);
    CloseHandle(to);
    CloseHandle(null);
    bool        good = started;
    std::string output;
    if (started) {
        // Anonymous pipes cannot be waited on, and what the program left behind may hold this one open.
        const ULONGLONG deadline = GetTickCount64() + (ULONGLONG) timeout_ms;
        for (bool ended = false; good;) {
            DWORD waiting = 0;
            if (PeekNamedPipe(from, nullptr, 0, nullptr, &waiting, nullptr) && waiting > 0) {
                char  block[4096];
                DWORD n = 0;
                good    = ReadFile(from, block, sizeof(block), &n, nullptr) && output.size() + n <= limit;
                output.append(block, good ? n : 0);
            } else if (ended) {
                break;
            } else {
                ended = WaitForSingleObject(process.hProcess, 2) == WAIT_OBJECT_0;
                good  = ended || GetTickCount64() < deadline;
            }
        }
        if (!good) {
            TerminateProcess(process.hProcess, 1);
        }
        DWORD code = 1;
        good       = good && GetExitCodeProcess(process.hProcess, &code) && code == 0;
        CloseHandle(process.hProcess);
    }
    CloseHandle(from);
    if (job) {
        CloseHandle(job);
    }
    return good ? std::optional<std::string>(output) : std::nullopt;
}

int become(const std::string & program, const strings & args, const env_changes & env) {
    std::wstring tail;
    for (const auto & arg : args) {
        const auto word = wide(arg);
        if (!word) {
            return -1;
        }
        tail += L" " + quoted(*word);
    }
    const environment changed(env);
    return changed.good ? run_as_child(program, tail) : -1;
}

int become_untouched(const std::string & program, const strings &) {
    return run_as_child(program, command_tail());
}

void say(const std::string & line) {
    const std::string text    = line + "\r\n";
    DWORD             written = 0;
    WriteFile(GetStdHandle(STD_ERROR_HANDLE), text.data(), (DWORD) text.size(), &written, nullptr);
}

} // namespace dropin

#endif
