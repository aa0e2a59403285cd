#include "srhpm-report.h"

#include "common.h"
#include "log.h"
#include "speculative.h"
#include "srhpm-draft.h"
#include "srhpm-relax.h"

#include <algorithm>
#include <cstdio>

namespace srhpm {

namespace {

struct speculation_state {
    std::string type = "none";
    std::string off  = "no drafter was given";
    int32_t n_max    = 0;
    float   p_min    = 0.0f;
};

speculation_state & state() {
    static speculation_state instance;
    return instance;
}

void count_up_to(std::array<uint32_t, draft_counts::n_positions> & at, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        at[std::min(i, at.size() - 1)]++;
    }
}

// Counts as a JSON list without the zeros behind the last drafted position.
std::string list(const std::array<uint32_t, draft_counts::n_positions> & at, size_t n) {
    std::string out = "[";
    for (size_t i = 0; i < n; ++i) {
        out += (i ? "," : "") + std::to_string(at[i]);
    }
    return out + "]";
}

// A JSON string. Reasons are our own words or upstream's messages, which may quote file names.
std::string quote(const std::string & text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if ((unsigned char) c < 0x20) {
            out += ' ';
        } else {
            out += c;
        }
    }
    return out + "\"";
}

std::string number(float value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.6g", value);
    return text;
}

} // namespace

void speculation_on(const common_params_speculative & params) {
    auto & s = state();
    // upstream's list starts with "none" unless --spec-type came before it
    auto types = params.types;
    types.erase(std::remove(types.begin(), types.end(), COMMON_SPECULATIVE_TYPE_NONE), types.end());
    s.type  = common_speculative_type_name_str(types);
    s.off   = "";
    s.n_max = common_speculative_n_max(&params); // of the drafter in use, n-grams have their own
    s.p_min = params.draft.p_min;
    LOG_INF("srhpm: speculation on: %s, always %d, up to %d tokens, p_min %.2f, relax %.2f\n", s.type.c_str(),
            policy().n_min, s.n_max, s.p_min, relax_nats());
}

void speculation_off(const std::string & reason) {
    auto & s = state();
    s.type = "none";
    s.off  = reason;
    LOG_INF("srhpm: speculation off: %s\n", reason.c_str());
}

void draft_counts::drafted(size_t n) {
    count_up_to(drafted_at, n);
    n_passes += n > 0;
}

void draft_counts::accepted(size_t n) {
    count_up_to(accepted_at, n);
}

std::string draft_counts::to_json() const {
    const auto & s = state();
    std::string out = "{\"type\":" + quote(s.type);
    if (!s.off.empty()) {
        return out + ",\"off\":" + quote(s.off) + "}";
    }
    size_t   n          = 0;
    uint64_t n_drafted  = 0;
    uint64_t n_accepted = 0;
    for (size_t i = 0; i < n_positions; ++i) {
        n_drafted  += drafted_at[i];
        n_accepted += accepted_at[i];
        n           = drafted_at[i] ? i + 1 : n;
    }
    out += ",\"n_min\":" + std::to_string(policy().n_min);
    out += ",\"n_max\":" + std::to_string(s.n_max);
    out += ",\"p_min\":" + number(s.p_min);
    out += ",\"passes\":" + std::to_string(n_passes);
    out += ",\"drafted\":" + std::to_string(n_drafted);
    out += ",\"accepted\":" + std::to_string(n_accepted);
    out += ",\"drafted_per_position\":" + list(drafted_at, n);
    out += ",\"accepted_per_position\":" + list(accepted_at, n);
    if (n_drafted == 0) {
        out += ",\"off\":" + quote(off ? off : "the drafter proposed nothing");
    }
    if (relax_nats() > 0.0f) {
        out += ",\"relax\":" + number(relax_nats());
        out += ",\"relaxed\":" + std::to_string(n_relaxed);
        if (relax_off) {
            out += ",\"relax_off\":" + quote(relax_off);
        }
    }
    return out + "}";
}

} // namespace srhpm
