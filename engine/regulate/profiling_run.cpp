// SPDX-License-Identifier: MIT

#include "regulate/profiling_run.hpp"

#include <algorithm>
#include <string>

#include "regulate/object_profile.hpp"

namespace tt::regulate {
namespace {

ObjectRules rules(const Knobs& knobs) {
  using Kind = OverlapFactor::Kind;
  return {.least_share = knobs.real("r_min"),
          .most_share = knobs.real("r_max"),
          .overlap_aol = knobs.real("overlap_aol"),
          .factor = {knobs.choice("factor") == "paper" ? Kind::paper : Kind::artifact},
          .a = knobs.real("predictor_a"),
          .b = knobs.real("predictor_b")};
}

class Profiling final : public Policy {
 public:
  Profiling(Memory& memory, const Knobs& knobs, const char* sampling_period)
      : memory_(memory),
        period_(from_millis(knobs.real("profile_period"))),
        profile_(rules(knobs)) {
    memory_.set_sampling(
        {.loads = {SamplingRequest::Mode::period, knobs.real(sampling_period)}, .stores = {}});
  }

  void on_map(PageRange range, std::uint32_t site, Nanos now) override {
    profile_.map(range, site, now);
  }
  void on_unmap(PageRange range, Nanos now) override { profile_.unmap(range, now); }
  Tier placement(PageRange) const override { return Tier::fast; }
  void on_samples(std::span<const Sample> samples, Nanos now) override {
    profile_.count(samples);
    memory_.charge(Work::tracker_update, samples.size());
    now_ = now;
  }
  void tick(Nanos now) override {
    profile_.close(memory_, now);
    now_ = now;
  }
  Nanos tick_period() const override { return period_; }
  void on_migrated(std::span<const MigrationResult>, Nanos) override {}

  std::uint64_t metadata_bytes() const override {
    return profile_.objects().size() * sizeof(ObjectProfile::Object);
  }
  void gauges(Gauges& out) const override {
    out["profile_aol_cycles"] = profile_.aol();
    out["profile_slowdown"] = profile_.slowdown();
    out["profile_objects"] = static_cast<double>(profile_.objects().size());
  }
  Heat heat(PageId) const override { return Heat::cold; }
  Placement profile() const override { return finished().placement(memory_); }
  void report(Rows& out) const override {
    const ObjectProfile finished = this->finished();
    for (const Placement::Object& placed : finished.placement(memory_).objects) {
      const auto object = std::ranges::find_if(
          finished.objects(), [&](const auto& o) { return memory_.site(o.site) == placed.site; });
      out.push_back({"objects",
                     {{"site", placed.site},
                      {"score", placed.score},
                      {"pages", placed.pages},
                      {"slot", static_cast<double>(placed.slot)},
                      {"samples", object->accesses},
                      {"first_s", object->first},
                      {"last_s", object->last}}});
    }
  }

 private:
  /// With the period that has begun.
  ObjectProfile finished() const {
    ObjectProfile copy = profile_;
    copy.close(memory_, now_);
    return copy;
  }

  Memory& memory_;
  const Nanos period_;
  ObjectProfile profile_;
  Nanos now_{};
};

}  // namespace

std::unique_ptr<Policy> make_profiling_run(Memory& memory, const Knobs& knobs,
                                           const char* sampling_period) {
  return std::make_unique<Profiling>(memory, knobs, sampling_period);
}

std::vector<KnobDecl> profiling_knobs(const char* sampling_period) {
  using namespace knob;
  const std::string paper = "Soar/Alto, OSDI'25, ";
  return list(integer(sampling_period, 3000, {100, 100000, log}, events_per_sample,
                      paper + "§4.1.1", "load misses between two samples of the profiling run"),
              real("profile_period", 1000, {100, 60000, log}, milliseconds, paper + "§4.1.1",
                   "time over which a score is taken"),
              real("r_min", 0.03, {0, 1}, ratio, paper + "§6.8",
                   "share of the accesses below which an object is taken to overlap less"),
              real("r_max", 0.7, {0, 1}, ratio, paper + "§6.8",
                   "share of the accesses above which an object is taken to overlap more"),
              real("overlap_aol", 100, {0, 1000}, cycles, paper + "§4.2, L0",
                   "AOL from which nothing overlaps enough to count"),
              choice("factor", {"paper", "artifact"}, paper + "§4.2; artifact",
                     "steps of F: rising from 2 to 8, divisor 8; or falling from 12 to 1 for both"),
              real("predictor_a", 0.87, {0.01, 10, log}, Unit::none, "artifact; " + paper + "§3.3",
                   "a of the slowdown's 1 / (a + b / AOL), of the hardware"),
              real("predictor_b", 24.67, {0, 1000}, cycles, "artifact; " + paper + "§3.3",
                   "b of the slowdown's 1 / (a + b / AOL), of the hardware"));
}

}  // namespace tt::regulate
