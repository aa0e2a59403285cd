// The speculation policy without a model: when a draft may end, what the report says, when relaxed
// acceptance applies.

#include "common.h"
#include "srhpm-draft.h"
#include "srhpm-relax.h"
#include "srhpm-report.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

int n_failed = 0;

void expect(bool ok, const char * what) {
    if (!ok) {
        std::printf("failed: %s\n", what);
        n_failed++;
    }
}

bool contains(const std::string & text, const std::string & part) {
    return text.find(part) != std::string::npos;
}

void test_draft_length() {
    auto & p = srhpm::policy();
    p = {};
    expect(srhpm::may_stop(0), "without n_min a draft may end at once, as upstream's");
    p.n_min = 3;
    expect(!srhpm::may_stop(0) && !srhpm::may_stop(2), "doubt does not end a draft before n_min");
    expect(srhpm::may_stop(3) && srhpm::may_stop(5), "doubt ends a draft from n_min on");
    p.two_lengths = true;
    expect(srhpm::may_stop(3) && !srhpm::may_stop(4), "two lengths: end at n_min or go on to n_max");
    p = {};
}

void test_room() {
    auto &       p   = srhpm::policy();
    const char * off = nullptr;
    p = {};
    expect((srhpm::room_beside(9, off) & 7) == 7 && !off, "no limit unless one is asked for");
    p.pass_tokens = 8;
    expect((srhpm::room_beside(1, off) & 15) == 15 && !off, "a slot alone drafts as it likes");
    expect((srhpm::room_beside(2, off) & 7) == 3 && !off, "two slots: 4 tokens each");
    expect((srhpm::room_beside(3, off) & 7) == 2 && !off, "three slots: 3 tokens each");
    expect((srhpm::room_beside(2, off) & 1) == 1, "no more than there is room for in the context");
    expect((srhpm::room_beside(4, off) & 7) == 0 && off, "four slots: nothing, and that is said");
    off = nullptr;
    expect((srhpm::room_beside(99, off) & 7) == 0 && off, "many slots: nothing");
    p = {};
}

void test_report() {
    srhpm::speculation_off("a \"quoted\"\nreason");
    expect(srhpm::draft_counts{}.to_json() == "{\"type\":\"none\",\"off\":\"a \\\"quoted\\\" reason\"}",
           "a reason becomes one JSON string");

    common_params_speculative params;
    params.types       = { COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE };
    params.draft.n_max = 7;
    srhpm::speculation_on(params);
    srhpm::draft_counts counts;
    expect(contains(counts.to_json(), "\"off\":\"the drafter proposed nothing\""), "no draft is said");
    counts.drafted(3);
    counts.accepted(2);
    counts.drafted(0);
    counts.drafted(5);
    counts.accepted(0);
    const auto json = counts.to_json();
    expect(contains(json, "\"drafted_per_position\":[2,2,2,1,1]"), "drafted per position");
    expect(contains(json, "\"accepted_per_position\":[1,1,0,0,0]"), "accepted per position");
    expect(contains(json, "\"drafted\":8,\"accepted\":2"), "totals");
    expect(contains(json, "\"passes\":2"), "an empty draft is no verify pass");
    expect(!contains(json, "\"off\""), "speculation that drafted is on");

    srhpm::draft_counts many;
    many.drafted(40);
    uint32_t n = 0;
    for (auto x : many.drafted_at) {
        n += x;
    }
    expect(n == 40, "positions beyond the table are kept in its last entry");
}

void test_relax() {
    common_params_sampling greedy;
    greedy.temp = 0.0f;
    srhpm::draft_counts counts;
    srhpm::relax_nats() = 0.0f;
    expect(!srhpm::relax_applies(greedy, counts) && !counts.relax_off, "0 nats is off without a word");
    srhpm::relax_nats() = 0.5f;
    expect(srhpm::relax_applies(greedy, counts), "greedy requests are relaxed");

    auto refused = [](common_params_sampling s) {
        srhpm::draft_counts c;
        return !srhpm::relax_applies(s, c) && c.relax_off;
    };
    auto s = greedy;
    s.temp = 0.7f;
    expect(refused(s), "not with sampling");
    s = greedy;
    s.grammar = common_grammar(COMMON_GRAMMAR_TYPE_USER, "root ::= \"a\"");
    expect(refused(s), "not with a grammar");
    s = greedy;
    s.backend_sampling = true;
    expect(refused(s), "not with backend sampling");
    s = greedy;
    s.penalty_repeat = 1.1f;
    expect(refused(s), "not with penalties");
    srhpm::relax_nats() = 0.0f;
}

} // namespace

int main() {
    test_draft_length();
    test_room();
    test_report();
    test_relax();
    std::printf("%d failed\n", n_failed);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
