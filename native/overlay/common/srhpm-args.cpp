#include "srhpm-args.h"

#include "srhpm-draft.h"
#include "srhpm-relax.h"

#include <cmath>
#include <stdexcept>
#include <string>

namespace srhpm {

namespace {

float parse_nats(const std::string & text) {
    size_t end = 0;
    float  value = 0.0f;
    try {
        value = std::stof(text, &end);
    } catch (const std::exception &) {
        end = 0;
    }
    if (end == 0 || end != text.size() || !std::isfinite(value) || value < 0.0f) {
        throw std::invalid_argument("must be a number of nats, 0 or more");
    }
    return value;
}

} // namespace

void add_args(const std::function<void(common_arg)> & add) {
    add(common_arg({ "--srhpm-draft-n-min" }, "N",
                   "always propose N tokens, apply --spec-draft-p-min only beyond them "
                   "(default: 0 = apply it to every token)",
                   [](common_params &, int value) {
                       if (value < 0) {
                           throw std::invalid_argument("must be 0 or more");
                       }
                       policy().n_min = value;
                   })
            .set_spec()
            .set_examples({ LLAMA_EXAMPLE_SERVER })
            .set_env("SRHPM_DRAFT_N_MIN"));
    add(common_arg({ "--srhpm-draft-lengths" }, "{any,two}",
                   "draft lengths to use: any, or two = only --srhpm-draft-n-min and --spec-draft-n-max, "
                   "which keeps compute graphs reusable (default: any)",
                   [](common_params &, const std::string & value) {
                       if (value != "any" && value != "two") {
                           throw std::invalid_argument("must be any or two");
                       }
                       policy().two_lengths = value == "two";
                   })
            .set_spec()
            .set_examples({ LLAMA_EXAMPLE_SERVER })
            .set_env("SRHPM_DRAFT_LENGTHS"));
    add(common_arg({ "--srhpm-pass-tokens" }, "N",
                   "slots that decode at once verify about N tokens together: each drafts less, or nothing "
                   "(default: 0 = no limit)",
                   [](common_params &, int value) {
                       if (value < 0) {
                           throw std::invalid_argument("must be 0 or more");
                       }
                       policy().pass_tokens = value;
                   })
            .set_spec()
            .set_examples({ LLAMA_EXAMPLE_SERVER })
            .set_env("SRHPM_PASS_TOKENS"));
    add(common_arg({ "--relax" }, "X",
                   "also accept a drafted token whose logit is within X nats of the best one; "
                   "greedy sampling without grammar only (default: 0 = exact)",
                   [](common_params &, const std::string & value) { relax_nats() = parse_nats(value); })
            .set_spec()
            .set_examples({ LLAMA_EXAMPLE_SERVER })
            .set_env("SRHPM_RELAX"));
}

} // namespace srhpm
