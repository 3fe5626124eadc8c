// SPDX-License-Identifier: MIT

#include "track/cbf_knobs.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace tt::track {

std::vector<KnobDecl> cbf_knobs(std::int64_t hashes, const std::string& sizing,
                                const std::string& width, const std::string& size,
                                const std::string& width_note) {
  return knob::list(
      knob::real("cbf_error", 0.001, {0.000001, 0.5, knob::log}, Unit::ratio, sizing,
                 "false-positive rate that a filter is sized for"),
      knob::integer("cbf_hashes", hashes, {1, 8}, Unit::none, sizing,
                    "counters per page in a filter (k)"),
      knob::choice("cbf_counter_bits", {"4", "8", "16"}, width, "width of a counter" + width_note),
      knob::real("cbf_counters_per_fast_page", 0, {0, 256}, Unit::ratio, size,
                 "counters of the frequency filter per fast-tier page; 0: sized by cbf_error"));
}

CbfOptions cbf_options(const Knobs& knobs, double fast_pages, double smaller, std::uint64_t seed) {
  const auto share = [&](double n) {
    return static_cast<std::uint64_t>(std::max(1.0, std::ceil(n / smaller)));
  };
  CbfOptions options;
  options.pages = share(fast_pages);
  options.error = knobs.real("cbf_error");
  options.hashes = static_cast<unsigned>(knobs.integer("cbf_hashes"));
  options.counter_bits = static_cast<unsigned>(std::stoul(knobs.choice("cbf_counter_bits")));
  if (const double per_page = knobs.real("cbf_counters_per_fast_page"); per_page > 0) {
    options.pages = 1;
    options.min_counters = share(per_page * fast_pages);
  }
  options.seed = seed;
  return options;
}

KnobDecl threshold_knob(std::string name, std::int64_t initial, std::string source,
                        const std::string& meaning) {
  return knob::integer(std::move(name), initial, {1, 65535}, Unit::count_per_page,
                       std::move(source), meaning + "; at most what cbf_counter_bits can hold");
}

std::uint32_t threshold(const Knobs& knobs, std::string_view name, const Tracker& filter) {
  const auto value = knobs.integer(name);
  if (value > filter.max_count()) {
    throw std::invalid_argument("knob " + std::string(name) + ": found " + std::to_string(value) +
                                ", allowed up to " + std::to_string(filter.max_count()) +
                                " with cbf_counter_bits " +
                                std::to_string(std::bit_width(filter.max_count())));
  }
  return static_cast<std::uint32_t>(value);
}

}  // namespace tt::track
