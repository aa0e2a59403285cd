// The note beside the drop-in, `<program>.srhpm`, see srhpm_plugin/dropin/note.py.
#pragma once

#include "system.h"

namespace dropin {

struct note {
    std::string path;     // of the note itself
    std::string place;    // of the drop-in
    std::string original; // the host's own server; empty: there is none
    std::string python;
    std::string home;
    bool        router = false; // ours takes a start that names no model
    bool        valid = false; // false: the note is damaged, what could be read of it is here
};

inline const char * const note_suffix = ".srhpm";

// A damaged note still tells where the host's own server is, as long as that line is whole.
inline std::optional<note> read_note(const std::string & place) {
    const std::string path    = place + note_suffix;
    const auto        content = read_file(path, 64 * 1024);
    if (!content) {
        return std::nullopt;
    }
    note result;
    result.path  = path;
    result.place = place;
    std::string version;
    size_t      start = 0;
    while (start < content->size()) {
        const size_t end = content->find('\n', start);
        if (end == std::string::npos) {
            break; // a line cut short says nothing
        }
        std::string line = content->substr(start, end - start);
        start            = end + 1;
        if (!line.empty() && line.back() == '\r') {
            line.pop_back();
        }
        const size_t equals = line.find('=');
        if (equals == std::string::npos || line.find('\0') != std::string::npos) {
            continue;
        }
        const std::string key   = line.substr(0, equals);
        const std::string value = line.substr(equals + 1);
        if (key == "version") {
            version = value;
        } else if (key == "original") {
            result.original = value;
        } else if (key == "python") {
            result.python = value;
        } else if (key == "home") {
            result.home = value;
        } else if (key == "router") {
            result.router = value == "yes";
        }
    }
    if (!result.original.empty() && !is_absolute(result.original)) {
        result.original = folder_of(place) + result.original;
    }
    result.valid = version == "1" && !result.python.empty();
    return result;
}

} // namespace dropin
