// What bench-gpu does, apart from main(): tests run it beside a GPU of their own.

#include "gpu.h"
#include "timing.h"
#include "weights.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace {

using namespace bench;

constexpr size_t    MIB       = 1 << 20;
constexpr size_t    PART      = 4;         // of the free memory no more than a fourth is used
constexpr size_t    WEIGHTS   = 256 * MIB; // more than any cache holds
constexpr size_t    TRANSFER  = 64 * MIB, LEAST_TRANSFER = MIB;
constexpr int64_t   SIDE      = 4096;      // rows and columns, as wide as models that fill a memory are
constexpr int       MS[]      = {1, 4, 512};
constexpr int       LONG      = 512;
constexpr int       RUNS      = 5;
constexpr double    LIMIT_MS  = 250; // for the runs of one figure

struct Type {
    ggml_type    type;
    const char * name; // as model files' readers write it
};
constexpr Type TYPES[] = {{GGML_TYPE_Q4_K, "Q4_K"}, {GGML_TYPE_Q8_0, "Q8_0"}, {GGML_TYPE_F16, "F16"}, {GGML_TYPE_Q6_K, "Q6_K"}};

template <typename... Args> void say(const char * format, Args... args) {
    std::printf(format, args...);
    std::printf("\n");
    std::fflush(stdout); // a driver that ends the program takes only what it was asked last
}

// So that it can stand in JSON.
std::string plain_text(const std::string & text) {
    std::string out;
    for (char c : text) {
        out += c == '"' || c == '\\' || (unsigned char) c < ' ' ? ' ' : c;
    }
    return out;
}

void left_out(const std::string & what, const std::string & why) {
    say("{\"event\": \"left_out\", \"what\": \"%s\", \"why\": \"%s\"}", what.c_str(), plain_text(why).c_str());
}

void products(const Gpu & gpu, const Type & one, double launch) {
    const Shape  shape{one.type, SIDE, SIDE};
    const size_t room   = gpu.free() / PART;
    const size_t beside = 2 * (SIDE * LONG * sizeof(float) + MIB); // activations and results
    const size_t each   = copy_bytes(shape, gpu.plain());
    const size_t copies = room < beside ? 0 : std::min(WEIGHTS, room - beside) / each;
    if (!copies) {
        throw std::runtime_error("too little memory is free");
    }
    const Weights weights(shape, gpu.plain(), (int64_t) copies, random_weights(shape, 1));
    const auto    x = random_floats(SIDE * LONG, 2);
    for (int m : MS) {
        if (!gpu.multiplies(one.type, SIDE, SIDE, m)) {
            throw std::runtime_error("it does not multiply them");
        }
        // Many columns take so long that no more than one matrix is needed, and no cache matters.
        const size_t  used = m == LONG ? 1 : copies;
        const Product product(gpu, weights, (int64_t) used, m, x.data());
        const double  ms  = median_ms(RUNS, [&] { product.run(); }, LIMIT_MS);
        const double  net = std::max(ms - launch, 0.1 * ms);
        const double  nbytes = (double) used * ggml_row_size(one.type, SIDE) * SIDE;
        say("{\"event\": \"product\", \"type\": \"%s\", \"m\": %d, \"ms\": %.6f, \"bytes\": %.0f, \"flop\": %.0f}", one.name, m, net, nbytes,
            2.0 * SIDE * SIDE * m * (double) used);
    }
}

void measure(const char * name, int threads, double seconds) {
    const auto   start = std::chrono::steady_clock::now();
    const Cpu    cpu(threads);
    const Gpu    gpu(name);
    const double launch = gpu.launch();
    say("{\"event\": \"launch\", \"name\": \"%s\", \"description\": \"%s\", \"ms\": %.6f}", gpu.name(), plain_text(gpu.description()).c_str(), launch);
    say("{\"event\": \"crossing\", \"ms\": %.6f}", gpu.crossing(cpu));
    const size_t bytes = std::min(TRANSFER, gpu.free() / PART);
    if (bytes < LEAST_TRANSFER) {
        left_out("transfers", "too little memory is free");
    } else {
        const Gpu::Link link = gpu.link(bytes);
        say("{\"event\": \"link\", \"up_bytes_s\": %.0f, \"down_bytes_s\": %.0f}", link.up, link.down);
    }
    for (const Type & one : TYPES) {
        const std::string what = std::string(one.name) + " weights";
        if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds) {
            left_out(what, "no time was left");
            continue;
        }
        try {
            products(gpu, one, launch);
        } catch (const std::exception & error) {
            left_out(what, error.what());
        }
    }
    say("{\"event\": \"end\"}");
}

} // namespace

int measure_gpu(int argc, char ** argv) try {
    if (argc != 4) {
        throw std::runtime_error("type: bench-gpu DEVICE THREADS SECONDS");
    }
    measure(argv[1], std::max(1, std::atoi(argv[2])), std::atof(argv[3]));
    return 0;
} catch (const std::exception & error) {
    std::fprintf(stderr, "bench-gpu: %s\n", error.what());
    return 1;
}
