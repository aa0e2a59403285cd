#include "srhpm-drafter-log.h"

#include <atomic>
#include <cstring>

namespace srhpm {

namespace {

std::atomic<int> loading{0};

} // namespace

DrafterLoads::DrafterLoads() {
    ++loading;
}

DrafterLoads::~DrafterLoads() {
    --loading;
}

std::string drafter_line(const char * text) {
    if (loading == 0) {
        return {};
    }
    if (strstr(text, " buffer size")) {
        const size_t name = strspn(text, " ");
        return std::string(text, name) + "drafter_" + (text + name);
    }
    static const char layers[] = " layers to GPU";
    if (const char * found = strstr(text, layers)) {
        return std::string(text, found) + " drafter" + found;
    }
    return {};
}

} // namespace srhpm
