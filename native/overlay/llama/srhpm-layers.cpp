#include "srhpm-layers.h"

#include "llama-impl.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr const char * VARIABLE = "SRHPM_GPU_LAYERS";
constexpr int          OUT      = -1; // the output matrix

// Places that follow each other on one device.
struct Run {
    std::string text;
    int         first, last;
    size_t      device;
};

[[noreturn]] void refuse(const std::string & run, const std::string & why) {
    throw std::runtime_error(std::string("srhpm: ") + VARIABLE + " has \"" + run + "\": " + why);
}

// At most four digits, as no model has more layers.
int number(const std::string & text, const std::string & run) {
    const bool digits = !text.empty() && text.size() <= 4 && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) {
        refuse(run, "expected a layer, a range of them or out, each with @DEVICE or without, as in 3,7-9,out@1");
    }
    return std::atoi(text.c_str());
}

Run parse(const std::string & text) {
    const size_t at     = text.find('@');
    const size_t device = at == std::string::npos ? 0 : number(text.substr(at + 1), text);
    const auto   which  = text.substr(0, at);
    if (which == "out") {
        return {text, OUT, OUT, device};
    }
    const size_t dash  = which.find('-');
    const int    first = number(which.substr(0, dash), text);
    const int    last  = dash == std::string::npos ? first : number(which.substr(dash + 1), text);
    if (first > last) {
        refuse(text, "the range ends before it begins");
    }
    return {text, first, last, device};
}

std::vector<Run> parse_all(const char * list) {
    std::vector<Run>   runs;
    std::istringstream texts(list);
    for (std::string text; std::getline(texts, text, ',');) {
        runs.push_back(parse(text));
    }
    return runs;
}

std::vector<int> devices_of(const std::vector<Run> & runs, int n_layers, size_t n_devices) {
    std::vector<int> places(n_layers + 1, -1);
    for (const Run & run : runs) {
        if (run.last >= n_layers) {
            refuse(run.text, "the model has layers 0 to " + std::to_string(n_layers - 1));
        }
        if (run.device >= n_devices) {
            refuse(run.text, "the model may use " + std::to_string(n_devices) + " devices, counted from 0");
        }
        const int first = run.first == OUT ? n_layers : run.first;
        const int last  = run.last == OUT ? n_layers : run.last;
        for (int i = first; i <= last; ++i) {
            if (places[i] >= 0) {
                refuse(run.text, "it was named before");
            }
            places[i] = (int) run.device;
        }
    }
    return places;
}

} // namespace

std::optional<int> srhpm::placed_layer(int place, int n_layers, int gpu_layers, size_t n_devices) {
    const char * list = std::getenv(VARIABLE);
    if (!list || !*list || gpu_layers == 0 || n_devices == 0) {
        return std::nullopt;
    }
    const auto runs  = parse_all(list);
    int        named = 0;
    for (const Run & run : runs) {
        named += run.last - run.first + 1;
    }
    if (named != gpu_layers) {
        if (place == 0) {
            LLAMA_LOG_INFO("srhpm: %s names %d places: it is for a model with --gpu-layers %d, not for this one\n", VARIABLE, named, named);
        }
        return std::nullopt;
    }
    if (place == 0) {
        LLAMA_LOG_INFO("srhpm: layers on GPUs: %s\n", list);
    }
    return devices_of(runs, n_layers, n_devices)[place];
}
