// SR-HPM: from ggml's weight blocks to the kernels' panels and back, without loss.
#pragma once

#include "format.h"

namespace srhpm {

// Bytes of `rows` packed rows of k weights.
size_t packed_size(const Format & f, int64_t k, int64_t rows);

// Whether rows of k weights of this type can be packed: K a multiple of the type's own block.
bool packable(ggml_type type, int64_t k);

// Packs panels [first, last) of a matrix of `rows` rows of k weights. `from` is the matrix in ggml's
// layout, `to` the packed one. Rows that fill up the last panel have scale 0.
void pack(const Format & f, const void * from, int64_t k, int64_t rows, int64_t first, int64_t last, uint8_t * to);

// Packing undone, byte for byte: writes the first `rows` rows (up to 16) of a panel, k weights each, in
// ggml's layout. `to` is 4-byte aligned. Scales of NVFP4 with a sign, or NaN, which no encoder writes,
// come back as the one of equal value.
void unpack(const Format & f, const uint8_t * panel, int64_t k, int rows, uint8_t * to);

// Writes the k weights of one row of a packed matrix as floats, for tests.
void unpack_row(const Format & f, const uint8_t * packed, int64_t k, int64_t row, float * to);

} // namespace srhpm
