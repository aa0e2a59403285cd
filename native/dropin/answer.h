// What srhpm_plugin.dropin answers: NUL-terminated strings, "SRHPM1", then records of two strings each,
// a letter and its value, then "END". Whatever is not exactly that is no answer.
#pragma once

#include "system.h"

#include <cstdlib>

namespace dropin {

struct answer {
    std::string program;
    strings     args;
    env_changes env;
};

inline std::optional<size_t> parse_index(const std::string & text, size_t count) {
    if (text.empty() || text.size() > 9) {
        return std::nullopt;
    }
    size_t index = 0;
    for (const char c : text) {
        if (c < '0' || c > '9') {
            return std::nullopt;
        }
        index = index * 10 + (size_t) (c - '0');
    }
    return index < count ? std::optional<size_t>(index) : std::nullopt;
}

inline std::optional<answer> parse_answer(const std::string & data, const strings & args) {
    strings words;
    for (size_t start = 0; start < data.size();) {
        const size_t end = data.find('\0', start);
        if (end == std::string::npos) {
            return std::nullopt; // cut short
        }
        words.push_back(data.substr(start, end - start));
        start = end + 1;
    }
    if (words.size() < 4 || words.size() % 2 != 0 || words.front() != "SRHPM1" || words.back() != "END") {
        return std::nullopt;
    }
    answer result;
    for (size_t i = 1; i + 1 < words.size(); i += 2) {
        const std::string & kind  = words[i];
        const std::string & value = words[i + 1];
        if (kind == "P") {
            if (!result.program.empty() || !is_absolute(value)) {
                return std::nullopt;
            }
            result.program = value;
        } else if (kind == "A") {
            result.args.push_back(value);
        } else if (kind == "I" || kind == "V") { // an argument of the host's, or what follows its '='
            const auto index = parse_index(value, args.size());
            if (!index) {
                return std::nullopt;
            }
            const std::string & given  = args[*index];
            const size_t        equals = given.find('=');
            if (kind == "V" && equals == std::string::npos) {
                return std::nullopt;
            }
            result.args.push_back(kind == "I" ? given : given.substr(equals + 1));
        } else if (kind == "E" || kind == "U") {
            const size_t      equals = value.find('=');
            const std::string name   = value.substr(0, equals);
            if (name.empty() || (kind == "E") != (equals != std::string::npos)) {
                return std::nullopt;
            }
            result.env.emplace_back(name, kind == "E" ? std::optional<std::string>(value.substr(equals + 1)) :
                                                        std::nullopt);
        } else {
            return std::nullopt;
        }
    }
    if (result.program.empty()) {
        return std::nullopt;
    }
    return result;
}

} // namespace dropin
