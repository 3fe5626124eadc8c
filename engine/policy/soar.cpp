// Soar: Liu, Hadian, Xu, Li, "Tiered Memory Management Beyond Hotness", OSDI'25, §4: static
// placement of whole objects, ranked in one profiling run on fast memory.
//
// Profiling (§4.1, §4.2): load misses are sampled, and every second each object gets a score from
// its share of the samples, AOL and the predicted slowdown (regulate/object_profile.hpp has
// Algorithm 1). Its result is a Placement.
//
// Placing (§4.3): the objects with the highest score per page that fit the fast tier together go
// there, the next one in part, the others to the slow tier. Objects that take turns share the room
// of the largest. Nothing is ever promoted.
//
// Published: both algorithms, the period of a second, the sampling rate, L0, R_min and R_max (§6.8
// varies them), and a and b (the artifact). Inferred, and so noted where it stands: the paper's
// steps of F; that an object is all that a site allocates; that two objects may share a slot
// whenever they were never there together. Different: the paper demotes pages of the object that is
// split when a better one arrives. Here it never gets more than what is left for it, which the
// profile knows: no page moves at all. Its share are the first pages by address, which is the order
// of first touches. What the profile has not seen gets what is left over.
//
// Profiling   profile_   objects, scores and who was there with whom
// Placing     plans_     the objects by rank, the pages of each that belong in the fast tier, and
//                        one more for unknown sites
//             live_      mapped ranges by address, their object and its pages before them
#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/make_policy.hpp"
#include "policy/static_policy.hpp"
#include "regulate/object_profile.hpp"

namespace tt {
namespace {

class Profiling final : public Policy {
 public:
  explicit Profiling(const PolicyContext& context)
      : memory_(context.memory),
        period_(from_millis(context.knobs.real("profile_period"))),
        profile_(rules(context.knobs)) {
    using Mode = SamplingRequest::Mode;
    memory_.set_sampling({.loads = {Mode::period, context.knobs.real("sampling_period")}});
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
    return profile_.objects().size() * sizeof(regulate::ObjectProfile::Object);
  }
  void gauges(Gauges& out) const override {
    out["profile_aol_cycles"] = profile_.aol();
    out["profile_slowdown"] = profile_.slowdown();
    out["profile_objects"] = static_cast<double>(profile_.objects().size());
  }
  Heat heat(PageId) const override { return Heat::cold; }
  Placement profile() const override { return finished().placement(memory_); }
  void report(Rows& out) const override {
    const regulate::ObjectProfile finished = this->finished();
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
  regulate::ObjectProfile finished() const {
    regulate::ObjectProfile copy = profile_;
    copy.close(memory_, now_);
    return copy;
  }
  static regulate::ObjectRules rules(const Knobs& knobs) {
    using Kind = regulate::OverlapFactor::Kind;
    return {.least_share = knobs.real("r_min"),
            .most_share = knobs.real("r_max"),
            .overlap_aol = knobs.real("overlap_aol"),
            .factor = {knobs.choice("factor") == "paper" ? Kind::paper : Kind::artifact},
            .a = knobs.real("predictor_a"),
            .b = knobs.real("predictor_b")};
  }

  Memory& memory_;
  const Nanos period_;
  regulate::ObjectProfile profile_;
  Nanos now_{};
};

class Placing final : public StaticPolicy {
 public:
  explicit Placing(const PolicyContext& context) : memory_(context.memory) {
    auto left = static_cast<double>(memory_.capacity(Tier::fast));
    std::unordered_map<std::uint32_t, double> slots;  // their size so far
    for (const Placement::Object& object : context.placement->objects) {
      double& slot = slots[object.slot];
      const double more = std::min(std::max(0.0, object.pages - slot), left);
      slot += more;
      left -= more;
      const bool whole = object.pages <= slot;
      plans_.push_back({object.site, object.score, object.pages,
                        whole ? std::numeric_limits<double>::infinity() : slot});
    }
    plans_.push_back({"", 0, 0, left});
  }

  void on_map(PageRange range, std::uint32_t site, Nanos now) override {
    on_unmap(range, now);
    const std::size_t plan = plan_of(site);
    live_.insert(after(range.first), {range, plan, plans_[plan].live});
    plans_[plan].live += range.count;
  }
  void on_unmap(PageRange range, Nanos) override {
    auto at = after(range.first);
    if (at != live_.begin() && std::prev(at)->range.contains(range.first)) --at;
    while (at != live_.end() && at->range.first < range.end()) {
      const Live old = *at;
      at = live_.erase(at);
      const PageId from = std::max(old.range.first, range.first);
      const PageId to = std::min(old.range.end(), range.end());
      plans_[old.plan].live -= to.value - from.value;
      if (to < old.range.end())
        at = live_.insert(at, {{to, old.range.end().value - to.value},
                               old.plan,
                               old.before + (to.value - old.range.first.value)});
      if (old.range.first < from)
        at =
            live_.insert(
                at, {{old.range.first, from.value - old.range.first.value}, old.plan, old.before}) +
            1;
    }
  }
  Tier placement(PageRange range) const override {
    return belongs(range.first) ? Tier::fast : Tier::slow;
  }
  Heat heat(PageId page) const override { return belongs(page) ? Heat::hot : Heat::cold; }
  std::uint64_t metadata_bytes() const override { return plans_.size() * sizeof(Plan); }
  void gauges(Gauges& out) const override {
    out["fast_objects"] = static_cast<double>(std::ranges::count_if(
        plans_, [](const Plan& plan) { return plan.pages > 0 && plan.fast >= plan.pages; }));
  }
  void report(Rows& out) const override {
    for (std::size_t i = 0; i + 1 < plans_.size(); ++i) {
      const Plan& plan = plans_[i];
      out.push_back({"objects",
                     {{"rank", static_cast<double>(i + 1)},
                      {"site", plan.site},
                      {"score", plan.score},
                      {"pages", plan.pages},
                      {"fast_pages", std::min(plan.fast, plan.pages)}}});
    }
  }

 private:
  struct Plan {
    std::string site;
    double score, pages;
    double fast;             // pages that belong in the fast tier
    std::uint64_t live = 0;  // mapped now
  };
  struct Live {
    PageRange range;
    std::size_t plan;
    std::uint64_t before;  // pages of the object that were there when it was mapped
  };
  std::vector<Live>::iterator after(PageId page) {
    return std::ranges::upper_bound(live_, page, {}, [](const Live& l) { return l.range.first; });
  }
  std::size_t plan_of(std::uint32_t site) const {
    const std::string_view name = memory_.site(site);
    std::size_t plan = 0;
    while (plan + 1 < plans_.size() && plans_[plan].site != name) ++plan;
    return plan;
  }
  bool belongs(PageId page) const {
    auto at =
        std::ranges::upper_bound(live_, page, {}, [](const Live& l) { return l.range.first; });
    if (at == live_.begin() || !(--at)->range.contains(page)) return false;
    return static_cast<double>(at->before + page.value - at->range.first.value) <
           plans_[at->plan].fast;
  }

  const Memory& memory_;
  std::vector<Plan> plans_;
  std::vector<Live> live_;
};

std::unique_ptr<Policy> make(const PolicyContext& context) {
  if (context.placement != nullptr) return std::make_unique<Placing>(context);
  return std::make_unique<Profiling>(context);
}

std::vector<KnobDecl> knobs() {
  using namespace knob;
  const std::string paper = "Soar/Alto, OSDI'25, ";
  return list(integer("sampling_period", 3000, {100, 100000, log}, events_per_sample,
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

const RegisterPolicy registered{{
    .name = "soar",
    .family = "static",
    .summary =
        "objects that hurt most in slow memory placed fast, by a profiling run; no migration",
    .citation = "Liu, Hadian, Xu, Li, Tiered Memory Management Beyond Hotness, OSDI 2025",
    .knobs = knobs(),
    .traits = {.migrates = false,
               .profiled = true,
               .needs = Need::samples | Need::sites,
               .placement = Granularity::page},
    .make = make,
}};

}  // namespace
}  // namespace tt
