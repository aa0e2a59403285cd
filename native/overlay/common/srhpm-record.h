// SR-HPM: the file in which a server that a host started says how it fares. srhpm_plugin/dropin/records.py
// names it in SRHPM_RECORD and reads it; without that variable nothing here does anything.
#pragma once

#include <cstdint>

namespace srhpm {

// First thing in main: state "loading". From here on an exit or a crash is written down as "failed" and a
// request to stop as "stopped", as long as the model is not ready.
void record_start();

// What is being done while loading; a literal. Part of the reason for a failure.
void record_step(const char * step);

// A message of llama.cpp's or ggml's log; the last error is part of the reason for a failure. `level` is
// ggml's.
void record_line(int level, const char * text);

void record_ready();

// One answer: tokens generated in `ms`, and what the drafter proposed for it.
void record_answer(uint64_t n_tokens, double ms, uint64_t n_drafted, uint64_t n_accepted);

} // namespace srhpm
