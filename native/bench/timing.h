// SR-HPM bench: milliseconds.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace bench {

template <typename Work> double ms_of(const Work & work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Of so many runs, or as many as start within the limit; the first one, which connects, allocates and
// compiles, does not count.
template <typename Work> double median_ms(int runs, const Work & work, double limit_ms = 1e9) {
    std::vector<double> all;
    work();
    double sum = 0;
    do {
        all.push_back(ms_of(work));
        sum += all.back();
    } while ((int) all.size() < runs && sum < limit_ms);
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

} // namespace bench
