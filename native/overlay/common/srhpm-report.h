// SR-HPM: speculation is never silently off. Each request's timings say which drafter proposed how
// many tokens, how many were accepted at each position, or why nothing was drafted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

struct common_params_speculative;

namespace srhpm {

// Counters of one request. Copied with every partial result, so it stays small and flat.
struct draft_counts {
    static constexpr size_t n_positions = 16; // later positions are added to the last

    std::array<uint32_t, n_positions> drafted_at{};
    std::array<uint32_t, n_positions> accepted_at{};

    uint32_t n_passes  = 0;       // verify passes
    uint32_t n_relaxed = 0;       // accepted only because of --relax
    int32_t  ahead     = 0;       // tokens of this pass that are accepted but not yet handed out
    const char * off       = nullptr; // why this request drafted nothing; a literal
    const char * relax_off = nullptr; // why --relax did not apply to it; a literal

    void drafted(size_t n);
    void accepted(size_t n);

    // One JSON object as text: upstream's JSON type differs between the tags we support.
    std::string to_json() const;
};

// Called once per loaded model: speculation works, or why it does not.
void speculation_on(const common_params_speculative & params);
void speculation_off(const std::string & reason);

} // namespace srhpm
