// Times matrix products with our packed weights and with those that upstream would choose, and the
// mere reading of the packed bytes, all in turn: machines drift, pairs do not. Measures and judges
// nothing: a JSON object per line says what was found, as soon as it is.
//
// A pass goes through so many copies of a matrix that none is in a cache when its turn comes again,
// as in a model.

#include "cache.h"
#include "kernels.h"
#include "memory.h"
#include "options.h"
#include "read.h"
#include "weights.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>

namespace {

using bench::Options;
using bench::Product;
using bench::Read;
using bench::Shape;
using bench::Weights;

constexpr int64_t MIB         = 1 << 20;
constexpr int64_t LEAST_MIB   = 192;
constexpr int64_t CACHE_TIMES = 4;

// Upstream says for every tensor that it repacks it.
void log(ggml_log_level level, const char * text, void *) {
    if (level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR) {
        std::fputs(text, stderr);
    }
}

void flush() {
    std::printf("\n");
    std::fflush(stdout);
}

void say_start(const Options & options, const char * isa, int64_t least) {
    std::printf("{\"event\": \"start\", \"isa\": \"%s\", \"threads\": %d, \"rounds\": %d, \"rows\": %lld, \"cols\": %lld, "
                "\"cache_bytes\": %lld, \"least_bytes\": %lld, \"m\": [", isa, options.threads, options.rounds,
                (long long) options.rows, (long long) options.cols, (long long) bench::cache_bytes(), (long long) least);
    for (size_t i = 0; i < options.ms.size(); ++i) {
        std::printf("%s%d", i ? ", " : "", options.ms[i]);
    }
    std::printf("], \"types\": [");
    for (size_t i = 0; i < options.types.size(); ++i) {
        std::printf("%s\"%s\"", i ? ", " : "", bench::type_name(options.types[i]).c_str());
    }
    int reads = 0;
    while (!options.plain && Read::AHEAD[reads] >= 0) {
        reads++;
    }
    std::printf("], \"reads\": %d}", reads);
    flush();
}

void say_sample(const std::string & type, const char * engine, const char * key, int value, int round, double ms) {
    std::printf("{\"event\": \"sample\", \"type\": \"%s\", \"engine\": \"%s\", \"%s\": %d, \"round\": %d, \"ms\": %.4f}",
                type.c_str(), engine, key, value, round, ms);
    flush();
}

struct Engine {
    const char *                          name;
    std::unique_ptr<Weights>              weights;
    std::vector<std::unique_ptr<Product>> products; // one per entry of Options::ms
};

void measure(const bench::Cpu & cpu, const Options & options, ggml_type type, int64_t least) {
    const Shape shape{type, options.cols, options.rows};
    const auto  name   = bench::type_name(type);
    const auto  stock  = options.plain ? cpu.plain() : cpu.stock(type, shape.cols, shape.rows);
    const auto  packed = (int64_t) bench::copy_bytes(shape, options.plain ? stock : cpu.ours());
    const auto  file   = (int64_t) (ggml_row_size(type, shape.cols) * shape.rows);
    const auto  copies = (least + std::min(packed, file) - 1) / std::min(packed, file);
    const auto  most   = *std::max_element(options.ms.begin(), options.ms.end());

    std::printf("{\"event\": \"type\", \"type\": \"%s\", \"copies\": %lld, \"packed_bytes\": %lld, \"file_bytes\": %lld, "
                "\"stock_buffer\": \"%s\"}", name.c_str(), (long long) copies, (long long) (packed * copies),
                (long long) (file * copies), ggml_backend_buft_name(stock));
    flush();

    const auto          data = bench::random_weights(shape, 1);
    const auto          x    = bench::random_floats(most * shape.cols, 2);
    std::vector<Engine> engines;
    if (options.plain) {
        engines.push_back({"plain", nullptr, {}});
    } else {
        engines.push_back({"ours", nullptr, {}});
        engines.push_back({"stock", nullptr, {}});
    }
    std::vector<std::vector<bool>> equal;
    for (size_t e = 0; e < engines.size(); ++e) {
        Engine & engine = engines[e];
        engine.weights  = std::make_unique<Weights>(shape, e || options.plain ? stock : cpu.ours(), copies, data);
        if (!options.plain) {
            equal.push_back(bench::columns_equal(cpu, *engine.weights, options.ms, x.data()));
        }
        for (int m : options.ms) {
            engine.products.push_back(std::make_unique<Product>(cpu, *engine.weights, copies, m, x.data()));
        }
        engine.products[0]->run(); // untimed: the first pass also wakes the threads
    }
    for (size_t i = 0; i < options.ms.size() && !options.plain; ++i) {
        std::printf("{\"event\": \"columns\", \"type\": \"%s\", \"m\": %d, \"ours\": %s, \"stock\": %s}", name.c_str(),
                    options.ms[i], equal[0][i] ? "true" : "false", equal[1][i] ? "true" : "false");
        flush();
    }

    const size_t n = options.ms.size();
    for (int round = 0; round < options.rounds; ++round) {
        for (int i = 0; !options.plain && Read::AHEAD[i] >= 0; ++i) {
            Read read(cpu, *engines[0].weights, packed, Read::AHEAD[i]);
            say_sample(name, "read", "ahead", Read::AHEAD[i], round, read.run());
        }
        for (size_t i = 0; i < n; ++i) {
            const size_t at = (i + round) % n; // everyone comes first now and then
            for (size_t e = 0; e < engines.size(); ++e) {
                const Engine & engine = engines[(e + i) % engines.size()];
                say_sample(name, engine.name, "m", options.ms[at], round, engine.products[at]->run());
            }
        }
    }
}

int run(int argc, char ** argv) {
    const Options options(argc, argv);
    ggml_log_set(log, nullptr);
    if (options.memory) {
        bench::measure_memory(options.threads, options.rounds);
        return 0;
    }
    const bench::Cpu cpu(options.threads);
    const auto *     kernels = srhpm::chosen_kernels();
    if (!options.plain && (!kernels || !cpu.ours())) {
        throw std::runtime_error("there are no kernels for this processor, or SRHPM_KERNELS or SRHPM_ISA switch them off");
    }
    const int64_t least = options.mib ? options.mib * MIB : std::max(LEAST_MIB * MIB, CACHE_TIMES * bench::cache_bytes());
    say_start(options, kernels ? kernels->isa : "none", least);
    if (!options.info) {
        for (ggml_type type : options.types) {
            measure(cpu, options, type, least);
        }
    }
    return 0;
}

} // namespace

int main(int argc, char ** argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception & error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 1;
    }
}
