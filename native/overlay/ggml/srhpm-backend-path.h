// SR-HPM: a host's ggml libraries must never be mixed into this server.
//
// Hosts that start a llama-server set GGML_BACKEND_PATH to a backend library of their own build and
// may start it in a folder that holds others. Another build's backend shares no ABI with this one.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

// `path` if it lies in `own_dir` (the folder of this program), else null with one line saying so.
static inline const char * srhpm_backend_path(const char * path, const std::filesystem::path & own_dir) {
    if (!path || !*path) {
        return nullptr;
    }
    std::error_code ec;
    const auto file = std::filesystem::weakly_canonical(path, ec);
    const auto own  = std::filesystem::weakly_canonical(own_dir, ec);
    if (!ec && file.parent_path() == own) {
        return path;
    }
    std::fprintf(stderr, "srhpm: GGML_BACKEND_PATH ignored, it names a library of another build: %s\n", path);
    return nullptr;
}
