// SR-HPM: a simple drafter keeps what it has computed of its own draft.
//
// Upstream drops the draft from the drafter's context and decodes all verified tokens there once
// more: one more pass over the drafter in every cycle. Its rows of accepted tokens are those that
// it made while drafting, though, as a row does not depend on what is computed beside it. So they
// stay, and the one token that no drafting pass has read (the last of a full draft) waits for the
// next draft's first pass.
//
// SRHPM_DRAFTER_ROWS=twice restores upstream's way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

struct llama_context;

namespace srhpm {

// The draft of one drafter's context, sequence by sequence.
class Drafted {
public:
    Drafted() = default;
    ~Drafted();
    Drafted(const Drafted &)             = delete;
    Drafted & operator=(const Drafted &) = delete;

    // A target batch is to be decoded by the drafter: may entry k be left out?
    template <class Batch> bool leave_out(llama_context * ctx, const Batch & batch, int32_t k) {
        const auto & tokens = batch.tokens;
        const auto & t      = tokens[k];
        if (t.id < 0 || !t.seq_ids_extra.empty()) {
            return false; // an image or a sound, or shared by slots
        }
        const auto same = [&](int32_t i) { return tokens[i].seq_id == t.seq_id; };
        int32_t before = k - 1, after = k + 1;
        while (before >= 0 && !same(before)) {
            before--;
        }
        while (after < (int32_t) tokens.size() && !same(after)) {
            after++;
        }
        return leave_out(ctx, t.seq_id, t.id, t.pos[0], before < 0, after == (int32_t) tokens.size());
    }

    // A draft begins at position `pos`: the token that waits joins its first batch.
    template <class Batch> void begin(llama_context * ctx, Batch & batch, int32_t seq, int32_t pos) {
        auto & s       = begin(ctx, seq);
        n_extra_before = 0;
        s.n_extra      = waits(ctx, seq, pos) ? 1 : 0;
        if (s.n_extra) {
            batch.add(s.waiting, pos - 1, seq, false);
        }
        s.waiting = -1;
    }

    // How many rows of waiting tokens lie before the row of `seq` in the batch of step `step`; asked
    // in the order of the sequences, as they were added.
    int32_t extra_rows(int32_t seq, int step);

    // A drafted token goes into the drafter's next pass.
    void decoded(int32_t seq, int32_t token) { of(seq).draft.push_back(token); }

    // How many rows of the draft stay in the drafter's context until it is verified.
    size_t rows(int32_t seq, const std::vector<int32_t> & verified) const;

    // Decodes a token that waits right before `pos`.
    void settle(llama_context * ctx, int32_t seq, int32_t pos);

private:
    struct Sequence {
        std::vector<int32_t> draft;         // tokens that it has passed through the drafter
        int32_t              waiting = -1;  // verified, not yet decoded by the drafter
        int32_t              n_extra = 0;   // rows of it in the first batch of this draft
        bool                 cached  = false; // the entry before in this target batch was left out
    };

    Sequence & of(int32_t seq);
    Sequence & begin(llama_context * ctx, int32_t seq);
    bool       waits(llama_context * ctx, int32_t seq, int32_t pos) const;
    bool leave_out(llama_context * ctx, int32_t seq, int32_t token, int32_t pos, bool first, bool last);

    std::vector<Sequence> sequences;
    int32_t               n_extra_before = 0;
    llama_context *       known = nullptr; // registered under this context
};

// Of the drafter with this context; 0 where nothing is kept.
size_t rows_kept(llama_context * ctx, int32_t seq, const std::vector<int32_t> & verified);

// A sequence rests, `pos` tokens long: nothing of it may wait.
void settle_drafter(llama_context * ctx, int32_t seq, int32_t pos);

} // namespace srhpm
