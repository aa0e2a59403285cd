#include "srhpm-record.h"

#include "ggml.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#ifdef _WIN32
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#else
#include <fcntl.h>
#include <unistd.h>
#endif

namespace srhpm {

namespace {

enum class phase { off, loading, ready, over };

struct counters {
    uint64_t tokens   = 0;
    double   ms       = 0.0;
    uint64_t drafted  = 0;
    uint64_t accepted = 0;
};

// All of this may be read by a signal handler: plain memory, no allocation.
std::atomic<phase>        state{ phase::off };
std::atomic<const char *> step{ "starting" };
char                      last_error[256] = "";

#ifdef _WIN32
wchar_t path[4096];
wchar_t partial[4096 + 16];
#else
char path[4096];
char partial[4096 + 16];
#endif

std::mutex                            mutex;
counters                              sum;
bool                                  dirty = false;
std::chrono::steady_clock::time_point written;

// Replaces the file. Only calls that a signal handler may make.
void replace(const char * text, size_t size) {
#ifdef _WIN32
    const HANDLE file =
        CreateFileW(partial, GENERIC_WRITE, 0, nullptr, CREATE_ALWAYS, FILE_ATTRIBUTE_NORMAL, nullptr);
    if (file == INVALID_HANDLE_VALUE) {
        return;
    }
    DWORD      n    = 0;
    const bool done = WriteFile(file, text, (DWORD) size, &n, nullptr) && n == size;
    CloseHandle(file);
    if (done) {
        MoveFileExW(partial, path, MOVEFILE_REPLACE_EXISTING);
    }
#else
    const int file = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) {
        return;
    }
    const bool done = write(file, text, size) == (ssize_t) size;
    if (close(file) == 0 && done) {
        rename(partial, path);
    }
#endif
}

// Text put together without allocation; what does not fit is left out.
struct line {
    char   text[1024];
    size_t size = 0;

    void add(const char * more) {
        const size_t n = std::strlen(more);
        if (size + n <= sizeof(text)) {
            std::memcpy(text + size, more, n);
            size += n;
        }
    }
};

void write_end(const char * name, const char * how) {
    line out;
    out.add("state=");
    out.add(name);
    out.add("\nreason=");
    out.add(step);
    out.add(": ");
    out.add(how);
    if (last_error[0]) {
        out.add(", ");
        out.add(last_error);
    }
    out.add("\n");
    replace(out.text, out.size);
}

// Once: whoever comes first says how it ended.
bool ends_loading() {
    phase expected = phase::loading;
    return state.compare_exchange_strong(expected, phase::over);
}

void write_counters() {
    char      text[256];
    const int n = std::snprintf(text, sizeof(text), "state=ready\ntokens=%llu\nms=%llu\ndrafted=%llu\naccepted=%llu\n",
                                (unsigned long long) sum.tokens, (unsigned long long) sum.ms,
                                (unsigned long long) sum.drafted, (unsigned long long) sum.accepted);
    replace(text, (size_t) n);
    written = std::chrono::steady_clock::now();
    dirty   = false;
}

void at_exit() {
    if (ends_loading()) {
        write_end("failed", "it gave up");
        return;
    }
    const std::lock_guard<std::mutex> lock(mutex);
    if (dirty) {
        write_counters();
    }
}

const char * crash_name(int number) {
    switch (number) {
        case SIGABRT: return "aborted";
        case SIGSEGV: return "bad memory access";
        case SIGILL:  return "illegal instruction";
        case SIGFPE:  return "arithmetic fault";
        default:      return "bad memory access (bus)";
    }
}

void on_crash(int number) {
    if (ends_loading()) {
        write_end("failed", crash_name(number));
    }
    std::signal(number, SIG_DFL);
    std::raise(number);
}

void on_stop(int number) {
    if (ends_loading()) {
        write_end("stopped", "asked to stop");
    }
    std::signal(number, SIG_DFL);
    std::raise(number);
}

void handle(int number, void (*handler)(int)) {
    const auto before = std::signal(number, handler);
    if (before != SIG_DFL) {
        std::signal(number, before); // ignored by the host, or somebody else's
    }
}

bool take_path() {
#ifdef _WIN32
    const DWORD n = GetEnvironmentVariableW(L"SRHPM_RECORD", path, 4096);
    if (n == 0 || n >= 4096) {
        return false;
    }
    SetEnvironmentVariableW(L"SRHPM_RECORD", nullptr);
    swprintf(partial, sizeof(partial) / sizeof(partial[0]), L"%ls.partial", path);
#else
    const char * named = std::getenv("SRHPM_RECORD");
    if (!named || !*named || std::strlen(named) >= sizeof(path)) {
        return false;
    }
    std::snprintf(path, sizeof(path), "%s", named);
    std::snprintf(partial, sizeof(partial), "%s.partial", named);
    unsetenv("SRHPM_RECORD"); // what the server starts is another program
#endif
    return true;
}

} // namespace

void record_start() {
    if (state.load() != phase::off || !take_path()) {
        return;
    }
    state = phase::loading;
    replace("state=loading\n", std::strlen("state=loading\n"));
    std::atexit(at_exit);
    for (const int number : { SIGABRT, SIGSEGV, SIGILL, SIGFPE }) {
        handle(number, on_crash);
    }
#ifndef _WIN32
    handle(SIGBUS, on_crash);
    handle(SIGHUP, on_stop);
#endif
    handle(SIGTERM, on_stop);
    handle(SIGINT, on_stop);
}

void record_step(const char * what) {
    step = what;
}

void record_line(int level, const char * text) {
    if (level != GGML_LOG_LEVEL_ERROR || state.load() != phase::loading || !text) {
        return;
    }
    size_t n = 0;
    for (; text[n] && n + 1 < sizeof(last_error); ++n) {
        last_error[n] = (unsigned char) text[n] < 0x20 ? ' ' : text[n];
    }
    last_error[n] = 0;
}

void record_ready() {
    phase expected = phase::loading;
    if (state.compare_exchange_strong(expected, phase::ready)) {
        const std::lock_guard<std::mutex> lock(mutex);
        write_counters();
        written = {}; // the first answer is written at once
    }
}

void record_answer(uint64_t n_tokens, double ms, uint64_t n_drafted, uint64_t n_accepted) {
    if (state.load() != phase::ready) {
        return;
    }
    const std::lock_guard<std::mutex> lock(mutex);
    sum.tokens   += n_tokens;
    sum.ms       += ms;
    sum.drafted  += n_drafted;
    sum.accepted += n_accepted;
    dirty         = true;
    if (std::chrono::steady_clock::now() - written >= std::chrono::seconds(1)) {
        write_counters();
    }
}

} // namespace srhpm
