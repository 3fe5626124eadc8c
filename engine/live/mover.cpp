// SPDX-License-Identifier: MIT

#include "live/mover.hpp"

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "core/assert.hpp"

namespace tt::live {
namespace {

Residency in(Tier tier) { return static_cast<Residency>(tier); }

/// Errors of a whole call after which every other one would fail, too.
void refuse(long result, int pid) {
  const std::string what = "the pages of process " + std::to_string(pid) + ": ";
  switch (-result) {
    case EPERM:
      throw NotAllowed(what +
                       "not permitted; it takes CAP_SYS_PTRACE, or a process of the same user");
    case EACCES:
      throw NotAllowed(what + "a tier's node is not in its cpuset (cpuset.mems)");
    case ENODEV:
      throw NotAllowed(what + "a tier's node has gone");
    case ENOSYS:
      throw NotAllowed(what + "this kernel has no move_pages (CONFIG_MIGRATION)");
    default:
      return;
  }
}

}  // namespace

MoveCounts& MoveCounts::operator+=(const MoveCounts& other) {
  calls += other.calls;
  queries += other.queries;
  for (std::size_t tier = 0; tier < tier_count; ++tier) moved[tier] += other.moved[tier];
  for (const auto& [error, pages] : other.failed) failed[error] += pages;
  no_room += other.no_room;
  held += other.held;
  gone += other.gone;
  unreported += other.unreported;
  busy += other.busy;
  longest = std::max(longest, other.longest);
  return *this;
}

Mover::Mover(KernelCalls& kernel, const Nodes& nodes, Level fast, Blocks& blocks,
             const Options& options)
    : kernel_(kernel), nodes_(nodes), fast_(fast), blocks_(blocks), options_(options) {}

std::size_t Mover::request(Tier to, std::span<const PageId> pages) {
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const PageRange unit = blocks_.unit(pages[i]);
    Residency next = at(pages[i]);
    if (next == Residency::absent || asked_[index(to)].contains(unit.first)) continue;
    if (asked_[index(other(to))].contains(unit.first)) next = in(other(to));
    if (next == in(to)) continue;
    if (queue_.size() >= options_.most_queued) return i;
    queue_.push_back({unit.first, to, unit.count});
    asked_[index(to)].insert(unit.first);
    pending_[index(to)] += unit.count;
  }
  return pages.size();
}

void Mover::took(const Ask& ask) {
  TT_ASSERT(pending_[index(ask.to)] >= ask.pages);
  pending_[index(ask.to)] -= ask.pages;
  asked_[index(ask.to)].erase(ask.page);
}

void Mover::forget(std::span<const PageRange> blocks) {
  if (blocks.empty() || (queue_.empty() && doubtful_.empty() && held_.empty())) return;
  std::unordered_set<PageId> gone;
  for (const PageRange block : blocks) gone.insert(block.first);
  const auto is_gone = [&](PageId page) {
    return gone.contains({page.value - page.value % block_pages});
  };
  std::erase_if(doubtful_, is_gone);
  std::erase_if(held_, [&](const auto& held) { return is_gone(held.first); });
  std::erase_if(queue_, [&](const Ask& ask) {
    if (!is_gone(ask.page)) return false;
    took(ask);
    return true;
  });
}

/// What waits at the front to go to the tier, by process, for at most a batch of pages. What is
/// there already, is gone, or has no room, is told at once.
std::vector<Mover::Call> Mover::take(Tier to, std::uint64_t room, Nanos now,
                                     std::vector<MigrationResult>& out) {
  std::vector<Call> calls;
  std::unordered_set<PageId> parted;  // blocks for all of which there is room
  std::uint64_t amount = 0;
  while (!queue_.empty() && queue_.front().to == to && amount < options_.batch) {
    const Ask ask = queue_.front();
    queue_.pop_front();
    took(ask);
    const std::uint64_t pages = blocks_.unit(ask.page).count;
    std::uint64_t needed = pages;
    const Residency there = at(ask.page);
    const auto held = held_.find(ask.page);
    const PageId block{ask.page.value - ask.page.value % block_pages};
    if (parted.contains(block)) {
      needed = 0;
    } else if (there != Residency::absent && blocks_.in_parts(block)) {
      const auto comes = [&](PageId page) { return at(page) != in(to); };
      needed = static_cast<std::uint64_t>(std::ranges::count_if(populated(block), comes));
    }
    MigrationResult result{.page = ask.page, .to = to};
    if (there == Residency::absent) {
      counts_.gone += pages;
      result.outcome = Outcome::gone;
    } else if (there == in(to)) {
      result.outcome = Outcome::done;  // somebody else has moved it
    } else if (held != held_.end() && now < held->second.until) {
      counts_.held += pages;
      result.outcome = Outcome::busy;
    } else if (needed > room - std::min(room, amount)) {
      counts_.no_room += pages;
      result.outcome = Outcome::no_space;
    } else {
      const int pid = blocks_.pid(ask.page);
      auto call = std::ranges::find(calls, pid, &Call::pid);
      if (call == calls.end()) {
        calls.push_back({.pid = pid});
        call = calls.end() - 1;
      }
      call->pages.push_back(ask.page);
      call->addresses.push_back(blocks_.address(ask.page));
      call->amount += pages;
      amount += needed;
      if (blocks_.in_parts(block)) parted.insert(block);
      continue;
    }
    out.push_back(result);
  }
  return calls;
}

std::uint64_t Mover::usable(const NodePages& pages) const {
  const auto spare = static_cast<std::uint64_t>(options_.spare * static_cast<double>(pages.total));
  return pages.free - std::min(pages.free, spare);
}

/// The first node of the tier that has room for so many pages, else that with the most, and how
/// many it takes; none if all are full, or do not say.
Mover::Target Mover::target(Tier to, std::uint64_t amount) {
  Target found;
  for (const int node : nodes_.of[level(to)]) {
    NodePages pages;
    if (const int error = node_pages(kernel_, node, pages); error != 0) {
      failed(error, 0);
      continue;
    }
    if (const std::uint64_t room = usable(pages); room > found.room) found = {node, room};
    if (found.room >= amount) break;
  }
  return found;
}

/// Takes out pages from the end until the others fit into the room.
void Mover::leave_out_last(Call& call, Tier to, std::uint64_t room,
                           std::vector<MigrationResult>& out) {
  while (call.amount > room && !call.pages.empty()) {
    const PageId page = call.pages.back();
    const std::uint64_t pages = blocks_.unit(page).count;
    call.amount -= pages;
    counts_.no_room += pages;
    out.push_back({.page = page, .to = to, .outcome = Outcome::no_space});
    call.pages.pop_back();
    call.addresses.pop_back();
  }
}

bool Mover::step(Nanos now, const std::function<std::uint64_t(Tier)>& room,
                 std::vector<MigrationResult>& out) {
  if (queue_.empty()) return false;
  const Tier to = queue_.front().to;
  const bool full = now < full_until_[index(to)];
  for (Call& call : take(to, full ? 0 : room(to), now, out)) make(call, to, now, out);
  return true;
}

void Mover::make(Call& call, Tier to, Nanos now, std::vector<MigrationResult>& out) {
  if (to == Tier::fast) leave_out_grown(call, to, out);
  const auto [node, room] = target(to, call.amount);
  leave_out_last(call, to, room, out);
  if (call.pages.empty()) return;
  const std::vector<int> nodes(call.pages.size(), node);
  call.statuses.assign(call.pages.size(), unwritten);
  const Nanos began = kernel_.now();
  call.result = kernel_.move_pages(call.pid, call.addresses, nodes, call.statuses);
  const Nanos took = kernel_.now() - began;
  ++counts_.calls;
  counts_.busy += took;
  counts_.longest = std::max(counts_.longest, took);
  refuse(call.result, call.pid);
  Nanos& wait = wait_[index(to)];
  if (call.result == -ENOMEM) {
    wait = wait == Nanos{} ? options_.first_wait : std::min(2 * wait, options_.longest_wait);
    full_until_[index(to)] = now + wait;
  } else if (call.result >= 0) {
    wait = {};
  }
  const auto silent = std::ranges::count(call.statuses, unwritten);
  counts_.unreported += static_cast<std::uint64_t>(silent);
  if (call.result != 0 || silent > 0) {
    call.answers.assign(call.pages.size(), unwritten);
    ++counts_.queries;
    const long asked = kernel_.move_pages(call.pid, call.addresses, {}, call.answers);
    if (asked == -ESRCH) std::ranges::fill(call.answers, -ENOENT);
  }
  const Nanos cost = took / static_cast<std::int64_t>(std::max<std::uint64_t>(call.amount, 1));
  for (std::size_t i = 0; i < call.pages.size(); ++i)
    out.push_back(
        {.page = call.pages[i], .to = to, .outcome = outcome(call, i, to, now), .cost = cost});
  look_at_parts(call, to);
}

/// Takes out pages of which there may be more than room is kept for: of blocks that are huge by
/// now, or of which that cannot be told.
void Mover::leave_out_grown(Call& call, Tier to, std::vector<MigrationResult>& out) {
  std::unordered_map<PageId, bool> grown;  // by block
  std::vector<Populated> runs;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < call.pages.size(); ++i) {
    const PageId page = call.pages[i];
    const PageRange unit = blocks_.unit(page);
    const PageId block{page.value - page.value % block_pages};
    const auto [at, fresh] = grown.try_emplace(block, false);
    if (fresh && unit.count == 1) {
      runs.clear();
      const std::uint64_t begin = blocks_.address(block);
      const int error = kernel_.populated(call.pid, begin, begin + block_bytes, runs);
      at->second = error != 0 || std::ranges::any_of(runs, &Populated::huge);
    }
    if (at->second) {
      call.amount -= unit.count;
      counts_.held += unit.count;
      out.push_back({.page = page, .to = to, .outcome = Outcome::busy});
      continue;
    }
    call.pages[kept] = page;
    call.addresses[kept++] = call.addresses[i];
  }
  call.pages.resize(kept);
  call.addresses.resize(kept);
}

/// The known pages of a block.
std::vector<PageId> Mover::populated(PageId block) const {
  std::vector<PageId> out;
  for (std::uint64_t i = 0; i < block_pages; ++i)
    if (blocks_.at({block.value + i}) != nowhere) out.push_back({block.value + i});
  return out;
}

/// Which other pages of huge pages that are mapped in parts have moved, too.
void Mover::look_at_parts(const Call& call, Tier to) {
  std::unordered_set<PageId> blocks;
  for (const PageId page : call.pages) {
    const PageId block{page.value - page.value % block_pages};
    if (!blocks_.known(page) || !blocks_.in_parts(page) || !blocks.insert(block).second) continue;
    const std::vector<PageId> pages = populated(block);
    const auto there = [&] {
      return static_cast<std::uint64_t>(
          std::ranges::count_if(pages, [&](PageId each) { return at(each) == in(to); }));
    };
    const std::uint64_t before = there();
    if (locate(pages) != 0) continue;
    const std::uint64_t after = there();
    if (after > before) counts_.moved[index(to)] += after - before;
  }
}

void Mover::hold(PageId page, Nanos now) {
  Hold& held = held_[page];
  held.wait =
      held.wait == Nanos{} ? options_.first_hold : std::min(2 * held.wait, options_.longest_hold);
  held.until = now + held.wait;
}

/// What has become of a page, which is placed where it is now.
Outcome Mover::outcome(const Call& call, std::size_t at, Tier to, Nanos now) {
  const PageId page = call.pages[at];
  const std::uint64_t pages = blocks_.unit(page).count;
  const int status = call.statuses[at];
  const bool asked = !call.answers.empty() && call.answers[at] != unwritten;
  const int truth = asked ? call.answers[at] : status;
  if (truth == unwritten) {
    if (to == Tier::fast) blocks_.place(page, fast_);
    doubtful_.push_back(page);
    failed(EBUSY, pages);
    return Outcome::busy;
  }
  if (truth == -ENOENT || truth == -EFAULT || truth >= 0) {
    const Level there = truth >= 0 ? nodes_.level(truth) : nowhere;
    blocks_.place(page, there);
    if (residency(there) == Residency::absent) {
      counts_.gone += pages;
      held_.erase(page);
      return Outcome::gone;
    }
    if (there == level(to)) {
      held_.erase(page);
      counts_.moved[index(to)] += pages;
      return Outcome::done;
    }
  }
  int error = EBUSY;
  if (status < 0 && status != unwritten) {
    error = -status;
  } else if (call.result == -ENOMEM) {
    error = ENOMEM;
  }
  failed(error, pages);
  if (error == ENOMEM) return Outcome::no_space;
  hold(page, now);
  return Outcome::busy;
}

int Mover::locate(std::span<const PageId> pages) {
  int first_error = 0;
  std::vector<std::uint64_t> addresses;
  std::vector<int> answers;
  while (!pages.empty()) {
    const int pid = blocks_.pid(pages.front());
    std::size_t count = 0;
    addresses.clear();
    for (; count < pages.size() && count < options_.batch && blocks_.pid(pages[count]) == pid;
         ++count)
      addresses.push_back(blocks_.address(pages[count]));
    answers.assign(count, unwritten);
    ++counts_.queries;
    const long result = kernel_.move_pages(pid, addresses, {}, answers);
    refuse(result, pid);
    if (result != 0 && first_error == 0) first_error = result < 0 ? static_cast<int>(-result) : EIO;
    for (std::size_t i = 0; i < count; ++i) {
      if (answers[i] == unwritten) continue;
      blocks_.place(pages[i], answers[i] >= 0 ? nodes_.level(answers[i]) : nowhere);
    }
    pages = pages.subspan(count);
  }
  return first_error;
}

void Mover::settle_doubtful() {
  std::vector<PageId> pages = std::exchange(doubtful_, {});
  std::erase_if(pages, [&](PageId page) { return !blocks_.known(page); });
  if (locate(pages) != 0) doubtful_.insert(doubtful_.end(), pages.begin(), pages.end());
}

}  // namespace tt::live
