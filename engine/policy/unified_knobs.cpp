// SPDX-License-Identifier: MIT

#include "policy/unified_knobs.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "migrate/demotion_scan.hpp"
#include "migrate/second_chance.hpp"
#include "regulate/harm_gate.hpp"
#include "regulate/intensity.hpp"
#include "regulate/profiling_run.hpp"
#include "track/cbf_knobs.hpp"
#include "track/cooling.hpp"
#include "track/sample_batch.hpp"
#include "track/sampling_knobs.hpp"

namespace tt::unified {
namespace {

KnobValue text(const char* value) { return std::string{value}; }

/// Ours have defaults of their own; the knobs with those of the published systems are preset_*.
constexpr std::array<std::pair<const char*, double>, 3> renewed{
    {{"sampling_frequency", 4e5}, {"frequency_cooling_period", 5}, {"stable_band", 0.02}}};
std::string preset_name(const std::string& name) { return "preset_" + name; }

/// The same declarations, active for these values of `parent`.
std::vector<KnobDecl> only(std::vector<KnobDecl> knobs, const std::string& parent,
                           const std::vector<KnobValue>& values) {
  for (KnobDecl& knob : knobs) knob.condition = KnobCondition{parent, values};
  return knobs;
}

}  // namespace

Knobs expanded(Knobs knobs) {
  const std::string preset = knobs.choice("preset");
  if (preset == "ours") return knobs;
  const bool freqtier = preset == "freqtier";
  for (const auto& [name, ours] : renewed) knobs.set(name, knobs.real(preset_name(name)));
  knobs.set("filters", text(freqtier ? "frequency" : "both"));
  knobs.set("threshold", text(freqtier ? "step" : "fill"));
  knobs.set("second_chance", !freqtier);
  knobs.set("sampling_by", text("frequency"));
  knobs.set("intensity", text(freqtier ? "ladder" : "fixed"));
  knobs.set("gate", false);
  knobs.set("neighbours", false);
  if (!freqtier) return knobs;
  knobs.set("cbf_hashes", std::int64_t{3});
  knobs.set("frequency_threshold_floor", std::int64_t{1});
  return knobs;
}

std::vector<KnobDecl> knobs() {
  using namespace knob;
  const std::vector<KnobValue> not_freqtier{text("ours"), text("hybridtier")};
  auto ladder = regulate::ladder_knobs("FT, §V-B2");
  std::erase_if(ladder, [](const KnobDecl& knob) { return knob.name == "sampling_frequency"; });
  auto cbf = track::cbf_knobs(4, "HT, §4.2", "HT, §4.2, §6.4.2", "HT, §6.4.2, Table 5",
                              "; always 16 with 2 MiB pages");
  const auto hashes = std::ranges::find(cbf, "cbf_hashes", &KnobDecl::name);
  hashes->meaning += "; 3 as freqtier";
  hashes->condition = KnobCondition{"preset", not_freqtier};
  auto all = list(
      choice("preset", {"ours", "hybridtier", "freqtier", "static"}, "ours",
             "the parts that the next knobs name; those of a published system; or none: pages stay "
             "where they are first placed"),
      only(list(choice("filters", {"frequency", "momentum", "both"}, "HT, §3.1; FT, §V-A",
                       "what is counted: samples over hours, over seconds, or both"),
                choice("threshold", {"fill", "step", "fixed"}, "HT, §3.1; FT, §V-C(a)",
                       "how the frequency threshold follows the hot set's size: it jumps to where "
                       "that fits the fast tier, or goes there step by step"),
                choice("sampling_by", {"period", "frequency"}, "Linux, large PEBS",
                       "a system-wide sampling_frequency by fixed periods, set anew as the rate of "
                       "loads changes; or by frequency, which takes an interrupt for each sample"),
                choice("intensity", {"ladder", "fixed"}, "FT, §V-B2",
                       "whether less is sampled while the hit ratio is stable"),
                flag("second_chance", true, "HT, §3.1",
                     "look again at pages of high frequency before they are demoted; takes both "
                     "filters"),
                flag("gate", true, "ours", "stop promoting while the hit ratio does not rise"),
                flag("neighbours", false, "ours",
                     "judge a page by the samples of its neighbourhood, too; takes the frequency "
                     "filter")),
           "preset", {text("ours")}),
      only(list(choice("placement", {"first-touch", "profile"}, "Soar/Alto, OSDI'25, §4.3",
                       "where pages are first placed: in the fast tier while there is room, or "
                       "where a profiling run says that their object belongs")),
           "preset", {text("ours"), text("static")}),
      track::frequency_knobs("FT, §V-B2; HT, artifact", "HT, §4.1; artifact: tier_and_core"),
      only(std::move(ladder), "intensity", {text("ladder")}),
      only(regulate::profiling_knobs("profile_sampling_period"), "placement", {text("profile")}),
      track::sample_batch_knob("HT, §4.3"),
      track::threshold_knob("frequency_hot_threshold", 5, "HT, artifact; FT, §V-C(a)",
                            "count from which a page has high frequency, until adapted"),
      only(list(track::threshold_knob("frequency_threshold_floor", 3, "HT, artifact",
                                      "lowest frequency threshold that adaptation may choose; 1 as "
                                      "freqtier")),
           "preset", not_freqtier),
      real("adaptation_period", 1e5, {1000, 1e8, log}, samples, "HT, §3.1; FT, §V-C(a)",
           "samples between adaptations of the frequency threshold"),
      track::threshold_knob("momentum_hot_threshold", 3, "HT, §6.4.3, Fig. 17",
                            "count from which a page has high momentum"),
      track::threshold_knob("demote_momentum_below", 3, "HT, §3.1, Table 1",
                            "momentum below which a fast page may be demoted"),
      real("frequency_cooling_period", 160, {0.1, 1e5, log}, samples_per_page, "HT, artifact",
           "samples per 4 KiB of the fast tier between halvings of the frequency counters"),
      real("momentum_cooling_period", 0.0656, {1e-4, 1e3, log}, samples_per_page,
           "HT, §3.1, §4.2; artifact",
           "samples per page of the fast tier between halvings of the momentum counters"),
      std::move(cbf),
      real("momentum_cbf_ratio", 128, {1, 4096, log}, ratio, "HT, §4.2",
           "how many times smaller the momentum filter is than the frequency filter"),
      migrate::watermark_knobs("HT, §4.3; artifact"),
      only(migrate::second_chance_knobs("HT, §4.3", "HT, artifact"), "second_chance", {true}),
      migrate::scan_chunk_knob("FT, §V-B1"), regulate::gate_knobs("gate"),
      only(list(real("neighbourhoods", 256, {1, 65536, log}, none, "ours",
                     "neighbourhoods that the fast tier has room for"),
                real("neighbour_cooling_period", 1, {0.01, 1e4, log}, samples_per_page, "ours",
                     "samples per page of the fast tier between halvings of the neighbourhoods' "
                     "counts"),
                real("rate_margin", 1.25, {1, 10}, ratio, "ours",
                     "times the rate at which it would stay that a page must have to come")),
           "neighbours", {true}));
  for (const auto& [name, value] : renewed) {
    const auto ours = std::ranges::find(all, name, &KnobDecl::name);
    KnobDecl preset = *ours;
    preset.name = preset_name(name);
    preset.meaning = std::string{name} + " of the published systems";
    preset.condition = KnobCondition{"preset", {text("hybridtier"), text("freqtier")}};
    if (!ours->condition) ours->condition = KnobCondition{"preset", {text("ours")}};
    ours->initial = value;
    ours->source = "ours";
    all.push_back(std::move(preset));
  }
  return all;
}

KnobCondition by_profile() { return {"placement", {text("profile")}}; }

PolicyInfo where_pages_move(PolicyInfo info) {
  for (KnobDecl& knob : info.knobs)
    if (knob.name != "preset" && !knob.condition)
      knob.condition =
          KnobCondition{"preset", {text("ours"), text("hybridtier"), text("freqtier")}};
  return info;
}

}  // namespace tt::unified
