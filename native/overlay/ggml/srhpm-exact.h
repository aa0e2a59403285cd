// SR-HPM: keeping a column's result independent of the batch it is computed in.
//
// Greedy speculative decoding equals plain decoding only if the logits of token j in a verify pass
// of M tokens equal those of a pass over that token alone, bit for bit. Upstream picks code paths
// by batch size that sum in different orders:
//   * tiled matmul from 8 columns on,
//   * float matmul through sgemm from 2 columns on,
//   * attention split over the KV cache for exactly 1 query.
// SRHPM_EXACT=N keeps every batch of up to N columns off those paths. Prompts are longer than N
// and stay on them. Unset or 0: upstream's choice.
#pragma once

#include <cstdint>
#include <cstdlib>

// Upper bound of the batch sizes that must be batch-size independent; 0 when switched off.
static inline int64_t srhpm_exact_columns() {
    static const int64_t columns = [] {
        const char * text = std::getenv("SRHPM_EXACT");
        const long long value = text ? std::strtoll(text, nullptr, 10) : 0;
        return value > 0 ? (int64_t) value : (int64_t) 0;
    }();
    return columns;
}

// Whether an operation over `columns` columns must give each column its 1-column result.
static inline bool srhpm_exact(int64_t columns) {
    return columns <= srhpm_exact_columns();
}
