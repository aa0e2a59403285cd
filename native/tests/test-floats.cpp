// The kernels over weights that are floats (F32, F16, BF16), for every instruction set that this
// machine has, with any number of rows and weights, of rows that are parts of longer ones:
//   * a product is right within float rounding of a double sum;
//   * column j of M columns equals the column computed alone, bit for bit, for M in 1..16, however
//     the rows are shared out;
//   * what lies beside weights and results is neither used nor written.
// test-floats [SEED] fuzzes shapes with that seed.

#include "ggml.h"
#include "kernels.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

using namespace srhpm;

namespace {

constexpr int64_t MOST = 16;

int failures = 0;

size_t bytes_of(ggml_type type, int64_t n) {
    return ggml_row_size(type, n);
}

struct Case {
    const Kernels *                 kernels;
    ggml_type                       type;
    int64_t                         k, rows;
    size_t                          stride;
    std::vector<uint8_t>            weights; // ends with the last weight
    std::vector<float>              values;
    std::vector<std::vector<float>> x;

    Case(const Kernels * kernels, ggml_type type, int64_t k, int64_t rows, int64_t apart, std::mt19937 & rng)
        : kernels(kernels), type(type), k(k), rows(rows), stride(bytes_of(type, k + apart)), values(k * rows) {
        std::normal_distribution<float> normal(0, 1);
        weights.assign((rows - 1) * stride + bytes_of(type, k), 0xff); // not numbers
        for (int64_t i = 0; i < k * rows; ++i) {
            float         v  = std::ldexp(normal(rng), (int) (rng() % 20) - 19); // small halves are subnormal
            uint8_t *     to = &weights[i / k * stride + bytes_of(type, i % k)];
            if (type == GGML_TYPE_F16) {
                const ggml_fp16_t h = ggml_fp32_to_fp16(v);
                memcpy(to, &h, sizeof(h));
                v = ggml_fp16_to_fp32(h);
            } else if (type == GGML_TYPE_BF16) {
                const ggml_bf16_t b = ggml_fp32_to_bf16(v);
                memcpy(to, &b, sizeof(b));
                v = ggml_bf16_to_fp32(b);
            } else {
                memcpy(to, &v, sizeof(v));
            }
            values[i] = v;
        }
        x.assign(MOST, std::vector<float>(k));
        for (auto & column : x) {
            for (auto & v : column) {
                v = normal(rng);
            }
        }
    }

    void fail(const char * what, int64_t m) const {
        std::printf("FAILED %s: %s %s k=%lld rows=%lld stride=%zu m=%lld\n", what, ggml_type_name(type), kernels->isa,
                    (long long) k, (long long) rows, stride, (long long) m);
        failures++;
    }

    // Products of columns [first, first + n), panels shared out `share` at a time.
    std::vector<float> multiply(int64_t first, int64_t n, int64_t share) const {
        constexpr float            BESIDE = 12345.0f;
        std::vector<float>         out(n * (rows + 1), BESIDE);
        std::vector<const float *> columns;
        std::vector<float *>       to;
        for (int64_t j = 0; j < n; ++j) {
            columns.push_back(x[first + j].data());
            to.push_back(&out[j * (rows + 1)]);
        }
        const FloatProduct p{weights.data(), stride, k, rows, columns.data(), to.data(), n};
        const int64_t      panels = (rows + ROWS - 1) / ROWS;
        for (int64_t i = 0; i < panels; i += share) {
            kernels->multiply_floats[float_index(type)](p, i, i + share < panels ? i + share : panels);
        }
        for (int64_t j = 0; j < n; ++j) {
            if (out[j * (rows + 1) + rows] != BESIDE) {
                fail("wrote beyond a column", n);
            }
        }
        return out;
    }

    bool right(const std::vector<float> & got, int64_t column) const {
        for (int64_t r = 0; r < rows; ++r) {
            double want = 0, size = 0;
            for (int64_t i = 0; i < k; ++i) {
                const double term = (double) values[r * k + i] * x[column][i];
                want += term;
                size += std::fabs(term);
            }
            // sums of 4 or more parts, each rounded at most twice a term
            if (!(std::fabs(got[r] - want) <= size * 0x1p-23 * (double) (k / 4 + 4))) {
                std::printf("  row %lld: %.9g, should be %.9g\n", (long long) r, (double) got[r], want);
                return false;
            }
        }
        return true;
    }

    void check(std::mt19937 & rng) const {
        std::vector<std::vector<float>> alone;
        for (int64_t j = 0; j < MOST; ++j) {
            alone.push_back(multiply(j, 1, 1 + rng() % 4));
            if (!right(alone[j], j)) {
                return fail("product is wrong", 1);
            }
        }
        for (int64_t m = 2; m <= MOST; ++m) {
            const int64_t first = rng() % (MOST - m + 1);
            const auto    all   = multiply(first, m, 1 + rng() % 4);
            for (int64_t j = 0; j < m; ++j) {
                if (memcmp(&all[j * (rows + 1)], alone[first + j].data(), rows * sizeof(float)) != 0) {
                    return fail("column depends on its batch", m);
                }
            }
        }
    }
};

} // namespace

int main(int argc, char ** argv) {
    std::mt19937 rng(argc > 1 ? (unsigned) std::atoi(argv[1]) : 1);
    std::string  sets;
    for (const Kernels * const * kernels = usable_kernels(); *kernels; ++kernels) {
        sets += (*kernels)->isa + std::string(" ");
        for (const ggml_type type : float_types) {
            Case(*kernels, type, 1, 1, 0, rng).check(rng);
            Case(*kernels, type, 64, 16, 0, rng).check(rng);
            Case(*kernels, type, 4099, 3, 0, rng).check(rng);
            for (int i = 0; i < 6; ++i) {
                const int64_t k = i % 2 ? 32 * (1 + rng() % 12) : 1 + rng() % 300;
                Case(*kernels, type, k, 1 + rng() % 70, rng() % 2 ? 0 : rng() % 50, rng).check(rng);
            }
        }
    }
    std::printf("%sfor floats: %s\n", sets.c_str(), failures ? "FAILED" : "all right");
    return failures ? 1 : 0;
}
