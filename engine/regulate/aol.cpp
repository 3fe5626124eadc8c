// SPDX-License-Identifier: MIT

#include "regulate/aol.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/forwarding.hpp"

namespace tt::regulate {
namespace {

/// Passes everything through but part of the promotions, or part of each window.
class RegulatedMemory final : public ForwardingMemory {
 public:
  RegulatedMemory(Memory& inner, Thins thins) : ForwardingMemory(inner), thins_(thins) {}

  void admit(unsigned tenths, unsigned sixteenths) {
    tenths_ = tenths;
    sixteenths_ = sixteenths;
  }

  std::size_t request(Tier to, std::span<const PageId> pages, Way way) override {
    if (to == Tier::slow || thins_ == Thins::windows || tenths_ == AolRegulator::all)
      return inner().request(to, pages, way);
    admitted_.clear();
    origin_.clear();
    for (std::size_t i = 0; i < pages.size(); ++i) {
      // Evenly spread: the share is kept over any run of candidates, across requests.
      turn_ += tenths_;
      if (turn_ < AolRegulator::all) continue;
      turn_ -= AolRegulator::all;
      admitted_.push_back(pages[i]);
      origin_.push_back(i);
    }
    if (admitted_.empty()) return pages.size();
    const std::size_t taken = inner().request(to, admitted_, way);
    return taken < admitted_.size() ? origin_[taken] : pages.size();
  }

  /// A run of so many sixteenths of the window, at a place that is drawn anew each time: windows
  /// repeat from pass to pass, and every page is to have its turn. Of the rest of the window
  /// nothing is known, so `untouched` does not name it.
  std::uint64_t protect(PageRange window, Tiers which, PageMask untouched) override {
    if (thins_ == Thins::requests || sixteenths_ == AolRegulator::whole)
      return inner().protect(window, which, untouched);
    std::ranges::fill(untouched, 0);
    if (sixteenths_ == 0) return 0;
    const std::uint64_t places = AolRegulator::whole / sixteenths_;
    const std::uint64_t place = mix64(++windows_) % places;
    const std::uint64_t from = window.count * place / places;
    const PageRange part{PageId{window.first.value + from},
                         window.count * (place + 1) / places - from};
    if (part.count == 0) return 0;
    part_untouched_.assign(untouched.empty() ? 0 : mask_words(part.count), 0);
    const std::uint64_t count = inner().protect(part, which, part_untouched_);
    if (!untouched.empty()) {
      for (std::uint64_t i = 0; i < part.count; ++i)
        if (in_mask(part_untouched_, i))
          untouched[(from + i) / 64] |= std::uint64_t{1} << ((from + i) % 64);
    }
    return count;
  }

 private:
  const Thins thins_;
  unsigned tenths_ = AolRegulator::all;
  unsigned sixteenths_ = AolRegulator::whole;
  unsigned turn_ = 0;
  std::uint64_t windows_ = 0;  // protected so far in part
  std::vector<PageId> admitted_;
  std::vector<std::size_t> origin_;
  std::vector<std::uint64_t> part_untouched_;
};

/// What the inner policy is given as its memory: a base class, so that it is there first.
struct Proxy {
  RegulatedMemory proxy;
};

class AolRegulated final : private Proxy, public ForwardingPolicy {
 public:
  AolRegulated(MakePolicy make, const PolicyContext& context, Thins thins)
      : Proxy{RegulatedMemory{context.memory, thins}},
        ForwardingPolicy(
            make({proxy, context.knobs, context.oracle, context.seed, context.placement})),
        memory_(context.memory),
        regulator_(context.knobs.real("aol.low"), context.knobs.real("aol.high")),
        interval_(from_millis(context.knobs.real("aol.interval"))) {}

  void tick(Nanos now) override {
    if (now - regulated_ >= interval_) {
      regulated_ = now;
      regulator_.update(memory_.counters());
      proxy.admit(regulator_.tenths(), regulator_.sixteenths());
    }
    // Each side keeps its own period, whichever is shorter.
    if (now - ticked_ >= inner().tick_period()) {
      ticked_ = now;
      inner().tick(now);
    }
  }
  Nanos tick_period() const override { return std::min(interval_, inner().tick_period()); }

  void gauges(Gauges& out) const override {
    inner().gauges(out);
    out["aol_cycles"] = regulator_.aol();
    out["aol_promotion_share"] = static_cast<double>(regulator_.tenths()) / AolRegulator::all;
  }

 private:
  Memory& memory_;
  AolRegulator regulator_;
  Nanos interval_;
  Nanos regulated_{}, ticked_{};
};

}  // namespace

AolRegulator::AolRegulator(double low, double high) : low_(low), high_(high) {
  if (high < low) {
    throw std::invalid_argument("knob aol.high: found " + to_string(KnobValue{high}) +
                                ", must not be below aol.low (" + to_string(KnobValue{low}) + ")");
  }
}

std::size_t AolRegulator::step(double aol) const {
  if (aol <= low_) return 0;   // lines 2-3: disable page promotions
  if (aol >= high_) return 5;  // lines 4-5: enable all page promotions
  // Lines 6-7: F(l). On 40..100 cycles the borders lie at 50, 60 and 80.
  const double position = (aol - low_) / (high_ - low_);
  if (position <= 1.0 / 6) return 1;
  if (position <= 1.0 / 3) return 2;
  if (position <= 2.0 / 3) return 3;
  return 4;
}

unsigned AolRegulator::tenths(double aol) const {
  static constexpr std::array<unsigned, 6> share{0, 1, 1, 3, 5, all};
  return share[step(aol)];
}

unsigned AolRegulator::sixteenths(double aol) const {
  static constexpr std::array<unsigned, 6> share{0, 1, 2, 4, 8, whole};
  return share[step(aol)];
}

void AolRegulator::update(const Counters& counters) {
  const double reads = counters.a3_reads - last_a3_;
  if (reads <= 0) return;
  aol_ = (counters.a1_cycles - last_a1_) / reads;
  tenths_ = tenths(aol_);
  sixteenths_ = sixteenths(aol_);
  last_a1_ = counters.a1_cycles;
  last_a3_ = counters.a3_reads;
}

std::unique_ptr<Policy> make_aol_regulated(MakePolicy make, const PolicyContext& context,
                                           Thins thins) {
  if (!context.knobs.flag("aol.enabled")) return make(context);
  return std::make_unique<AolRegulated>(make, context, thins);
}

std::span<const KnobDecl> aol_knobs() {
  using namespace knob;
  const std::string paper = "Soar/Alto, OSDI'25, §5.2";
  static const std::vector<KnobDecl> knobs = list(
      flag("aol.enabled", false, paper + ", Algorithm 2",
           "admit promotions in proportion to the amortized offcore latency (AOL)"),
      real("aol.low", 40, {0, 1000}, cycles, paper + ": 40 on Skylake, 25 on Sapphire Rapids",
           "AOL at or below which nothing is promoted")
          .when("aol.enabled", true),
      real("aol.high", 100, {0, 2000}, cycles, paper + ": 100 on Skylake, 95 on Sapphire Rapids",
           "AOL at or above which every candidate is promoted")
          .when("aol.enabled", true),
      real("aol.interval", 1000, {10, 60000, log}, milliseconds, paper + ", Algorithm 2",
           "time over which AOL is measured")
          .when("aol.enabled", true));
  return knobs;
}

}  // namespace tt::regulate
