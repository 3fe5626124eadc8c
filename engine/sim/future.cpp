// SPDX-License-Identifier: MIT

#include "sim/future.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "sim/address_space.hpp"
#include "sim/timing.hpp"

namespace tt::sim {

Future::Future(const trace::Reader& stream, const MachineProfile& profile, const Machine& machine)
    : stream_(stream),
      machine_(machine),
      accesses_(machine.pages().size()),
      block_ns_(stream.info().blocks),
      lives_(machine.pages().size()) {
  const auto base = stream.page_totals();
  for (std::size_t page = 0; page < base.size(); ++page)
    accesses_[page >> machine.pages().shift()] += base[page];
  look_ahead();

  const trace::StreamInfo& info = stream.info();
  for (std::uint32_t c = 0; c < info.classes.size(); ++c) {
    const Lanes::Lane& lane = machine.lanes().of_class(c);
    std::array<double, 2>& saved = access_ns_.emplace_back();
    for (const AccessKind kind : {AccessKind::load, AccessKind::store}) {
      const auto stall = [&](Tier tier) {
        return std::max(0.0, machine.lanes().wait_ns(c, kind, tier) - info.classes[c].issue_ns);
      };
      const double fetched = kind == AccessKind::load ? 1 : info.classes[c].store_fill;
      saved[index(kind)] =
          fetched * (stall(Tier::slow) - stall(Tier::fast)) / lane.threads * machine.scale();
    }
  }

  oracle_.accesses = accesses_;
  oracle_.block_ns = block_ns_;
  oracle_.lives = lives_;
  oracle_.saved = [this](std::uint64_t first, std::uint64_t last, std::span<float> out) {
    add_saved(first, last, out);
  };
  oracle_.next_block = [this] { return machine_.blocks_played(); };
  const double threads = machine.lanes().load().threads;
  const double away_ns =
      move_ns(profile, Tier::fast, static_cast<double>(machine.page_bytes()), 1, Load{});
  oracle_.mover_ns = away_ns * machine.scale();
  oracle_.move_ns =
      machine.scale() * (profile.migration_shootdown_us * 1e3 / profile.migration_shootdown_pages +
                         away_ns * profile.daemon_core_share / threads);
}

void Future::look_ahead() {
  AddressSpace space{stream_.info().pages, machine_.pages().shift()};
  std::vector<bool> seen(space.pages());
  trace::Block block;
  const auto blocks = static_cast<std::uint32_t>(stream_.info().blocks);
  for (std::uint32_t b = 0; b < blocks; ++b) {
    stream_.read(b, block);
    if (block.timed) block_ns_[b] = block.nominal_ns;
    for (const trace::Event& event : block.events) {
      if (event.type == trace::EventType::map) {
        (void)space.map(event);
        continue;
      }
      const bool ends = event.type == trace::EventType::unmap;
      const PageRange range = ends ? space.unmap(event) : space.cover(event);
      for (std::uint64_t page = range.first.value; page < range.end().value; ++page) {
        if (!seen[page]) {
          if (ends) continue;
          seen[page] = true;
          lives_[page].born = b;
        }
        lives_[page].gone = ends ? b : blocks;
      }
    }
  }
}

void Future::add_saved(std::uint64_t first, std::uint64_t last, std::span<float> out) const {
  const unsigned shift = machine_.pages().shift();
  trace::Block block;
  for (std::uint64_t b = first; b < last; ++b) {
    if (block_ns_[b] <= 0) continue;  // set-up
    stream_.read(b, block);
    for (const trace::Segment& segment : block.segments) {
      const auto each = static_cast<float>(access_ns_[segment.stream_class][index(segment.kind)]);
      for (std::size_t i = 0; i < segment.pages.size(); ++i)
        out[segment.pages[i] >> shift] += each * static_cast<float>(segment.counts[i]);
    }
  }
}

}  // namespace tt::sim
