// Which tensors of a pass over M tokens are not what passes over single tokens compute.
#pragma once

#include "ggml-backend.h"
#include "ggml.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace blame {

// A computed tensor: its shape and its bytes, without gaps.
struct Copy {
    std::string       what; // name, operation and the types of its operands
    int64_t           ne[GGML_MAX_DIMS];
    size_t            element; // in bytes
    std::vector<char> bytes;
};

// The tensors of one pass, in the order they were computed. Names may repeat: `key` tells them apart.
struct Pass {
    std::vector<std::pair<std::string, Copy>> tensors;
    std::map<std::string, int>                seen;
    std::map<std::string, size_t>             index;

    // Not views, which compute nothing, integers and the cache, in which tokens have no dimension, and
    // attention's products with all keys: those of the pass's later tokens are there, and masked only then.
    static bool tells(const ggml_tensor * t) {
        const bool view = t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_PERMUTE ||
                          t->op == GGML_OP_TRANSPOSE || t->op == GGML_OP_NONE;
        return (t->flags & GGML_TENSOR_FLAG_COMPUTE) && t->data && !view && t->type != GGML_TYPE_I32 &&
               !ggml_is_quantized(t->type) && !ggml_is_empty(t) && std::strncmp(t->name, "kq-", 3) != 0;
    }

    void add(const ggml_tensor * t) {
        if (!tells(t)) {
            return;
        }
        std::string what = std::string(t->name) + ": " + ggml_op_desc(t);
        for (int i = 0; i < GGML_MAX_SRC && t->src[i]; ++i) {
            what += std::string(i ? ", " : " of ") + ggml_type_name(t->src[i]->type);
        }
        Copy c{what, {}, ggml_type_size(t->type), {}};
        std::copy_n(t->ne, GGML_MAX_DIMS, c.ne);
        for (int64_t r = 0; r < ggml_nrows(t); ++r) { // what is computed has rows without gaps
            const int64_t i1 = r % t->ne[1], i2 = r / t->ne[1] % t->ne[2], i3 = r / t->ne[1] / t->ne[2];
            c.bytes.resize(c.bytes.size() + t->ne[0] * c.element);
            ggml_backend_tensor_get(t, &c.bytes[r * t->ne[0] * c.element], i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3], t->ne[0] * c.element);
        }
        // a number in the graph is no name: others come before it in other graphs
        std::string key = (std::strncmp(t->name, "node_", 5) ? t->name : "") + std::string(" ") + ggml_op_desc(t);
        key += " " + std::to_string(seen[key]++);
        index[key] = tensors.size();
        tensors.push_back({key, std::move(c)});
    }

    const Copy * find(const std::string & key) const {
        const auto at = index.find(key);
        return at == index.end() ? nullptr : &tensors[at->second].second;
    }
};

// Whether token j of `all` (a pass over m) is `one`. Tensors whose shapes say nothing of tokens count as equal.
inline bool same(const Copy & all, int64_t m, int64_t j, const Copy & one) {
    int dim = -1;
    for (int d = 0; d < GGML_MAX_DIMS; ++d) {
        if (all.ne[d] == one.ne[d]) {
            continue;
        }
        if (dim >= 0 || all.ne[d] != m || one.ne[d] != 1) {
            return true;
        }
        dim = d;
    }
    if (dim < 0) {
        return true;
    }
    int64_t inner = (int64_t) all.element;
    for (int d = 0; d < dim; ++d) {
        inner *= all.ne[d];
    }
    const int64_t outer = (int64_t) one.bytes.size() / inner;
    for (int64_t o = 0; o < outer; ++o) {
        if (std::memcmp(&all.bytes[(o * m + j) * inner], &one.bytes[o * inner], inner) != 0) {
            return false;
        }
    }
    return true;
}

// Prints the first `most` tensors of a pass over m tokens that differ from what passes over the first
// of these alone computed; returns whether any does.
inline bool print(const Pass & all, int64_t m, const std::vector<Pass> & single, int most) {
    int found = 0;
    for (const auto & [key, c] : all.tensors) {
        for (int64_t j = 0; j < (int64_t) single.size(); ++j) {
            const Copy * one = single[j].find(key);
            if (one && !same(c, m, j, *one)) {
                std::printf("  differs at token %d of %d: %s\n", (int) j, (int) m, c.what.c_str());
                found++;
                break;
            }
        }
        if (found == most) {
            break;
        }
    }
    return found > 0;
}

} // namespace blame
