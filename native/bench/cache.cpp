#include "cache.h"

#include <fstream>
#include <set>
#include <string>

namespace bench {

int64_t cache_bytes() {
    int64_t               all = 0;
    std::set<std::string> seen; // a cache is listed under each of its CPUs
    for (int cpu = 0;; ++cpu) {
        const auto    folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index3/";
        std::ifstream size(folder + "size"), shared(folder + "shared_cpu_list");
        std::string   cpus;
        int64_t       kib = 0;
        if (!(size >> kib) || !(shared >> cpus)) {
            return all;
        }
        if (seen.insert(cpus).second) {
            all += kib << 10;
        }
    }
}

} // namespace bench
