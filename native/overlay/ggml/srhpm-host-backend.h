// SR-HPM: a GPU backend library of the host's, in this server.
//
// SRHPM_BACKENDS=TAG:FILE names it (several: separated as in PATH), TAG being the llama.cpp tag whose
// backend ABI the file has; the drop-in knows that from the host's own server. A library says nothing
// of its tag, so what is asked of it is what it can show: the API version, and that every symbol that
// it lacks is one of ours. A library that is refused costs a line, and the server runs without.
//
// For ggml-backend-reg.cpp alone, which has included ggml-backend-impl.h and ggml-backend-dl.h.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#ifndef SRHPM_LLAMA_TAG
#    define SRHPM_LLAMA_TAG "of no tag" // which no variable names
#endif

namespace srhpm {

// "b10488:/a/x.so:/b/y.so", split at its separators; the tag first.
inline std::vector<std::string> host_backend_words(const std::string & text) {
#ifdef _WIN32
    const char separator = ';';
#else
    const char separator = ':';
#endif
    std::vector<std::string> words;
    size_t                   start = text.find(':');
    words.push_back(text.substr(0, start));
    while (start != std::string::npos) {
        const size_t end = text.find(separator, start + 1);
        words.push_back(text.substr(start + 1, end == std::string::npos ? end : end - start - 1));
        start = end;
    }
    return words;
}

// The backend in `file`, kept loaded, or null and why it is refused.
inline ggml_backend_reg_t open_host_backend(const std::string & file, std::string & why) {
    const std::filesystem::path path(file);
    std::error_code             ec;
    if (!path.is_absolute() || !std::filesystem::is_regular_file(path, ec)) {
        why = "it is no file";
        return nullptr;
    }
    dl_handle_ptr handle{dl_load_library(path)};
    if (!handle) {
        const char * said = dl_error();
        why               = said && *said ? said : "it cannot be loaded";
        return nullptr;
    }
    const auto score = (ggml_backend_score_t) dl_get_sym(handle.get(), "ggml_backend_score");
    if (score && score() == 0) {
        why = "it says that it does not run on this machine";
        return nullptr;
    }
    const auto init = (ggml_backend_init_t) dl_get_sym(handle.get(), "ggml_backend_init");
    if (!init) {
        why = "it is no backend";
        return nullptr;
    }
    ggml_backend_reg_t reg = init();
    if (!reg) {
        why = "it does not start";
        return nullptr;
    }
    if (reg->api_version != GGML_BACKEND_API_VERSION) {
        why = "its API version is " + std::to_string(reg->api_version) + ", ours is " + std::to_string(GGML_BACKEND_API_VERSION);
        return nullptr;
    }
    (void) handle.release(); // threads of a backend may outlive everything
    return reg;
}

// Registers what SRHPM_BACKENDS names, once.
inline void load_host_backends() {
    static bool done = false;
    const char * said = std::getenv("SRHPM_BACKENDS");
    if (done || !said || !*said) {
        return;
    }
    done = true;
    const auto        words = host_backend_words(said);
    const std::string tag   = words[0];
    for (size_t i = 1; i < words.size(); ++i) {
        ggml_backend_reg_t reg = nullptr;
        std::string        why;
#ifndef GGML_BACKEND_DL
        why = "this server is one file; one that loads libraries is built with: srhpm-plugin native build --portable";
#else
        if (tag != SRHPM_LLAMA_TAG) {
            why = "it is of llama.cpp " + tag + ", this server of " SRHPM_LLAMA_TAG;
        } else {
            reg = open_host_backend(words[i], why);
        }
#endif
        if (reg) {
            ggml_backend_register(reg);
            std::fprintf(stderr, "srhpm: the host's %s is used, from %s\n", ggml_backend_reg_name(reg), words[i].c_str());
        } else {
            std::fprintf(stderr, "srhpm: not loading %s: %s\n", words[i].c_str(), why.c_str());
        }
    }
}

} // namespace srhpm
