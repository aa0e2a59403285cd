// SR-HPM: opt-in relaxed acceptance. A drafted token counts as right when the target's raw logit for
// it is within X nats of the best one: the model was nearly indifferent. 0 is exact.
//
// (A gap between logits is the gap between log-probabilities: the normaliser is common to both.)
#pragma once

#include "common.h"
#include "sampling.h"
#include "srhpm-report.h"

#include <vector>

namespace srhpm {

// X in nats; 0 switches relaxed acceptance off.
float & relax_nats();

// Whether relaxed acceptance applies to a request with these sampling parameters. Where it does not,
// `counts` keeps the reason.
bool relax_applies(const common_params_sampling & sampling, draft_counts & counts);

// Relaxed form of common_sampler_sample_and_accept_n: `idxs[i]` is the output row that predicts
// draft[i], one more row follows the last. Returns the accepted tokens and the next one; `counts`
// gets the number of tokens that only the relaxation let through.
//
// The rule looks at nothing but the logits, so a replay after a rollback decides alike; `is_replay`
// keeps its tokens from being counted twice.
std::vector<llama_token> sample_and_accept_relaxed(common_sampler * sampler, llama_context * ctx,
                                                   const std::vector<int> & idxs, const std::vector<llama_token> & draft,
                                                   bool is_replay, draft_counts & counts);

} // namespace srhpm
