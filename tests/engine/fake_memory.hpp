// A substrate for tests: small, asynchronous, and as unkind as a live process. Requests wait until
// the test completes them, and may fail; pages may be absent, vanish, or move on their own.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/seam.hpp"

namespace tt::test {

class FakeMemory final : public Memory {
 public:
  FakeMemory(std::uint64_t fast, std::uint64_t slow, std::uint64_t page_bytes = 4096)
      : capacity_{fast, slow}, page_bytes_(page_bytes) {}

  // What the test does to it.

  /// First touch: places the page in `tier`, or the other one when that is full.
  void touch(PageId page, Tier tier) {
    if (where_.contains(page)) return;
    if (free_pages(tier) == 0) tier = other(tier);
    where_[page] = tier;
  }
  void free(PageRange range) {
    for (auto it = where_.lower_bound(range.first);
         it != where_.end() && it->first < range.end();) {
      it = where_.erase(it);
    }
  }
  /// Carries out up to `limit` requests in order; `fate` may let one fail.
  using Fate = std::function<Outcome(PageId, Tier)>;
  std::vector<MigrationResult> complete(
      std::size_t limit = SIZE_MAX, const Fate& fate = [](PageId, Tier) { return Outcome::done; }) {
    std::vector<MigrationResult> results;
    for (; limit > 0 && !queue.empty(); --limit) {
      const auto [page, to] = queue.front();
      queue.pop_front();
      Outcome outcome = fate(page, to);
      if (!where_.contains(page)) {
        outcome = Outcome::gone;
      } else if (outcome == Outcome::done && free_pages(to) == 0) {
        outcome = Outcome::no_space;
      }
      if (outcome == Outcome::done) where_[page] = to;
      results.push_back({page, to, outcome});
    }
    return results;
  }

  // What the test looks at.

  [[nodiscard]] Residency where(PageId page) const {
    const auto it = where_.find(page);
    return it == where_.end() ? Residency::absent : static_cast<Residency>(it->second);
  }
  [[nodiscard]] std::vector<std::uint64_t> queued(Tier to) const {
    std::vector<std::uint64_t> pages;
    for (const auto& [page, target] : queue) {
      if (target == to) pages.push_back(page.value);
    }
    return pages;
  }
  [[nodiscard]] std::uint64_t work(Work kind) const {
    return charged[static_cast<std::size_t>(kind)];
  }

  std::deque<std::pair<PageId, Tier>> queue;
  std::size_t queue_limit = SIZE_MAX;
  std::vector<std::pair<PageId, Tier>> requested;  // everything ever asked for, in order
  std::vector<SamplingRequest> sampling;           // every request made
  Counters now;                                    // what counters() answers
  std::array<std::uint64_t, work_count> charged{};
  std::uint64_t request_calls = 0;
  mutable std::uint64_t residency_calls = 0;

  // The seam.

  std::uint64_t page_bytes() const override { return page_bytes_; }
  std::uint64_t capacity(Tier tier) const override { return capacity_[index(tier)]; }
  std::uint64_t free_pages(Tier tier) const override {
    std::uint64_t used = 0;
    for (const auto& [page, in] : where_) used += in == tier;
    return capacity_[index(tier)] - used;
  }
  void residency(std::span<const PageId> pages, std::span<Residency> out) const override {
    ++residency_calls;
    for (std::size_t i = 0; i < pages.size(); ++i) out[i] = where(pages[i]);
  }
  void residency(PageId first, std::span<Residency> out) const override {
    ++residency_calls;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = where({first.value + i});
  }
  std::size_t request(Tier to, std::span<const PageId> pages) override {
    ++request_calls;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      const auto latest = std::find_if(queue.rbegin(), queue.rend(),
                                       [&](const auto& item) { return item.first == pages[i]; });
      const bool there = latest != queue.rend() ? latest->second == to
                                                : where(pages[i]) == static_cast<Residency>(to);
      requested.emplace_back(pages[i], to);
      if (there) continue;
      if (queue.size() >= queue_limit) return i;
      queue.emplace_back(pages[i], to);
    }
    return pages.size();
  }
  std::uint64_t pending(Tier to) const override { return queued(to).size(); }
  void set_sampling(const SamplingRequest& request) override { sampling.push_back(request); }
  Counters counters() const override { return now; }
  void charge(Work kind, std::uint64_t times) override {
    charged[static_cast<std::size_t>(kind)] += times;
  }

 private:
  std::map<PageId, Tier> where_;
  std::array<std::uint64_t, tier_count> capacity_;
  std::uint64_t page_bytes_;
};

using KnobMap = std::map<std::string, KnobValue, std::less<>>;

/// A policy on a fake memory, and the clock that drives both.
struct Rig {
  std::unique_ptr<FakeMemory> owned;  // the policy keeps its address while the rig moves
  FakeMemory& memory;
  const PolicyInfo& info;
  Knobs knobs;
  std::vector<std::uint64_t> accesses;  // the oracle's
  Oracle oracle;
  std::unique_ptr<Policy> policy;
  Nanos now{}, ticked{};

  Rig(const std::string& name, const KnobMap& given, std::uint64_t fast, std::uint64_t slow,
      std::uint64_t page_bytes = 4096, std::vector<std::uint64_t> oracle_accesses = {})
      : owned(std::make_unique<FakeMemory>(fast, slow, page_bytes)),
        memory(*owned),
        info(tt::policy(name)),
        knobs(resolve(info.knobs, given)),
        accesses(std::move(oracle_accesses)),
        oracle{accesses},
        policy(info.make({memory, knobs, &oracle, 1})) {}

  /// Values as the simulator scales them may lie below the declared limits.
  static Knobs scaled(const PolicyInfo& info, const KnobMap& given, const KnobMap& raw) {
    Knobs knobs = resolve(info.knobs, given);
    for (const auto& [name, value] : raw) knobs.set(name, value);
    return knobs;
  }
  Rig(const std::string& name, const KnobMap& given, const KnobMap& raw, std::uint64_t fast,
      std::uint64_t slow, std::uint64_t page_bytes = 4096)
      : owned(std::make_unique<FakeMemory>(fast, slow, page_bytes)),
        memory(*owned),
        info(tt::policy(name)),
        knobs(scaled(info, given, raw)),
        policy(info.make({memory, knobs, nullptr, 1})) {}

  /// Maps a range and touches its pages in order, as the policy places them.
  void map(std::uint64_t first, std::uint64_t count) {
    const PageRange range{{first}, count};
    policy->on_map(range, now);
    for (std::uint64_t i = 0; i < count; ++i) {
      const PageId page{first + i};
      memory.touch(page, policy->placement({page, 1}));
    }
  }
  void unmap(std::uint64_t first, std::uint64_t count) {
    memory.free({{first}, count});
    policy->on_unmap({{first}, count}, now);
  }
  /// Hands over `times` samples of each page, in the tier where it is.
  void sample(std::initializer_list<std::uint64_t> pages, unsigned times = 1,
              AccessKind kind = AccessKind::load) {
    sample(std::vector<std::uint64_t>(pages), times, kind);
  }
  void sample(const std::vector<std::uint64_t>& pages, unsigned times = 1,
              AccessKind kind = AccessKind::load) {
    std::vector<Sample> samples;
    for (unsigned n = 0; n < times; ++n) {
      for (const auto page : pages) {
        const bool slow = memory.where({page}) == Residency::slow;
        samples.push_back({{page}, slow ? Tier::slow : Tier::fast, kind});
      }
    }
    policy->on_samples(samples, now);
  }
  /// Lets time pass, ticking when due.
  void run(double for_seconds) {
    const Nanos until = now + from_seconds(for_seconds);
    while (ticked + policy->tick_period() <= until) {  // never early
      ticked = now = std::max(now, ticked + policy->tick_period());
      policy->tick(now);
    }
    now = until;
  }
  /// Completes what is queued and reports it.
  void settle(const FakeMemory::Fate& fate = [](PageId, Tier) { return Outcome::done; }) {
    const auto results = memory.complete(SIZE_MAX, fate);
    if (!results.empty()) policy->on_migrated(results, now);
  }
  [[nodiscard]] double gauge(const std::string& name) const {
    Gauges out;
    policy->gauges(out);
    const auto it = out.find(name);
    if (it == out.end()) throw std::out_of_range("no gauge " + name);
    return it->second;
  }
};

}  // namespace tt::test
