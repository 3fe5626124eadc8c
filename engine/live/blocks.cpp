// SPDX-License-Identifier: MIT

#include "live/blocks.hpp"

#include <algorithm>
#include <bit>
#include <bitset>

#include "core/assert.hpp"

namespace tt::live {

/// A block as a look sees it.
struct Blocks::Found {
  std::uint64_t address = 0;
  bool huge = false;
  std::bitset<block_pages> populated;
};

void Blocks::update(int pid, std::span<const Populated> runs, BlockChanges& out) {
  ++look_;
  const std::size_t mapped = out.mapped.size(), unmapped = out.unmapped.size();
  Found block;
  const auto end_of_block = [&] {
    if (block.populated.any()) found(pid, block, out);
    block = {};
  };
  for (const Populated& run : runs) {
    for (std::uint64_t at = run.begin; at < run.end;) {
      const std::uint64_t address = at - at % block_bytes;
      const std::uint64_t until = std::min(address + block_bytes, run.end);
      if (block.address != address) end_of_block();
      block.address = address;
      block.huge = run.huge && until - at == block_bytes;
      for (; at < until; at += base_page_bytes)
        block.populated.set((at - address) / base_page_bytes);
    }
  }
  end_of_block();
  const auto known = by_address_.find(pid);
  if (known == by_address_.end()) return;
  for (auto item = known->second.begin(); item != known->second.end();) {
    Block& gone = blocks_[item->second];
    if (gone.look == look_) {
      ++item;
      continue;
    }
    for (Level& page : gone.at) set(page, nowhere);
    gone.pid = 0;
    huge_ -= gone.huge ? 1 : 0;
    gone.huge = false;
    free_.push_back(item->second);
    out.unmapped.push_back({{item->second * block_pages}, block_pages});
    item = known->second.erase(item);
  }
  if (known->second.empty()) by_address_.erase(known);
  if (out.mapped.size() != mapped || out.unmapped.size() != unmapped) index_blocks();
  TT_ASSERT_FULL(consistent());
}

Blocks::Block& Blocks::take(int pid, std::uint64_t address, std::uint64_t& number) {
  if (free_.empty()) {
    number = blocks_.size();
    blocks_.emplace_back();
  } else {
    number = free_.back();
    free_.pop_back();
  }
  Block& taken = blocks_[number];
  taken.pid = pid;
  taken.address = address;
  taken.at.fill(nowhere);
  by_address_[pid][address] = number;
  return taken;
}

void Blocks::found(int pid, const Found& block, BlockChanges& out) {
  auto& known = by_address_[pid];
  const auto at = known.find(block.address);
  std::uint64_t number = at == known.end() ? 0 : at->second;
  const bool fresh = at == known.end();
  Block& mine = fresh ? take(pid, block.address, number) : blocks_[number];
  if (fresh) out.mapped.push_back({{number * block_pages}, block_pages});
  const bool changed = !fresh && mine.huge != block.huge;
  huge_ += (block.huge ? 1 : 0) - (mine.huge ? 1 : 0);
  mine.huge = block.huge;
  if (fresh || changed) mine.in_parts = !block.huge && (changed || is_forked(pid, block.address));
  mine.look = look_;
  for (std::uint64_t i = 0; i < block_pages; ++i) {
    if (!block.populated[i]) {
      set(mine.at[i], nowhere);
    } else if ((changed || mine.at[i] == nowhere) && (i == 0 || !mine.huge)) {
      out.unplaced.push_back({number * block_pages + i});  // of a huge page, one tells of all
    }
  }
}

/// Whether another process has a huge page at this address, or had.
bool Blocks::is_forked(int pid, std::uint64_t address) const {
  return std::ranges::any_of(by_address_, [&](const auto& process) {
    const auto at = process.second.find(address);
    if (process.first == pid || at == process.second.end()) return false;
    const Block& block = blocks_[at->second];
    return block.huge || block.in_parts;
  });
}

void Blocks::index_blocks() {
  const std::size_t known = blocks_.size() - free_.size();
  places_.assign(std::bit_ceil(2 * known + 1), Place{});
  const std::size_t mask = places_.size() - 1;
  for (std::uint64_t number = 0; number < blocks_.size(); ++number) {
    const Block& block = blocks_[number];
    if (block.pid == 0) continue;
    std::size_t at = hash(block.pid, block.address) & mask;
    while (places_[at].pid != 0) at = (at + 1) & mask;
    places_[at] = {block.address, block.pid, static_cast<std::uint32_t>(number)};
  }
}

void Blocks::place(PageId page, Level at) {
  TT_ASSERT(known(page));
  const PageRange unit = this->unit(page);
  Block& block = blocks_[page.value / block_pages];
  for (std::uint64_t i = 0; i < unit.count; ++i)
    set(block.at[unit.first.value % block_pages + i], at);
}

bool Blocks::consistent() const {
  std::array<std::uint64_t, most_levels> used{};
  std::uint64_t in_use = 0, huge = 0;
  for (const Block& block : blocks_) {
    in_use += block.pid != 0 ? 1 : 0;
    huge += block.huge ? 1 : 0;
    for (const Level page : block.at)
      if (block.pid != 0 && page != nowhere) ++used[page];
  }
  std::uint64_t listed = 0;
  for (const auto& [pid, blocks] : by_address_) {
    listed += blocks.size();
    for (const auto& [address, number] : blocks) {
      PageId found;
      if (blocks_[number].pid != pid || blocks_[number].address != address) return false;
      if (!find(pid, address, found) || found.value != number * block_pages) return false;
    }
  }
  return used == used_ && huge == huge_ && listed == in_use &&
         in_use + free_.size() == blocks_.size();
}

}  // namespace tt::live
