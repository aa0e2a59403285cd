// Which program the router starts for a model. Upstream takes its own path, so with a drop-in that became
// the router all models would bypass the drop-in; named here, it is asked for each of them.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace srhpm {

// SRHPM_ROUTER_CHILD; empty when it names no file.
inline std::filesystem::path router_child() {
#ifdef _WIN32
    const wchar_t * named = _wgetenv(L"SRHPM_ROUTER_CHILD");
#else
    const char * named = std::getenv("SRHPM_ROUTER_CHILD");
#endif
    std::error_code             error;
    const std::filesystem::path program = named ? std::filesystem::path(named) : std::filesystem::path();
    return program.is_absolute() && std::filesystem::is_regular_file(program, error) ? program : std::filesystem::path();
}

} // namespace srhpm
