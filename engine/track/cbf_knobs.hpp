// SPDX-License-Identifier: MIT

// The knobs of a counting Bloom filter and of thresholds on its counts, shared by the systems that
// count in one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/knob.hpp"
#include "track/cbf.hpp"

namespace tt::track {

/// cbf_error, cbf_hashes, cbf_counter_bits, cbf_counters_per_fast_page, for a system that uses so
/// many hash functions by default. Its sources: of error and hash functions, of the counter width,
/// of the size per page. `width_note` is appended to the meaning of cbf_counter_bits.
[[nodiscard]] std::vector<KnobDecl> cbf_knobs(std::int64_t hashes, const std::string& sizing,
                                              const std::string& width, const std::string& size,
                                              const std::string& width_note = "");

/// What these knobs ask of a filter for the pages of the fast tier, `smaller` times smaller. The
/// rest of CbfOptions has its defaults.
[[nodiscard]] CbfOptions cbf_options(const Knobs& knobs, double fast_pages, double smaller,
                                     std::uint64_t seed);

/// A threshold that is compared with counts of such a filter. The meaning gets a note on its limit.
[[nodiscard]] KnobDecl threshold_knob(std::string name, std::int64_t initial, std::string source,
                                      const std::string& meaning);

/// The value of a threshold on counts of `filter`. Throws std::invalid_argument, naming the knob,
/// if the filter's counters cannot reach it.
[[nodiscard]] std::uint32_t threshold(const Knobs& knobs, std::string_view name,
                                      const Tracker& filter);

}  // namespace tt::track
