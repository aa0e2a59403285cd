#include "srhpm-relax.h"

#include "llama.h"

namespace srhpm {

float & relax_nats() {
    static float nats = 0.0f;
    return nats;
}

bool relax_applies(const common_params_sampling & s, draft_counts & counts) {
    if (relax_nats() <= 0.0f) {
        return false;
    }
    // The rule compares raw logits. It means something only where the target would take their
    // maximum; whatever changes or forbids tokens in between would be bypassed.
    if (s.temp > 0.0f || s.mirostat != 0) {
        counts.relax_off = "sampling is not greedy";
    } else if (!s.grammar.empty() || !s.grammar_triggers.empty()) {
        counts.relax_off = "a grammar constrains the output";
    } else if (s.backend_sampling) {
        counts.relax_off = "tokens are sampled on the backend";
    } else if (s.xtc_probability > 0.0f || s.typ_p < 1.0f) {
        // these samplers may remove the best token itself
        counts.relax_off = "a sampler may remove the best token";
    } else if (s.penalty_repeat != 1.0f || s.penalty_freq != 0.0f || s.penalty_present != 0.0f ||
               s.dry_multiplier != 0.0f || !s.logit_bias.empty() || s.ignore_eos) {
        counts.relax_off = "penalties or biases change the logits";
    } else if (s.reasoning_budget_tokens >= 0) {
        counts.relax_off = "a reasoning budget forces tokens";
    } else {
        return true;
    }
    return false;
}

std::vector<llama_token> sample_and_accept_relaxed(common_sampler * sampler, llama_context * ctx,
                                                   const std::vector<int> & idxs, const std::vector<llama_token> & draft,
                                                   bool is_replay, draft_counts & counts) {
    GGML_ASSERT(idxs.size() == draft.size() + 1);

    const llama_vocab * vocab = llama_model_get_vocab(llama_get_model(ctx));

    std::vector<llama_token> result;
    result.reserve(idxs.size());
    for (size_t i = 0; i < idxs.size(); ++i) {
        llama_token id = common_sampler_sample(sampler, ctx, idxs[i], false);
        const bool last = i == draft.size();
        // An answer must not end early on a near miss, so an end token is only taken when it is best.
        if (!last && draft[i] != id && !llama_vocab_is_eog(vocab, draft[i])) {
            const float * logits = llama_get_logits_ith(ctx, idxs[i]);
            if (logits && logits[id] - logits[draft[i]] <= relax_nats()) {
                id = draft[i];
                counts.n_relaxed += !is_replay;
            }
        }
        common_sampler_accept(sampler, id, true);
        result.push_back(id);
        // A replayed draft ends with a token the target chose itself: that one may be an end token.
        if (last || draft[i] != id || (llama_vocab_is_eog(vocab, id) && i + 1 < draft.size())) {
            break;
        }
    }
    return result;
}

} // namespace srhpm
