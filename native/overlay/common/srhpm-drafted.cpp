#include "srhpm-drafted.h"

#include "llama.h"

#include <cstdlib>
#include <cstring>
#include <map>

namespace srhpm {

namespace {

std::map<llama_context *, Drafted *> & drafters() {
    static std::map<llama_context *, Drafted *> instance;
    return instance;
}

bool twice() {
    const char * asked = std::getenv("SRHPM_DRAFTER_ROWS");
    return asked != nullptr && std::strcmp(asked, "twice") == 0;
}

int32_t last_row(llama_context * ctx, int32_t seq) {
    return llama_memory_seq_pos_max(llama_get_memory(ctx), seq);
}

} // namespace

Drafted::~Drafted() {
    if (known) {
        drafters().erase(known);
    }
}

Drafted::Sequence & Drafted::of(int32_t seq) {
    if ((size_t) seq >= sequences.size()) {
        sequences.resize(seq + 1);
    }
    return sequences[seq];
}

Drafted::Sequence & Drafted::begin(llama_context * ctx, int32_t seq) {
    if (!known && !twice()) {
        drafters()[known = ctx] = this;
    }
    auto & s = of(seq);
    s.draft.clear();
    return s;
}

bool Drafted::waits(llama_context * ctx, int32_t seq, int32_t pos) const {
    return sequences[seq].waiting >= 0 && last_row(ctx, seq) + 2 == pos;
}

int32_t Drafted::extra_rows(int32_t seq, int step) {
    if (step > 0) {
        return 0;
    }
    n_extra_before += sequences[seq].n_extra;
    return n_extra_before;
}

size_t Drafted::rows(int32_t seq, const std::vector<int32_t> & verified) const {
    if ((size_t) seq >= sequences.size() || verified.empty()) {
        return 0;
    }
    const auto & draft = sequences[seq].draft;
    size_t n = 0;
    while (n < draft.size() && n < verified.size() && draft[n] == verified[n]) {
        n++;
    }
    return n + 1; // the token that the draft began with
}

bool Drafted::leave_out(llama_context * ctx, int32_t seq, int32_t token, int32_t pos, bool first, bool last) {
    if (!known) {
        return false;
    }
    auto & s = of(seq);
    if (first) {
        settle(ctx, seq, pos);
    }
    const int32_t end   = last_row(ctx, seq);
    const bool    after = !first && s.cached; // what comes before it is there
    s.cached = pos <= end;
    if (s.cached) {
        return true;
    }
    if (after && last && pos == end + 1) {
        s.waiting = token;
        return true;
    }
    return false;
}

void Drafted::settle(llama_context * ctx, int32_t seq, int32_t pos) {
    if ((size_t) seq >= sequences.size()) {
        return;
    }
    if (waits(ctx, seq, pos)) {
        llama_batch one = llama_batch_init(1, 0, 1);
        one.n_tokens     = 1;
        one.token[0]     = sequences[seq].waiting;
        one.pos[0]       = pos - 1;
        one.n_seq_id[0]  = 1;
        one.seq_id[0][0] = seq;
        one.logits[0]    = 0;
        // What it lacks, if this fails, the next decoding of the sequence reports.
        (void) llama_decode(ctx, one);
        llama_batch_free(one);
    }
    sequences[seq].waiting = -1;
}

size_t rows_kept(llama_context * ctx, int32_t seq, const std::vector<int32_t> & verified) {
    const auto found = drafters().find(ctx);
    return found == drafters().end() ? 0 : found->second->rows(seq, verified);
}

void settle_drafter(llama_context * ctx, int32_t seq, int32_t pos) {
    const auto found = drafters().find(ctx);
    if (found != drafters().end()) {
        found->second->settle(ctx, seq, pos);
    }
}

} // namespace srhpm
