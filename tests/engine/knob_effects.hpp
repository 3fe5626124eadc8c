// SPDX-License-Identifier: MIT

// What each knob does, as its policy's test tells: two of its values, a situation in which they
// differ in what can be seen from outside, and in which direction. test_policy_knobs.cpp runs the
// entries; a policy's own test file has them:
//
//     const test::RegisterEffects effects{
//         "nbt", base, {{"hot_threshold", 1.0, 2.0, Then::more, promoted}}};
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fake_memory.hpp"

namespace tt::test {

// A base page, in units of knobs.
inline constexpr double page_mib = 4.0 / 1024;
inline constexpr double page_gib = page_mib / 1024;

enum class Then : std::uint8_t { less, more, differs };

struct Entry {
  std::string knob;
  KnobValue from, to;
  Then then;  // how the observation changes from the first value to the second
  std::function<double(Rig&)> observe;
  KnobMap others = {};  // as the policy sees them: scaled
  std::uint64_t page_bytes = 4096;
  bool mapped = true;  // 20 fast pages 0..19, 80 slow ones, before `observe`
};

struct Effects {
  KnobMap base;  // what each entry starts from, scaled
  std::vector<Entry> entries;
};

/// Those of all policies, by name.
[[nodiscard]] inline std::map<std::string, Effects>& effects() {
  static std::map<std::string, Effects> all;
  return all;
}

struct RegisterEffects {
  RegisterEffects(std::string policy, KnobMap base, std::vector<Entry> entries) {
    effects()[std::move(policy)] = {std::move(base), std::move(entries)};
  }
};

[[nodiscard]] inline KnobMap with(KnobMap base, const KnobMap& more) {
  for (auto& [name, value] : more) base.insert_or_assign(name, value);
  return base;
}
[[nodiscard]] inline std::int64_t whole(std::int64_t value) { return value; }
[[nodiscard]] inline std::vector<std::uint64_t> span_of(std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> pages;
  for (std::uint64_t i = 0; i < count; ++i) pages.push_back(first + i);
  return pages;
}
[[nodiscard]] inline double demotions(const Rig& r) {
  return static_cast<double>(r.memory.queued(Tier::slow).size());
}
[[nodiscard]] inline double promotions(const Rig& r) {
  return static_cast<double>(r.memory.queued(Tier::fast).size());
}
[[nodiscard]] inline std::vector<Entry> joined(std::vector<Entry> all,
                                               const std::vector<Entry>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
template <typename... Lists>
[[nodiscard]] std::vector<Entry> joined(std::vector<Entry> all, const std::vector<Entry>& more,
                                        const Lists&... rest) {
  return joined(joined(std::move(all), more), rest...);
}

/// Samples that a policy asks for, and what each choice of sampling_events splits their frequency
/// into, as a number.
[[nodiscard]] inline double load_rate(const Rig& r) { return r.memory.sampling.back().loads.value; }
[[nodiscard]] inline double load_events(const Rig& r) {
  const auto& loads = r.memory.sampling.back().loads;
  return 1.0 + loads.by_tier + 2 * loads.by_core;
}
[[nodiscard]] inline std::vector<Entry> frequency_entries() {
  const auto choice = [](const char* value) { return KnobValue{std::string{value}}; };
  return {{"sampling_frequency", 1e4, 1e5, Then::more, load_rate},
          {"sampling_events", choice("system"), choice("tier"), Then::more, load_events},
          {"sampling_events", choice("tier"), choice("tier_and_core"), Then::more, load_events}};
}

}  // namespace tt::test
