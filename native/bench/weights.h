// SR-HPM bench: copies of a weight matrix, and the product of all of them with the same activations.
#pragma once

#include "engine.h"

#include "ggml.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bench {

struct Shape {
    ggml_type type;
    int64_t   cols;
    int64_t   rows;
};

// A matrix of random weights in ggml's layout.
std::vector<uint8_t> random_weights(const Shape & shape, uint32_t seed);

std::vector<float> random_floats(size_t n, uint32_t seed);

// Bytes of one copy in a buffer type.
size_t copy_bytes(const Shape & shape, ggml_backend_buffer_type_t buft);

// `copies` times the same matrix, each in memory of its own.
class Weights {
  public:
    // Throws std::runtime_error where memory does not suffice.
    Weights(const Shape & shape, ggml_backend_buffer_type_t buft, int64_t copies, const std::vector<uint8_t> & data);
    ~Weights();
    Weights(const Weights &)             = delete;
    Weights & operator=(const Weights &) = delete;

    const Shape                shape;
    std::vector<ggml_tensor *> tensors;

  private:
    ggml_context *        ctx;
    ggml_backend_buffer_t buffer;
};

// The graph of the products of the first `copies` copies and m columns.
class Product {
  public:
    Product(const Engine & engine, const Weights & weights, int64_t copies, int64_t m, const float * x);
    ~Product();
    Product(const Product &)             = delete;
    Product & operator=(const Product &) = delete;

    // Milliseconds.
    double run() const { return engine.compute(graph); }

    // The last product's m columns of `rows` floats.
    std::vector<float> result() const;

  private:
    const Engine &        engine;
    ggml_context *        ctx;
    ggml_backend_buffer_t buffer;
    ggml_cgraph *         graph;
};

// Whether column j of every m-column product equals, bit for bit, the product with column j alone.
std::vector<bool> columns_equal(const Engine & engine, const Weights & weights, const std::vector<int> & ms, const float * x);

} // namespace bench
