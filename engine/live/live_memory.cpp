// SPDX-License-Identifier: MIT

#include "live/live_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "core/assert.hpp"
#include "live/mappings.hpp"

namespace tt::live {

LiveMemory::LiveMemory(KernelCalls& kernel, const Nodes& nodes, const Options& options,
                       SampleSource* source)
    : LiveMemory(kernel, std::make_shared<Shared>(Shared{.nodes = nodes}), 0, options, source) {}

LiveMemory::LiveMemory(LiveMemory& above, SampleSource* source)
    : LiveMemory(above.kernel_, above.shared_, above.mover_.level(Tier::slow),
                 {.quantum = above.options_.quantum, .mover = above.options_.mover}, source) {}

LiveMemory::LiveMemory(KernelCalls& kernel, std::shared_ptr<Shared> shared, Level fast,
                       const Options& options, SampleSource* source)
    : kernel_(kernel),
      shared_(std::move(shared)),
      options_(options),
      source_(source),
      mover_(kernel, shared_->nodes, fast, shared_->blocks, options.mover),
      fast_limit_(options.fast_limit) {
  for (const Tier tier : {Tier::fast, Tier::slow}) {
    for (const int node : shared_->nodes.of[mover_.level(tier)]) {
      NodePages pages;
      if (const int error = node_pages(kernel_, node, pages); error != 0)
        throw std::runtime_error("the size of node " + std::to_string(node) + ": " +
                                 std::generic_category().message(error));
    }
  }
  read_nodes();
}

/// A node that does not answer keeps its size, and has nothing free. Free is what the mover would
/// take: a policy that sees more waits with its demotions for promotions that are refused.
void LiveMemory::read_nodes() {
  for (const Tier tier : {Tier::fast, Tier::slow}) {
    NodePages sum;
    bool all = true;
    for (const int node : shared_->nodes.of[mover_.level(tier)]) {
      NodePages pages;
      all = node_pages(kernel_, node, pages) == 0 && all;
      sum.total += pages.total;
      sum.free += mover_.usable(pages);
    }
    NodePages& known = nodes_have_[index(tier)];
    known = {all ? sum.total : std::max(known.total, sum.total), sum.free};
  }
}

int LiveMemory::look_at(int pid, BlockChanges& changes, bool& ended) {
  std::string maps;
  std::vector<Populated> runs;
  int error = kernel_.read("/proc/" + std::to_string(pid) + "/maps", maps);
  if (error == 0) {
    try {
      for (const Mapping& mapping : own_memory(maps)) {
        // What was unmapped meanwhile has no pages.
        error = kernel_.populated(pid, mapping.begin, mapping.end, runs);
        if (error != 0) break;
      }
    } catch (const std::runtime_error&) {
      return EINVAL;
    }
  }
  ended = error == ESRCH || error == ENOENT;
  if (ended) runs.clear();
  if (error != 0 && !ended) return error;
  shared_->blocks.update(pid, runs, changes);
  return 0;
}

void LiveMemory::follow(std::span<const int> pids) {
  thread_.check();
  for (const int pid : pids_)
    if (std::ranges::find(pids, pid) == pids.end()) left_.push_back(pid);
  pids_.assign(pids.begin(), pids.end());
}

int LiveMemory::look(BlockChanges& changes) {
  thread_.check();
  int first_error = 0;
  for (const int pid : std::exchange(left_, {})) shared_->blocks.update(pid, {}, changes);
  std::erase_if(pids_, [&](int pid) {
    bool ended = false;
    const int error = look_at(pid, changes, ended);
    if (first_error == 0) first_error = error;
    return ended;
  });
  unplaced_.assign(changes.unplaced.rbegin(), changes.unplaced.rend());
  place_error_ = 0;
  const Nanos found = kernel_.now();
  place_some();
  placing_time_ = kernel_.now() - found;
  return first_error == 0 ? place_error_ : first_error;
}

void LiveMemory::tell(const BlockChanges& changes, Policy& policy, Nanos now) {
  thread_.check();
  mover_.forget(changes.unmapped);
  mover_.settle_doubtful();
  read_nodes();
  for (const PageRange range : changes.unmapped) policy.on_unmap(range, now);
  for (const PageRange range : changes.mapped) policy.on_map(range, 0, now);
}

bool LiveMemory::place_some() {
  thread_.check();
  constexpr std::size_t most = 1 << 16;
  const std::size_t count = std::min(most, unplaced_.size());
  const auto first = unplaced_.end() - static_cast<std::ptrdiff_t>(count);
  std::vector<PageId> pages(std::make_reverse_iterator(unplaced_.end()),
                            std::make_reverse_iterator(first));
  unplaced_.erase(first, unplaced_.end());
  std::erase_if(pages, [&](PageId page) { return !shared_->blocks.known(page); });
  // A process may have ended since; the next look sees that.
  const int error = mover_.locate(pages);
  if (place_error_ == 0 && error != ESRCH) place_error_ = error;
  return !unplaced_.empty();
}

void LiveMemory::verify(std::uint64_t pages) {
  thread_.check();
  std::vector<PageId> asked;
  std::vector<Level> before;
  const std::uint64_t all = shared_->blocks.numbers();
  for (std::uint64_t seen = 0; seen < all && asked.size() < pages; ++seen) {
    next_verified_ = next_verified_ < all ? next_verified_ : 0;
    const PageId page{next_verified_};
    const PageRange unit = shared_->blocks.unit(page);
    next_verified_ = unit.end().value;
    if (shared_->blocks.at(page) == nowhere) continue;
    asked.push_back(unit.first);
    before.push_back(shared_->blocks.at(page));
  }
  (void)mover_.locate(asked);  // what is not told stays as it was, and has its turn again
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const Level now = shared_->blocks.at(asked[i]);
    if (now != before[i] && now != nowhere)
      shared_->moved_by_others += static_cast<double>(shared_->blocks.unit(asked[i]).count);
  }
}

bool LiveMemory::move(Policy& policy, Nanos now) {
  thread_.check();
  std::vector<MigrationResult> results;
  mover_.settle_doubtful();
  read_nodes();
  const bool any = mover_.step(now, [this](Tier tier) { return free_pages(tier); }, results);
  if (!results.empty()) {
    read_nodes();
    policy.on_migrated(results, now);
  }
  return any;
}

void LiveMemory::press(Policy& policy, Nanos now) {
  thread_.check();
  const auto free = static_cast<double>(free_pages(Tier::fast));
  if (free < marks_.wake * static_cast<double>(capacity(Tier::fast)))
    policy.on_pressure(Tier::fast, now);
}

void LiveMemory::limit_fast(std::uint64_t pages, Policy& policy, Nanos now) {
  thread_.check();
  fast_limit_ = pages;
  policy.on_capacity(Tier::fast, now);
}

bool LiveMemory::sample(int pid, std::uint64_t address, AccessKind kind, Sample& out) const {
  PageId page;
  if (!shared_->blocks.find(pid, address, page)) return false;
  const Level at = shared_->blocks.at_known(page);
  if (at == nowhere) return false;
  if (levels() > tier_count) shared_->accesses.saw(at, kind);
  out = {page, at == 0 ? Tier::fast : Tier::slow, kind};
  return true;
}

void LiveMemory::share_accesses() {
  if (levels() == tier_count || source_ == nullptr) return;
  Counters all;
  source_->count(all);
  shared_->accesses.share(all);
}

std::span<const Sample> LiveMemory::own(std::span<const Sample> samples,
                                        std::vector<Sample>& room) const {
  if (levels() == tier_count) return samples;
  room.clear();
  for (const Sample& sample : samples)
    if (const Residency at = mover_.residency(shared_->blocks.at(sample.page));
        at != Residency::absent)
      room.push_back({sample.page, static_cast<Tier>(at), sample.kind});
  return room;
}

std::uint64_t LiveMemory::capacity(Tier tier) const {
  const std::uint64_t total = nodes_have_[index(tier)].total;
  return tier == Tier::fast ? std::min(total, fast_limit_) : total;
}

std::uint64_t LiveMemory::free_pages(Tier tier) const {
  const std::uint64_t most = capacity(tier);
  const std::uint64_t free =
      std::min(most - std::min(most, used(tier)), nodes_have_[index(tier)].free);
  // A policy that waits for a full tier would not see that none of its huge pages fits.
  return shared_->blocks.huge() > 0 && free < block_pages ? 0 : free;
}

std::uint64_t LiveMemory::excess_pages(Tier tier) const {
  const std::uint64_t pages = used(tier);
  return pages - std::min(pages, capacity(tier));
}

void LiveMemory::residency(std::span<const PageId> pages, std::span<Residency> out) const {
  TT_ASSERT(pages.size() == out.size());
  for (std::size_t i = 0; i < pages.size(); ++i)
    out[i] = mover_.residency(shared_->blocks.at(pages[i]));
}

void LiveMemory::residency(PageId first, std::span<Residency> out) const {
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = mover_.residency(shared_->blocks.at({first.value + i}));
}

std::size_t LiveMemory::request(Tier to, std::span<const PageId> pages, Way) {
  thread_.check();
  return mover_.request(to, pages);
}

Movers LiveMemory::set_movers(const Movers&) { return {.threads = 0}; }

SamplingRequest LiveMemory::set_sampling(const SamplingRequest& request) {
  return source_ == nullptr ? SamplingRequest{} : source_->grant(request);
}

Counters LiveMemory::counters() const {
  Counters out;
  if (source_ != nullptr) source_->count(out);
  if (levels() > tier_count) {
    out.loads = out.stores = {};
    shared_->accesses.count(out, level());
  }
  out.moved_by_others = shared_->moved_by_others;
  out.sampling_seconds = seconds(sampling_time_);
  return out;
}

}  // namespace tt::live
