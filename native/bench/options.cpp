#include "options.h"

#include "pack.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <stdexcept>

namespace bench {

namespace {

constexpr int64_t MOST = 1 << 20;

[[noreturn]] void refuse(const std::string & why) {
    throw std::runtime_error(why);
}

std::string upper(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return (char) std::toupper(c); });
    return text;
}

std::vector<std::string> words(const std::string & list) {
    std::vector<std::string> out;
    for (size_t at = 0; at <= list.size();) {
        const size_t end = std::min(list.find(',', at), list.size());
        out.push_back(list.substr(at, end - at));
        at = end + 1;
    }
    return out;
}

int64_t number(const std::string & option, const std::string & text, int64_t least, int64_t most) {
    char *        end   = nullptr;
    const int64_t value = std::strtoll(text.c_str(), &end, 10);
    if (text.empty() || *end || value < least || value > most) {
        refuse(option + " takes numbers from " + std::to_string(least) + " to " + std::to_string(most) + ", not '" + text + "'");
    }
    return value;
}

ggml_type type_of(const std::string & name, bool plain) {
    std::string known;
    for (int i = 0; plain && i < GGML_TYPE_COUNT; ++i) {
        const auto type = (ggml_type) i;
        if (ggml_type_name(type) && ggml_blck_size(type) && type_name(type) == upper(name)) {
            return type;
        }
    }
    for (const srhpm::Format & f : srhpm::formats) {
        if (type_name(f.type) == upper(name)) {
            return f.type;
        }
        known += " " + type_name(f.type);
    }
    refuse("'" + name + "' is no weight type with kernels; there are" + known);
}

} // namespace

std::string type_name(ggml_type type) {
    return upper(ggml_type_name(type));
}

Options::Options(int argc, char ** argv) {
    std::vector<std::string> names;
    for (int i = 1; i < argc; ++i) {
        const std::string option = argv[i];
        if (option == "--info" || option == "--plain" || option == "--memory") {
            (option == "--info" ? info : option == "--plain" ? plain : memory) = true;
            continue;
        }
        if (i + 1 == argc) {
            refuse(option + " is no option, or has no value");
        }
        const std::string value = argv[++i];
        if (option == "--types") {
            names = words(value);
        } else if (option == "--m") {
            ms.clear();
            for (const auto & word : words(value)) {
                ms.push_back((int) number(option, word, 1, 512));
            }
        } else if (option == "--rows") {
            rows = number(option, value, 1, MOST);
        } else if (option == "--cols") {
            cols = number(option, value, 1, MOST);
        } else if (option == "--threads") {
            threads = (int) number(option, value, 1, GGML_MAX_N_THREADS);
        } else if (option == "--rounds") {
            rounds = (int) number(option, value, 1, MOST);
        } else if (option == "--mib") {
            mib = number(option, value, 1, MOST);
        } else {
            refuse(option + " is no option");
        }
    }
    for (const auto & name : names) {
        types.push_back(type_of(name, plain));
    }
    if (types.empty()) {
        for (const srhpm::Format & f : srhpm::formats) {
            types.push_back(f.type);
        }
    }
    for (ggml_type type : types) {
        if (plain ? cols % ggml_blck_size(type) : !srhpm::packable(type, cols)) {
            refuse("rows of " + type_name(type) + " are multiples of " +
                   std::to_string(std::max<int64_t>(srhpm::BLOCK, ggml_blck_size(type))) + " weights, not " + std::to_string(cols));
        }
    }
}

} // namespace bench
