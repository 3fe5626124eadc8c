// SPDX-License-Identifier: MIT

// A substrate for tests: small, asynchronous, and as unkind as a live process. Requests wait until
// the test completes them, and may fail; pages may be absent, vanish, or move on their own; budgets
// change, and less is granted than was asked for. Protected pages fault, probes are answered and
// units change when the test says so.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "core/oracle.hpp"
#include "core/seam.hpp"
#include "migrate/scan_clock.hpp"

namespace tt::test {

class FakeMemory final : public Memory {
 public:
  FakeMemory(std::uint64_t fast, std::uint64_t slow, std::uint64_t page_bytes = 4096)
      : capacity_{fast, slow}, page_bytes_(page_bytes) {}

  // What the test does to it.

  /// First touch: places the page in `tier`, or the other one when that is full; in a unit, where
  /// the rest of it is.
  void touch(PageId page, Tier tier) {
    if (where_.contains(page)) return;
    const PageRange unit = this->unit(page);
    const auto rest = where_.lower_bound(unit.first);
    if (rest != where_.end() && rest->first < unit.end()) {
      tier = rest->second;
    } else if (free_pages(tier) == 0) {
      tier = other(tier);
    }
    where_[page] = tier;
  }
  /// Somebody else moves the page's unit to the other tier, if there is room, and nobody is told.
  void move_unasked(PageId page) {
    const auto at = where_.find(page);
    if (at == where_.end()) return;
    const std::uint64_t moved = move_unit(page, other(at->second));
    now.moved_by_others += static_cast<double>(moved);
  }
  /// An operator's doing. The policy is told by the test.
  void set_capacity(Tier tier, std::uint64_t pages) { capacity_[index(tier)] = pages; }
  void free(PageRange range) {
    for (auto it = where_.lower_bound(range.first);
         it != where_.end() && it->first < range.end();) {
      protected_at_.erase(it->first);
      idle_.erase(it->first);
      it = where_.erase(it);
    }
  }
  /// An access at this time: a fault if the page is protected. Its accessed bit is set.
  std::optional<Fault> access(PageId page, AccessKind kind, Nanos now) {
    idle_.erase(unit(page).first);
    const auto at = protected_at_.find(page);
    if (at == protected_at_.end()) return std::nullopt;
    const Fault fault{page, where_.at(page), kind, now - at->second};
    protected_at_.erase(at);
    return fault;
  }
  [[nodiscard]] bool is_protected(PageId page) const { return protected_at_.contains(page); }
  /// Answers the oldest call of probe(): the pages of which `accessed` says so, as far as they are
  /// still there.
  std::vector<Probe> answer(const std::function<bool(PageId)>& accessed) {
    std::vector<Probe> probes = std::move(rounds.front());
    rounds.pop_front();
    for (Probe& probe : probes)
      probe.accessed = where_.contains(probe.page) && accessed(probe.page);
    return probes;
  }
  /// The page's group is mapped as a huge page; what is there of it is brought together first, if
  /// there is room.
  void make_huge(PageId page) {
    const std::uint64_t group = page.value / unit_pages;
    const PageRange unit{{group * unit_pages}, unit_pages};
    std::array<std::uint64_t, tier_count> in{};
    each(unit, [&](PageId, Tier tier) { ++in[index(tier)]; });
    for (const Tier to : {Tier::fast, Tier::slow}) {
      if (in[index(other(to))] > free_pages(to)) continue;
      each(unit, [&](PageId each_page, Tier) { where_[each_page] = to; });
      huge_.insert(group);
      return;
    }
  }
  void make_small(PageId page) { huge_.erase(page.value / unit_pages); }
  /// Whether each unit is in one tier, as far as it is there.
  [[nodiscard]] bool units_are_whole() const {
    return std::ranges::all_of(where_, [&](const auto& item) {
      const auto first = where_.lower_bound(unit(item.first).first);
      return first->second == item.second;
    });
  }
  /// Carries out what was asked of units, in order. A group of which a page is gone cannot be
  /// collapsed; of a unit that is half freed the rest is split.
  std::vector<MigrationResult> complete_reshapes() {
    std::vector<MigrationResult> results;
    for (const auto& [change, page] : reshapes) {
      const std::uint64_t group = page.value / unit_pages;
      std::uint64_t there = 0;
      for (std::uint64_t i = 0; i < unit_pages; ++i)
        there += where_.contains({group * unit_pages + i}) ? 1 : 0;
      MigrationResult result{page, Tier::fast, Outcome::gone, change, Nanos{30000}};
      if (there > 0) {
        const auto first = where_.lower_bound({group * unit_pages});
        result.to = first->second;
        result.outcome = Outcome::done;
        if (change == Change::split) {
          huge_.erase(group);
        } else {
          if (there == unit_pages) make_huge(page);
          if (!huge_.contains(group)) result.outcome = Outcome::busy;
          result.to = first->second;
        }
      }
      results.push_back(result);
    }
    reshapes.clear();
    return results;
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
      } else if (outcome == Outcome::done && where_.at(page) != to && move_unit(page, to) == 0) {
        outcome = Outcome::no_space;
      }
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
  [[nodiscard]] std::uint64_t work(Work kind, Payer by = Payer::daemon) const {
    return (by == Payer::daemon ? charged : charged_application)[static_cast<std::size_t>(kind)];
  }

  std::uint64_t unit_pages = 512;  // of a huge page
  std::deque<std::pair<PageId, Tier>> queue;
  std::size_t queue_limit = SIZE_MAX;
  std::vector<std::pair<PageId, Tier>> requested;  // everything ever asked for, in order
  std::vector<SamplingRequest> sampling;           // every request made
  std::function<SamplingRequest(const SamplingRequest&)> grant;  // all, if empty
  std::function<Movers(const Movers&)> grant_movers;             // likewise
  Counters now;                                                  // what counters() answers
  double protect_seconds_a_page = 0;
  std::array<std::uint64_t, work_count> charged{};
  std::array<std::uint64_t, work_count> charged_application{};
  Nanos clock{};                                 // when pages are protected
  std::map<PageId, std::uint64_t> faults_again;  // by page
  std::deque<std::vector<Probe>> rounds;         // probes without an answer
  std::vector<std::pair<Change, PageId>> reshapes;
  std::vector<Movers> movers;  // every request made
  Watermarks marks;
  std::uint64_t request_calls = 0;
  std::uint64_t accessed_calls = 0;
  mutable std::uint64_t residency_calls = 0;

  // The seam.

  std::uint64_t page_bytes() const override { return page_bytes_; }
  std::uint64_t capacity(Tier tier) const override { return capacity_[index(tier)]; }
  std::uint64_t free_pages(Tier tier) const override {
    const std::uint64_t most = capacity(tier);
    return most - std::min(most, used(tier));
  }
  std::uint64_t excess_pages(Tier tier) const override {
    return used(tier) - std::min(used(tier), capacity(tier));
  }
  void residency(std::span<const PageId> pages, std::span<Residency> out) const override {
    ++residency_calls;
    for (std::size_t i = 0; i < pages.size(); ++i) out[i] = where(pages[i]);
  }
  void residency(PageId first, std::span<Residency> out) const override {
    ++residency_calls;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = where({first.value + i});
  }
  PageRange unit(PageId page) const override {
    const std::uint64_t group = page.value / unit_pages;
    if (!huge_.contains(group)) return {page, 1};
    return {{group * unit_pages}, unit_pages};
  }
  std::size_t request(Tier to, std::span<const PageId> pages, Way way) override {
    ++request_calls;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      const auto latest = std::find_if(queue.rbegin(), queue.rend(),
                                       [&](const auto& item) { return item.first == pages[i]; });
      const bool there = latest != queue.rend() ? latest->second == to
                                                : where(pages[i]) == static_cast<Residency>(to);
      requested.emplace_back(pages[i], to);
      if (there) continue;
      if (queue.size() >= queue_limit) return i;
      if (way == Way::in_fault) {
        queue.emplace_front(pages[i], to);
      } else {
        queue.emplace_back(pages[i], to);
      }
    }
    return pages.size();
  }
  std::uint64_t pending(Tier to) const override { return queued(to).size(); }
  SamplingRequest set_sampling(const SamplingRequest& request) override {
    sampling.push_back(request);
    return grant ? grant(request) : request;
  }
  Counters counters() const override { return now; }
  Movers set_movers(const Movers& request) override {
    movers.push_back(request);
    return grant_movers ? grant_movers(request) : request;
  }
  void set_watermarks(const Watermarks& request) override { marks = request; }
  std::size_t reshape(Change to, std::span<const PageId> units) override {
    for (const PageId page : units) reshapes.emplace_back(to, page);
    return units.size();
  }
  std::uint64_t protect(PageRange range, Tiers which, PageMask untouched) override {
    std::ranges::fill(untouched, 0);
    std::uint64_t count = 0;
    each(range, [&](PageId page, Tier tier) {
      if (!includes(which, tier)) return;
      if (protected_at_.try_emplace(page, clock).second) {
        ++count;
      } else {
        set(untouched, page.value - range.first.value);
      }
    });
    now.protect_seconds += static_cast<double>(count) * protect_seconds_a_page;
    return count;
  }
  void fault_again(PageId page, std::uint32_t times) override { faults_again[page] += times; }
  void leave_protected(std::span<const PageId> pages) override {
    for (const PageId page : pages) protected_at_.try_emplace(page, clock);
  }
  /// A unit has one bit, its first page's.
  void accessed(PageRange range, PageMask out, bool clear) override {
    ++accessed_calls;
    std::ranges::fill(out, 0);
    each(range, [&](PageId page, Tier) {
      if (!idle_.contains(unit(page).first)) set(out, page.value - range.first.value);
    });
    if (clear) each(range, [&](PageId page, Tier) { idle_.insert(unit(page).first); });
  }
  void accessed(std::span<const PageId> pages, PageMask out, bool clear) override {
    ++accessed_calls;
    std::ranges::fill(out, 0);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      if (!where_.contains(pages[i])) continue;
      const PageId bit = unit(pages[i]).first;
      if (!idle_.contains(bit)) set(out, i);
      if (clear) idle_.insert(bit);
    }
  }
  void probe(std::span<const Probe> probes) override {
    rounds.emplace_back(probes.begin(), probes.end());
  }
  Nanos quantum() const override { return from_millis(10); }
  std::string_view site(std::uint32_t id) const override { return id == 1 ? "arena" : ""; }
  void charge(Work kind, std::uint64_t times, Payer by) override {
    (by == Payer::daemon ? charged : charged_application)[static_cast<std::size_t>(kind)] += times;
  }

  [[nodiscard]] std::uint64_t used(Tier tier) const {
    return static_cast<std::uint64_t>(
        std::ranges::count_if(where_, [&](const auto& item) { return item.second == tier; }));
  }

 private:
  /// All of the page's unit, or nothing; returns how many pages moved.
  std::uint64_t move_unit(PageId page, Tier to) {
    std::vector<PageId> pages;
    each(unit(page), [&](PageId each_page, Tier from) {
      if (from != to) pages.push_back(each_page);
    });
    if (pages.size() > free_pages(to)) return 0;
    for (const PageId each_page : pages) where_[each_page] = to;
    return pages.size();
  }
  template <typename Visit>
  void each(PageRange range, Visit visit) {
    for (auto it = where_.lower_bound(range.first); it != where_.end() && it->first < range.end();
         ++it)
      visit(it->first, it->second);
  }
  static void set(PageMask mask, std::uint64_t page) {
    if (!mask.empty()) mask[page / 64] |= std::uint64_t{1} << (page % 64);
  }

  std::map<PageId, Tier> where_;
  std::map<PageId, Nanos> protected_at_;
  std::set<PageId> idle_;
  std::set<std::uint64_t> huge_;  // groups
  std::array<std::uint64_t, tier_count> capacity_;
  std::uint64_t page_bytes_;
};

/// A future for oracles: what each page saves in each block of 100 ms. It has to stay where it is.
struct FakeFuture {
  FakeFuture() = default;
  FakeFuture(std::uint64_t pages, std::uint64_t blocks)
      : saved(blocks, std::vector<float>(pages)),
        lives(pages, {0, static_cast<std::uint32_t>(blocks)}) {}
  FakeFuture(const FakeFuture&) = delete;
  FakeFuture& operator=(const FakeFuture&) = delete;

  std::vector<std::vector<float>> saved;  // ns, by block and page
  std::vector<Oracle::Life> lives;
  std::vector<std::uint64_t> accesses;
  std::vector<double> block_ns;
  std::uint64_t next_block = 0;
  double move_ns = 1000, mover_ns = 1e6;

  [[nodiscard]] Oracle oracle() {
    block_ns.assign(saved.size(), 1e8);
    return {.accesses = accesses,
            .block_ns = block_ns,
            .lives = lives,
            .saved =
                [this](std::uint64_t first, std::uint64_t last, std::span<float> out) {
                  for (; first < last; ++first)
                    for (std::size_t page = 0; page < out.size(); ++page)
                      out[page] += saved[first][page];
                },
            .next_block = [this] { return next_block; },
            .move_ns = move_ns,
            .mover_ns = mover_ns};
  }
  /// Two halves: ever more is saved by ever fewer pages, first from page 0 on, then from `second`.
  static std::unique_ptr<FakeFuture> two_phases(std::uint64_t pages, std::uint64_t second) {
    constexpr std::uint64_t blocks = 40;
    auto future = std::make_unique<FakeFuture>(pages, blocks);
    for (std::uint64_t b = 0; b < blocks; ++b)
      for (std::uint64_t page = 0; page < pages; ++page)
        future->saved[b][(page + (b < blocks / 2 ? 0 : second)) % pages] =
            1e7F / static_cast<float>(page + 1);
    return future;
  }
};

/// A policy on a fake memory, and the clock that drives both.
struct Rig {
  std::unique_ptr<FakeMemory> owned;  // the policy keeps its address while the rig moves
  FakeMemory& memory;
  const PolicyInfo& info;
  Knobs knobs;
  std::unique_ptr<FakeFuture> future;
  Oracle oracle;
  std::unique_ptr<Policy> policy;
  // Where there are hint faults a first scan may be due.
  Nanos now = includes(info.traits.needs, Need::faults) ? 2 * migrate::ScanClock::delay : Nanos{};
  Nanos ticked = now;

  Rig(const std::string& name, const KnobMap& given, std::uint64_t fast, std::uint64_t slow,
      std::uint64_t page_bytes = 4096, std::vector<std::uint64_t> oracle_accesses = {})
      : owned(std::make_unique<FakeMemory>(fast, slow, page_bytes)),
        memory(*owned),
        info(tt::policy(name)),
        knobs(resolve(info.knobs, given)),
        future(FakeFuture::two_phases(std::max<std::size_t>(oracle_accesses.size(), 100), 40)),
        oracle(told(std::move(oracle_accesses))),
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
        future(FakeFuture::two_phases(fast + slow, 40)),
        oracle(told({})),
        policy(info.make({memory, knobs, &oracle, 1})) {}

  Oracle told(std::vector<std::uint64_t> accesses) {
    future->accesses = std::move(accesses);
    return future->oracle();
  }
  /// Maps a range and touches its pages in order, as the policy places them.
  void map(std::uint64_t first, std::uint64_t count) {
    const PageRange range{{first}, count};
    policy->on_map(range, 0, now);
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
      memory.clock = now;
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
