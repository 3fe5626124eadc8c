// SPDX-License-Identifier: MIT

#include "migrate/reclaim.hpp"

#include <algorithm>
#include <cmath>

namespace tt::migrate {
namespace {

constexpr double gibibyte = 1 << 30;
constexpr int first_priority = 12;   // DEF_PRIORITY, mm/vmscan.c
constexpr double kernel_batch = 32;  // SWAP_CLUSTER_MAX
// get_scan_count with vm.swappiness = 60, where looking at files has cost nothing yet: 60 times 3/2
// for what is no file's, 140 times 3 for files.
constexpr double anonymous_share = 90.0 / (90 + 420);

/// Whole pages of `pages` and of what was `owed` before; the rest is owed.
std::uint64_t whole(double pages, double& owed) {
  owed += pages;
  const auto all = static_cast<std::uint64_t>(owed);
  owed -= static_cast<double>(all);
  return all;
}

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

Reclaim::Reclaim(Memory& memory, track::LruLists& lists, const Knobs& knobs, double target,
                 Nanos sizes_age)
    : Reclaim(memory, knobs, target) {
  lists_ = &lists;
  batch_ = knobs.real("lru_batch");
  sizes_age_ = sizes_age;
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
  if (generations_ != nullptr) {
    scan_.overspend(by_generations(missing, budget));
  } else {
    std::uint64_t looked = 0;
    do {
      looked += by_lists(missing, budget - looked, now);
    } while (victims_.empty() && looked < budget && ++failures_ < most_failures);
    scan_.spend(looked);
    if (!victims_.empty()) failures_ = 0;
    if (gave_up()) awake_ = false;
  }
  return victims_.empty() ? 0 : memory_.request(Tier::slow, victims_);
}

bool Reclaim::inactive_is_low(Nanos now) {
  if (now >= sizes_end_) {
    using enum track::LruLists::List;
    inactive_size_ = lists_->size(Tier::fast, inactive);
    active_size_ = lists_->size(Tier::fast, active);
    if (sizes_age_ > Nanos{}) sizes_end_ = now - now % sizes_age_ + sizes_age_;
  }
  return lists_->is_low(inactive_size_, active_size_);
}

std::uint64_t Reclaim::by_lists(std::uint64_t missing, std::uint64_t budget, Nanos now) {
  using enum track::LruLists::List;
  const double aim = std::ceil(high_ * static_cast<double>(memory_.capacity(Tier::fast)));
  const std::uint64_t most = std::max(missing, static_cast<std::uint64_t>(aim));
  if (lists_->size(Tier::fast, inactive) < missing) lists_->find_new();
  std::uint64_t looked = 0;
  const auto refill = [&](double pages) {
    looked += lists_->deactivate(Tier::fast, std::min(whole(pages, refill_), budget - looked));
  };
  const auto part = [&](track::LruLists::List list, int priority) {
    const double pages =
        static_cast<double>(lists_->size(Tier::fast, list)) * kernel_batch / batch_;
    const double shift = static_cast<double>(std::uint64_t{1} << priority);
    return std::floor(std::floor(pages / shift) * anonymous_share) * batch_ / kernel_batch;
  };
  int priority = first_priority;
  while (priority >= 1 && victims_.size() < missing && looked < budget) {
    const std::size_t before = victims_.size();
    if (inactive_is_low(now)) refill(batch_);
    double old = part(inactive, priority);
    double young = inactive_is_low(now) ? part(active, priority) : 0;
    std::uint64_t scanned = 0;
    for (; old > 0 && victims_.size() < most && looked < budget; old -= batch_, young -= batch_) {
      const std::uint64_t next = std::min(whole(std::min(old, batch_), look_), budget - looked);
      const std::uint64_t pages =
          lists_->age_inactive(Tier::fast, next, most - victims_.size(), victims_);
      looked += pages;
      scanned += pages;
      if (young > 0) refill(std::min(young, batch_));
    }
    if (inactive_is_low(now)) refill(batch_);
    if (victims_.size() == before || static_cast<double>(scanned) < aim) --priority;
  }
  return looked;
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
KnobDecl lru_batch() {
  return knob::real("lru_batch", 32, {1, 4096, knob::log}, Unit::pages,
                    "Linux 6.3, mm/vmscan.c, SWAP_CLUSTER_MAX",
                    "pages by which kswapd refills a short inactive list in a round, before and "
                    "after it has looked there");
}

}  // namespace

std::vector<KnobDecl> scan_knobs() { return knob::list(scan_rate(), lru_gib()); }
std::vector<KnobDecl> reclaim_knobs() { return knob::list(scan_knobs(), lru_batch()); }

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
              lru_gib().when("lru_gen", false), lru_batch().when("lru_gen", false),
              real("lru_sizes_age", 2, {0, 60}, Unit::seconds,
                   "Linux 6.12, mm/memcontrol.c, FLUSH_TIME; 0 in kernels before",
                   "how old the sizes of the lists may be by which kswapd judges whether the "
                   "inactive one is short")
                  .when("lru_gen", false));
}

}  // namespace tt::migrate
