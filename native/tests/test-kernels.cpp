// The packed weights and the kernels over them, for every format and every instruction set that this
// machine has:
//   * packing loses nothing: each packed weight equals ggml's dequantized one, bit for bit, for
//     random bytes (every code, scale and grid entry) and extreme ones, and unpacking gives the
//     bytes again;
//   * a product is right within float rounding of a double sum over the same integers;
//   * column j of M columns equals the column computed alone, bit for bit, for M in 1..16, however
//     the rows are shared out.
// test-kernels [SEED] fuzzes shapes with that seed.

#include "ggml.h"
#include "kernels.h"
#include "pack.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

using namespace srhpm;

namespace {

int failures = 0;

void fail(const char * what, const Format & f, const char * isa, int64_t k, int64_t rows, int64_t m) {
    std::printf("FAILED %s: %s %s k=%lld rows=%lld m=%lld\n", what, ggml_type_name(f.type), isa, (long long) k,
                (long long) rows, (long long) m);
    failures++;
}

// Sets every fp16 of the blocks to a finite value: other bits stay random.
void finite_scales(const Format & f, std::vector<uint8_t> & w, std::mt19937 & rng) {
    const size_t size = ggml_type_size(f.type);
    const auto   half = [&](size_t at) {
        const float       x = std::ldexp(std::uniform_real_distribution<float>(-1, 1)(rng), (int) (rng() % 8) - 8);
        const ggml_fp16_t h = ggml_fp32_to_fp16(x);
        for (size_t b = at; b + 2 <= w.size(); b += size) {
            const ggml_fp16_t other = (ggml_fp16_t) (h ^ (rng() & 0x03ff)); // same size, other digits
            memcpy(&w[b], &other, 2);
        }
    };
    switch (f.type) {
        case GGML_TYPE_MXFP4:
            for (size_t b = 0; b < w.size(); b += size) {
                w[b] = (uint8_t) (rng() % 16 ? 110 + rng() % 30 : rng() % 3); // subnormal ones too
            }
            break;
        case GGML_TYPE_NVFP4: break; // every byte is finite
        case GGML_TYPE_Q4_1:
        case GGML_TYPE_Q5_1:
        case GGML_TYPE_Q4_K:
        case GGML_TYPE_Q5_K: half(0); half(2); break;
        case GGML_TYPE_Q2_K: half(size - 4); half(size - 2); break;
        case GGML_TYPE_Q3_K:
        case GGML_TYPE_Q6_K: half(size - 2); break;
        default: half(0); break;
    }
}

struct Matrix {
    int64_t              k, rows;
    std::vector<uint8_t> plain, packed;
    std::vector<float>   weights; // dequantized by ggml
};

Matrix make(const Format & f, int64_t k, int64_t rows, std::mt19937 & rng, int fill) {
    Matrix w{k, rows, {}, {}, {}};
    w.plain.resize(ggml_row_size(f.type, k) * rows);
    for (auto & b : w.plain) {
        b = fill < 0 ? (uint8_t) rng() : (uint8_t) fill;
    }
    finite_scales(f, w.plain, rng);
    w.packed.assign(packed_size(f, k, rows) + 64, 0xa5);
    const int64_t panels = (rows + ROWS - 1) / ROWS;
    for (int64_t p = 0; p < panels; ++p) { // panel by panel, as threads share the work
        pack(f, w.plain.data(), k, rows, p, p + 1, w.packed.data());
    }
    for (size_t i = packed_size(f, k, rows); i < w.packed.size(); ++i) {
        if (w.packed[i] != 0xa5) {
            fail("packing wrote beyond its end", f, "", k, rows, 0);
            break;
        }
    }
    w.weights.resize(k * rows);
    const auto to_float = ggml_get_type_traits(f.type)->to_float;
    for (int64_t r = 0; r < rows; ++r) {
        to_float(w.plain.data() + r * ggml_row_size(f.type, k), &w.weights[r * k], k);
    }
    return w;
}

void check_lossless(const Format & f, const Matrix & w) {
    std::vector<float> row(w.k);
    for (int64_t r = 0; r < w.rows; ++r) {
        unpack_row(f, w.packed.data(), w.k, r, row.data());
        for (int64_t i = 0; i < w.k; ++i) {
            // equal as numbers: 0 times a negative code is -0 on one side only
            if (!(row[i] == w.weights[r * w.k + i])) {
                fail("packed weight differs", f, "", w.k, w.rows, r);
                std::printf("  weight %lld: %.9g, packed %.9g\n", (long long) i, (double) w.weights[r * w.k + i], (double) row[i]);
                return;
            }
        }
    }
}

void check_unpacked(const Format & f, const Matrix & w) {
    std::vector<uint8_t> want = w.plain;
    if (f.type == GGML_TYPE_NVFP4) { // its scales come first: four a block
        for (size_t b = 0; b < want.size(); b += ggml_type_size(f.type)) {
            for (size_t i = b; i < b + 4; ++i) {
                want[i] = want[i] == 0x7f ? 0 : want[i] == 0xff ? 0xff : want[i] & 0x7f;
            }
        }
    }
    const size_t         row_bytes   = ggml_row_size(f.type, w.k);
    const size_t         panel_bytes = packed_size(f, w.k, ROWS);
    std::vector<uint8_t> got(want.size() + 64, 0xa5);
    for (int64_t r = 0; r < w.rows; r += ROWS) {
        const int rows = (int) (w.rows - r < ROWS ? w.rows - r : ROWS);
        unpack(f, w.packed.data() + r / ROWS * panel_bytes, w.k, rows, got.data() + r * row_bytes);
    }
    want.resize(got.size(), 0xa5);
    if (got != want) {
        fail("unpacked bytes differ", f, "", w.k, w.rows, 0);
    }
}

std::vector<float> multiply(const Kernels & kernels, const Format & f, const Matrix & w,
                            const std::vector<std::vector<Activation>> & acts, int64_t first, int64_t n, int64_t share) {
    std::vector<float>              out(n * w.rows, NAN);
    std::vector<const Activation *> columns;
    std::vector<float *>            to;
    for (int64_t j = 0; j < n; ++j) {
        columns.push_back(acts[first + j].data());
        to.push_back(&out[j * w.rows]);
    }
    const Product p{w.packed.data(), w.k / BLOCK, w.rows, columns.data(), to.data(), n};
    const int64_t panels = (w.rows + ROWS - 1) / ROWS;
    for (int64_t i = 0; i < panels; i += share) {
        kernels.multiply[&f - formats](p, i, i + share < panels ? i + share : panels);
    }
    return out;
}

void check_products(const Kernels & kernels, const Format & f, const Matrix & w, std::mt19937 & rng, int64_t most) {
    std::normal_distribution<float>      normal(0, 1);
    std::vector<std::vector<Activation>> acts(most, std::vector<Activation>(w.k / BLOCK));
    std::vector<std::vector<float>>      x(most, std::vector<float>(w.k));
    for (int64_t j = 0; j < most; ++j) {
        for (auto & v : x[j]) {
            // extreme columns: all codes at +127, or alternating ends
            v = j == 1 ? 1.0f : j == 2 ? (rng() & 1 ? 1.0f : -1.0f) : normal(rng);
        }
        if (j == 3) {
            std::fill(x[j].begin(), x[j].end(), 0.0f);
        }
        kernels.quantize(x[j].data(), acts[j].data(), w.k / BLOCK, f);
    }
    std::vector<std::vector<float>> alone;
    for (int64_t j = 0; j < most; ++j) {
        alone.push_back(multiply(kernels, f, w, acts, j, 1, 1 + rng() % 4));
        for (int64_t r = 0; r < w.rows; ++r) {
            double want = 0, size = 0;
            for (int64_t i = 0; i < w.k; ++i) {
                const Activation & a    = acts[j][i / BLOCK];
                const double       term = (double) w.weights[r * w.k + i] * a.d * a.q[i % BLOCK];
                want += term;
                size += std::fabs(term);
            }
            // weights with a min: both sums round
            if (!(std::fabs(alone[j][r] - want) <= size * 4e-6 + 1e-30)) {
                fail("product is wrong", f, kernels.isa, w.k, w.rows, j);
                std::printf("  row %lld: %.9g, should be %.9g\n", (long long) r, (double) alone[j][r], want);
                return;
            }
        }
    }
    for (int64_t m = 1; m <= most; ++m) {
        const int64_t first = rng() % (most - m + 1);
        const auto    all   = multiply(kernels, f, w, acts, first, m, 1 + rng() % 4);
        for (int64_t j = 0; j < m; ++j) {
            if (memcmp(&all[j * w.rows], alone[first + j].data(), w.rows * sizeof(float)) != 0) {
                fail("column depends on its batch", f, kernels.isa, w.k, w.rows, m);
                return;
            }
        }
    }
}

// What to quantize, of every kind: random, nothing, of any size, halfway between two numbers.
void fill_block(float * x, int kind, std::mt19937 & rng) {
    std::normal_distribution<float> normal(0, 3);
    const float                     sizes[] = {1.0f, 0.0f, 1e-42f, 1e-38f, 1e-36f, 1e-30f, 1e37f};
    for (int i = 0; i < BLOCK; ++i) {
        x[i] = kind < 7 ? normal(rng) * sizes[kind] : (float) ((int) (rng() % 253) - 126) + 0.5f;
    }
    if (kind == 7) {
        x[rng() % BLOCK] = rng() % 2 ? 127.0f : -127.0f; // the scale is 1: all are exact
    }
}

// Every instruction set must quantize as defined, to the last bit.
void check_quantize(const Kernels & kernels, std::mt19937 & rng) {
    for (const ggml_type type : {GGML_TYPE_NVFP4, GGML_TYPE_Q6_K}) { // two groups, integer sums
        const Format & f = formats[format_index(type)];
        const int      n_blocks = span(f); // share a scale
        for (int n = 0; n < 400; ++n) {
            std::vector<float> x(n_blocks * BLOCK);
            for (int b = 0; b < n_blocks; ++b) {
                fill_block(&x[b * BLOCK], b % 3 ? (int) (rng() % 7) : n % 8, rng);
            }
            float most = 0.0f;
            for (const float v : x) {
                most = std::fmax(most, std::fabs(v));
            }
            const float             inverse = most >= SMALLEST ? 127.0f / most : 0.0f;
            std::vector<Activation> want(n_blocks), got(n_blocks);
            for (size_t i = 0; i < x.size(); ++i) {
                Activation & a      = want[i / BLOCK];
                const float  scaled = x[i] * inverse;
                a.d                 = most / 127.0f;
                a.q[i % BLOCK]      = (int8_t) std::nearbyint(scaled); // halves to even
                a.sums.i[i % BLOCK / 16] -= f.offset * a.q[i % BLOCK];
            }
            kernels.quantize(x.data(), got.data(), n_blocks, f);
            if (memcmp(want.data(), got.data(), want.size() * sizeof(Activation)) != 0) {
                fail("quantized activations", f, kernels.isa, x.size(), 1, n);
                return;
            }
        }
    }
}

// Attention: right, the same for a row whatever rows are beside it, and untouched by positions that
// are masked behind the last one it sees.
void check_attention(const Kernels & kernels, std::mt19937 & rng) {
    const int64_t dk = 16 * (1 + rng() % 12), dv = 16 * (1 + rng() % 12);
    const int64_t n_kv = 1 + rng() % 200, padded = n_kv + rng() % 100;
    const auto    halves = [&](int64_t n) {
        std::normal_distribution<float> normal(0, 1);
        std::vector<ggml_fp16_t>        out(n);
        for (auto & h : out) {
            h = ggml_fp32_to_fp16(normal(rng));
        }
        return out;
    };
    const auto k = halves(dk * padded), v = halves(dv * padded), q16 = halves(dk * MAX_ROWS);

    std::vector<float>       q(q16.size());
    std::vector<ggml_fp16_t> mask(padded * MAX_ROWS);
    for (size_t i = 0; i < q.size(); ++i) {
        q[i] = ggml_fp16_to_fp32(q16[i]) * 3;
    }
    for (int64_t r = 0; r < MAX_ROWS; ++r) {
        const int64_t hidden = rng() % 3 ? 0 : 64 * (rng() % 3); // as a window hides the oldest
        for (int64_t i = 0; i < padded; ++i) {
            const bool seen      = i < n_kv && (i >= hidden || i == n_kv - 1) && (rng() % 8 || i == n_kv - 1);
            mask[r * padded + i] = seen ? (rng() % 2 ? 0 : ggml_fp32_to_fp16(-1.5f)) : 0xfc00;
        }
    }
    const auto run = [&](int first, int rows, int64_t positions, bool sinks) {
        std::vector<float> out(dv * rows, NAN);
        Attention          t{};
        t.dk = dk, t.dv = dv, t.n_kv = positions, t.scale = 0.2f, t.rows = rows;
        t.k = (const uint8_t *) k.data(), t.v = (const uint8_t *) v.data();
        t.k_stride = 2 * dk, t.v_stride = 2 * dv;
        for (int r = 0; r < rows; ++r) {
            t.q[r]     = &q[(first + r) * dk];
            t.mask[r]  = (const uint8_t *) &mask[(first + r) * padded];
            t.slope[r] = 0.5f;
            t.sink[r]  = sinks ? (float) (first + r) - 3 : -INFINITY;
            t.out[r]   = &out[r * dv];
        }
        kernels.attend(t);
        return out;
    };
    for (const bool sinks : {false, true}) {
        for (int r = 0; r < MAX_ROWS; ++r) {
            const auto          alone = run(r, 1, n_kv, sinks);
            std::vector<double> e(n_kv), want(dv, 0.0);
            double              most = sinks ? r - 3 : -INFINITY, total = 0;
            for (int64_t i = 0; i < n_kv; ++i) {
                double dot = 0;
                for (int64_t d = 0; d < dk; ++d) {
                    dot += (double) q[r * dk + d] * ggml_fp16_to_fp32(k[i * dk + d]);
                }
                e[i] = dot * 0.2f + 0.5 * ggml_fp16_to_fp32(mask[r * padded + i]);
                most = e[i] > most ? e[i] : most;
            }
            total = sinks ? std::exp(r - 3 - most) : 0;
            for (int64_t i = 0; i < n_kv; ++i) {
                total += e[i] = std::exp(e[i] - most);
                for (int64_t d = 0; d < dv; ++d) {
                    want[d] += e[i] * ggml_fp16_to_fp32(v[i * dv + d]);
                }
            }
            for (int64_t d = 0; d < dv; ++d) {
                if (!(std::fabs(alone[d] - want[d] / total) <= 2e-5)) {
                    fail("attention is wrong", formats[0], kernels.isa, dk, dv, n_kv);
                    std::printf("  row %d: %.9g, should be %.9g\n", r, (double) alone[d], want[d] / total);
                    return;
                }
            }
            const int  rows  = 1 + (int) (rng() % MAX_ROWS);
            const int  first = r < MAX_ROWS - rows ? r : MAX_ROWS - rows;
            const auto all   = run(first, rows, padded, sinks);
            if (memcmp(&all[(r - first) * dv], alone.data(), dv * sizeof(float)) != 0) {
                fail("attention depends on its batch", formats[0], kernels.isa, dk, dv, n_kv);
                return;
            }
        }
    }
}

} // namespace

int main(int argc, char ** argv) {
    const unsigned seed = argc > 1 ? (unsigned) std::atoi(argv[1]) : 1;
    std::mt19937   rng(seed);
    for (const Kernels * const * k = usable_kernels(); *k; ++k) {
        check_quantize(**k, rng);
        for (int i = 0; i < 8; ++i) {
            check_attention(**k, rng);
        }
    }
    for (const Format & f : formats) {
        const int64_t unit = ggml_blck_size(f.type) > BLOCK ? ggml_blck_size(f.type) : BLOCK;
        for (int fill : {-1, -1, 0x00, 0xff, 0x55}) {
            const Matrix w = make(f, unit * (1 + rng() % 4), 1 + rng() % 40, rng, fill);
            check_lossless(f, w);
            check_unpacked(f, w);
        }
        for (const Kernels * const * k = usable_kernels(); *k; ++k) {
            check_products(**k, f, make(f, unit * (1 + rng() % 5), 1 + rng() % 70, rng, -1), rng, 16);
            check_products(**k, f, make(f, unit * 3, 48, rng, 0xff), rng, 5);
            check_products(**k, f, make(f, unit, 1, rng, 0x00), rng, 9);
        }
    }
    int sets = 0;
    for (const Kernels * const * k = usable_kernels(); *k; ++k, ++sets) {
        std::printf("%s ", (*k)->isa);
    }
    std::printf("(chosen: %s), %d formats: %s\n", chosen_kernels() ? chosen_kernels()->isa : "none", N_FORMATS,
                failures ? "FAILED" : "all right");
    return failures ? 1 : 0;
}
