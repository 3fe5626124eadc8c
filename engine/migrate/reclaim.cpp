// SPDX-License-Identifier: MIT

#include "migrate/reclaim.hpp"

#include <algorithm>
#include <cmath>

namespace tt::migrate {
namespace {

constexpr double gibibyte = 1 << 30;
constexpr double first_share = 1.0 / 4096;  // DEF_PRIORITY, mm/vmscan.c

}  // namespace

KernelMarks::KernelMarks(const Knobs& knobs)
    : min(knobs.real("watermark_min")),
      low(min + knobs.real("watermark_scale")),
      high(low + knobs.real("watermark_scale")),
      promo(high + knobs.real("watermark_scale")) {}

std::vector<KnobDecl> kernel_marks_knobs() {
  using namespace knob;
  return list(real("watermark_min", 0.0005, {0, 0.2}, ratio,
                   "Linux 6.3, vm.min_free_kbytes: an estimate, by default it is tens of MiB",
                   "share of the fast tier that only the kernel itself may use"),
              real("watermark_scale", 0.001, {0.0001, 0.3, log}, ratio,
                   "Linux 6.3, vm.watermark_scale_factor",
                   "distance from one watermark to the next, as a share of the fast tier"));
}

bool is_free(const Memory& memory, double share, double pages) {
  return static_cast<double>(memory.free_pages(Tier::fast)) >=
         share * static_cast<double>(memory.capacity(Tier::fast)) + pages;
}

Reclaim::Reclaim(Memory& memory, const Knobs& knobs, double target)
    : memory_(memory),
      target_(target),
      high_(KernelMarks(knobs).high),
      scan_(knobs.real("reclaim_scan_rate") * gibibyte / static_cast<double>(memory.page_bytes()),
            knobs.real("reclaim_scan_rate") * gibibyte / static_cast<double>(memory.page_bytes()) *
                10 * seconds(period)) {}

Reclaim::Reclaim(Memory& memory, track::LruLists& lists, const Knobs& knobs, double target)
    : Reclaim(memory, knobs, target) {
  lists_ = &lists;
}

Reclaim::Reclaim(Memory& memory, track::Generations& generations, const Knobs& knobs, double target)
    : Reclaim(memory, knobs, target) {
  generations_ = &generations;
}

std::uint64_t Reclaim::run(Nanos now) {
  if (!awake_) return 0;
  const double target = std::ceil(target_ * static_cast<double>(memory_.capacity(Tier::fast)));
  const double leaving =
      static_cast<double>(memory_.free_pages(Tier::fast) + memory_.pending(Tier::slow)) -
      static_cast<double>(memory_.excess_pages(Tier::fast));
  if (leaving >= target) {
    // It sleeps once the room is there, not once it has been promised.
    awake_ = static_cast<double>(memory_.free_pages(Tier::fast)) < target;
    return 0;
  }
  const auto missing = static_cast<std::uint64_t>(target - leaving);
  const std::uint64_t budget = scan_.available(now);
  victims_.clear();
  if (lists_ != nullptr) {
    scan_.spend(by_lists(missing, budget));
  } else {
    scan_.overspend(by_generations(missing, budget));
  }
  return victims_.empty() ? 0 : memory_.request(Tier::slow, victims_);
}

std::uint64_t Reclaim::by_lists(std::uint64_t missing, std::uint64_t budget) {
  const auto capacity = static_cast<double>(memory_.capacity(Tier::fast));
  const std::uint64_t most =
      std::max(missing, static_cast<std::uint64_t>(std::ceil(high_ * capacity)));
  using enum track::LruLists::List;
  if (lists_->size(Tier::fast, inactive) < missing) lists_->find_new();
  const std::uint64_t pages = lists_->size(Tier::fast, inactive);
  const std::uint64_t all = std::min(budget, pages);
  std::uint64_t looked = 0;
  std::uint64_t until = 0;
  for (double share = first_share; victims_.size() < missing && until < all; share *= 2) {
    const std::uint64_t from = until;
    until = std::min(
        all, static_cast<std::uint64_t>((2 * share - first_share) * static_cast<double>(pages)));
    if (until > from)
      looked += lists_->age_inactive(Tier::fast, until - from, most - victims_.size(), victims_);
  }
  // Behind it: a page that turns inactive has time to be accessed until the next pass.
  return looked + lists_->age_active(Tier::fast, budget - looked);
}

std::uint64_t Reclaim::by_generations(std::uint64_t missing, std::uint64_t budget) {
  if (generations_->inactive() < missing) generations_->find_new();
  const double high = high_ * static_cast<double>(memory_.capacity(Tier::fast));
  return generations_->evict(high, missing, budget, victims_);
}

namespace {

KnobDecl scan_rate() {
  return knob::real("reclaim_scan_rate", 16, {0.1, 200, knob::log}, Unit::gib_per_second,
                    "estimate: one thread that looks at a page in 240 ns",
                    "memory whose pages kswapd can look at in a second");
}
KnobDecl lru_gib() {
  return knob::real("lru_gib", 1024, {1, 65536, knob::log}, Unit::mebibytes,
                    "Linux 6.3, mm/vmscan.c, inactive_is_low",
                    "memory for which ten active pages are kept for each inactive one; more for "
                    "more");
}

}  // namespace

std::vector<KnobDecl> reclaim_knobs() { return knob::list(scan_rate(), lru_gib()); }

std::vector<KnobDecl> reclaim_or_generation_knobs() {
  using namespace knob;
  return list(scan_rate(),
              flag("lru_gen", true, "CONFIG_LRU_GEN_ENABLED of Debian, Ubuntu and Fedora",
                   "kswapd goes by generations of pages, not by an active and an inactive list"),
              real("lru_gen_batch", 64, {1, 4096, log}, Unit::pages,
                   "Linux 6.12, mm/vmscan.c, MIN_LRU_BATCH",
                   "neighbours that are looked at together where one was accessed, and an eighth "
                   "of a page table")
                  .when("lru_gen", true),
              lru_gib().when("lru_gen", false));
}

}  // namespace tt::migrate
