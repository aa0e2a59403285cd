#include "memory.h"

#include "cache.h"
#include "read.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace bench {

namespace {

constexpr size_t MIB       = 1 << 20;
constexpr size_t LEAST_MIB = 128;
constexpr size_t CACHES    = 4; // times what all caches hold
constexpr size_t PIECE     = 256u << 10;
constexpr size_t HUGE_PAGE = 2 * MIB;

enum class Pages { Small, Huge, System };

// Memory that has been written to.
class Bytes {
  public:
    Bytes(size_t size, Pages pages) : memory(size + HUGE_PAGE) {
        begin = (uint8_t *) (((uintptr_t) memory.get() + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
        if (pages != Pages::System) {
            madvise(begin, size, pages == Pages::Huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        }
#else
        (void) pages;
#endif
        std::memset(begin, 1, size);
    }

    uint8_t * begin;

  private:
#if defined(__linux__)
    // Never from a heap, whose pages may have been touched already.
    struct Mapping {
        explicit Mapping(size_t size) : size(size), at(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
            if (at == MAP_FAILED) {
                throw std::runtime_error("memory does not suffice to measure how fast it is");
            }
        }
        ~Mapping() { munmap(at, size); }
        void * get() const { return at; }
        const size_t size;
        void * const at;
    } memory;
#else
    struct Mapping {
        explicit Mapping(size_t size) : at(new uint8_t[size]) {}
        void * get() const { return at.get(); }
        std::unique_ptr<uint8_t[]> at;
    } memory;
#endif
};

// Milliseconds in which `threads` threads read everything once.
double read_all(const Bytes & bytes, size_t size, int threads) {
    std::atomic<int>      ready{0};
    std::atomic<size_t>   next{0};
    std::atomic<uint64_t> sum{0};
    const auto            work = [&] {
        ready++;
        while (ready < threads) {
            std::this_thread::yield();
        }
        uint64_t own = 0;
        for (size_t i = next++; i < size / PIECE; i = next++) {
            own += read_bytes(bytes.begin + i * PIECE, PIECE);
        }
        sum += own;
    };
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) {
        others.emplace_back(work);
    }
    while (ready < threads - 1) {
        std::this_thread::yield();
    }
    const auto begin = std::chrono::steady_clock::now();
    work();
    for (auto & other : others) {
        other.join();
    }
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

} // namespace

void measure_memory(int threads, int rounds) {
    const size_t size = std::max(LEAST_MIB * MIB, (CACHES * (size_t) cache_bytes() + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const std::vector<Pages> kinds = {Pages::Small, Pages::Huge};
#else
    const std::vector<Pages> kinds = {Pages::System};
#endif
    std::vector<int> teams;
    for (int n = 1; n < threads; n *= 2) {
        teams.push_back(n);
    }
    teams.push_back(threads);
    std::vector<std::unique_ptr<Bytes>> all;
    for (Pages kind : kinds) {
        all.push_back(std::make_unique<Bytes>(size, kind));
    }
    for (int round = 0; round < rounds; ++round) {
        for (int n : teams) {
            for (size_t i = 0; i < kinds.size(); ++i) {
                const double ms = read_all(*all[i], size, n);
                std::printf("{\"event\": \"memory\", \"threads\": %d, \"pages\": \"%s\", \"round\": %d, \"bytes\": %zu, \"ms\": %.4f}\n",
                            n, kinds[i] == Pages::Huge ? "huge" : kinds[i] == Pages::Small ? "small" : "system", round, size, ms);
                std::fflush(stdout);
            }
        }
    }
}

} // namespace bench
