// The system's side of the drop-in on Linux and macOS: fork, a pipe, exec.
#ifndef _WIN32

#include "system.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif
#ifdef __linux__
#include <sys/prctl.h>
#endif

extern char ** environ;

namespace dropin {

strings own_paths(const std::string & argv0) {
    strings paths;
#ifdef __linux__
    char          path[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
    if (n > 0 && (size_t) n < sizeof(path)) {
        paths.emplace_back(path, (size_t) n);
    }
#elif defined(__APPLE__)
    char     path[PATH_MAX];
    uint32_t size = sizeof(path);
    if (_NSGetExecutablePath(path, &size) == 0) {
        paths.push_back(resolved(path));
        paths.emplace_back(path);
    }
#endif
    // The name it was started by, which may be a link that has the note beside itself.
    if (argv0.find('/') != std::string::npos) {
        paths.push_back(argv0);
    } else if (const auto list = variable("PATH")) {
        for (size_t start = 0; start <= list->size();) {
            const size_t      end    = std::min(list->find(':', start), list->size());
            const std::string folder = list->substr(start, end - start);
            if (!folder.empty() && access((folder + "/" + argv0).c_str(), X_OK) == 0) {
                paths.push_back(folder + "/" + argv0);
                break;
            }
            start = end + 1;
        }
    }
    return paths;
}

std::optional<std::string> variable(const char * name) {
    const char * value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
}

std::optional<std::string> read_file(const std::string & path, size_t limit) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        return std::nullopt;
    }
    struct stat info;
    std::string content;
    bool        good = fstat(file, &info) == 0 && S_ISREG(info.st_mode) && (size_t) info.st_size <= limit;
    while (good) {
        char          block[4096];
        const ssize_t n = read(file, block, sizeof(block));
        if (n == 0) {
            break;
        }
        if (n < 0) {
            good = errno == EINTR;
            continue;
        }
        content.append(block, (size_t) n);
        good = content.size() <= limit;
    }
    close(file);
    return good ? std::optional<std::string>(content) : std::nullopt;
}

bool is_file(const std::string & path) {
    struct stat info;
    return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool is_absolute(const std::string & path) {
    return !path.empty() && path[0] == '/';
}

std::string folder_of(const std::string & path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

std::string resolved(const std::string & path) {
    char * real = realpath(path.c_str(), nullptr);
    if (!real) {
        return path;
    }
    std::string result = real;
    std::free(real);
    return result;
}

bool same_program(const std::string & a, const std::string & b) {
    struct stat x;
    struct stat y;
    if (stat(a.c_str(), &x) != 0 || stat(b.c_str(), &y) != 0) {
        return false;
    }
    if (x.st_dev == y.st_dev && x.st_ino == y.st_ino) {
        return true;
    }
    if (x.st_size != y.st_size) {
        return false;
    }
    const size_t limit = (size_t) x.st_size;
    return limit < (64u << 20) && read_file(a, limit) == read_file(b, limit);
}

namespace {

long now_ms() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000L + t.tv_nsec / 1000000L;
}

std::vector<char *> pointers(const strings & list) {
    std::vector<char *> result;
    for (const auto & entry : list) {
        result.push_back(const_cast<char *>(entry.c_str()));
    }
    result.push_back(nullptr);
    return result;
}

strings changed_environment(const env_changes & changes) {
    strings result;
    for (char ** entry = environ; *entry; ++entry) {
        const std::string text = *entry;
        bool              kept = true;
        for (const auto & change : changes) {
            kept = kept && text.compare(0, change.first.size() + 1, change.first + "=") != 0;
        }
        if (kept) {
            result.push_back(text);
        }
    }
    for (size_t i = 0; i < changes.size(); ++i) {
        bool last = changes[i].second.has_value();
        for (size_t j = i + 1; j < changes.size(); ++j) {
            last = last && changes[j].first != changes[i].first;
        }
        if (last) {
            result.push_back(changes[i].first + "=" + *changes[i].second);
        }
    }
    return result;
}

// A pipe whose ends are not 0, 1 or 2, which the host may have closed.
bool make_pipe(int ends[2]) {
    if (pipe(ends) != 0) {
        return false;
    }
    for (int i = 0; i < 2; ++i) {
        const int high = fcntl(ends[i], F_DUPFD_CLOEXEC, 3);
        close(ends[i]);
        ends[i] = high;
    }
    if (ends[0] < 0 || ends[1] < 0) {
        close(ends[0]);
        close(ends[1]);
        return false;
    }
    return true;
}

[[noreturn]] void child(const int ends[2], pid_t parent, char * const * argv, char * const * env) {
    setpgid(0, 0); // so that what it starts ends with it
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(127);
    }
#else
    (void) parent;
#endif
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0 && null != 0) {
        dup2(null, 0);
        close(null);
    }
    dup2(ends[1], 1);
    if (fcntl(2, F_GETFD) < 0) {
        open("/dev/null", O_WRONLY); // takes the lowest free number, which is 2
    }
    execve(argv[0], argv, env);
    _exit(127);
}

// Whether it ended with code 0; nothing when it runs on.
std::optional<bool> wait_for(pid_t pid, long deadline) {
    for (int status = 0;;) {
        const pid_t done = waitpid(pid, &status, WNOHANG);
        if (done == pid) {
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }
        if ((done < 0 && errno != EINTR) || now_ms() >= deadline) {
            return std::nullopt;
        }
        const struct timespec pause = { 0, 1000 * 1000 };
        nanosleep(&pause, nullptr);
    }
}

} // namespace

std::optional<std::string> output_of(const std::string & program, const strings & args, const strings & inherited,
                                     const env_changes & env, int timeout_ms, size_t limit) {
    strings command = { program };
    command.insert(command.end(), args.begin(), args.end());
    command.insert(command.end(), inherited.begin(), inherited.end());
    const strings       variables = changed_environment(env);
    std::vector<char *> argv      = pointers(command);
    std::vector<char *> envp      = pointers(variables);

    int ends[2];
    if (!make_pipe(ends)) {
        return std::nullopt;
    }
    // A host that ignores SIGCHLD would have the system swallow the exit code.
    struct sigaction standard = {};
    struct sigaction before;
    standard.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &standard, &before);

    const long  deadline = now_ms() + timeout_ms;
    const pid_t self     = getpid();
    const pid_t pid      = fork();
    if (pid == 0) {
        child(ends, self, argv.data(), envp.data());
    }
    close(ends[1]);
    bool        good = pid > 0;
    std::string output;
    while (good) {
        struct pollfd  watched = { ends[0], POLLIN, 0 };
        const long     left    = deadline - now_ms();
        const int      ready   = left > 0 ? poll(&watched, 1, (int) left) : 0;
        if (ready < 0 && errno == EINTR) {
            continue;
        }
        char          block[4096];
        const ssize_t n = ready > 0 ? read(ends[0], block, sizeof(block)) : -1;
        if (n == 0) {
            break;
        }
        good = n > 0 && output.size() + (size_t) n <= limit;
        if (good) {
            output.append(block, (size_t) n);
        }
    }
    close(ends[0]);
    if (pid > 0) {
        const auto ended = good ? wait_for(pid, deadline) : std::nullopt;
        if (!ended) {
            kill(-pid, SIGKILL);
            kill(pid, SIGKILL); // it may not have its own group yet
            while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
            }
        }
        good = ended.value_or(false);
    }
    sigaction(SIGCHLD, &before, nullptr);
    return good ? std::optional<std::string>(output) : std::nullopt;
}

int become(const std::string & program, const strings & args, const env_changes & env) {
    strings command = { program };
    command.insert(command.end(), args.begin(), args.end());
    const strings variables = changed_environment(env);
    execve(program.c_str(), pointers(command).data(), pointers(variables).data());
    return -1;
}

int become_untouched(const std::string & program, const strings & args) {
    strings command = { program };
    command.insert(command.end(), args.begin(), args.end());
    execve(program.c_str(), pointers(command).data(), environ);
    return -1;
}

void say(const std::string & line) {
    const std::string text = line + "\n";
    if (write(2, text.data(), text.size()) < 0) {
        return; // nobody listens
    }
}

} // namespace dropin

#endif
