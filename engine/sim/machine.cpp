// SPDX-License-Identifier: MIT

#include "sim/machine.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>

#include "core/assert.hpp"
#include "sim/address_space.hpp"
#include "sim/gather.hpp"
#include "sim/operations.hpp"
#include "sim/scale.hpp"

namespace tt::sim {
namespace {

/// Base pages, mapped as huge pages where a mapping covers them: for policies that cannot do
/// without, and for others that are asked to run so.
bool mixed(const PolicyTraits& traits, const RunOptions& options) {
  return options.mixed || includes(traits.needs, Need::mixed_pages);
}

std::uint64_t chosen_page_bytes(const trace::StreamInfo& stream, const PolicyTraits& traits,
                                const RunOptions& options) {
  const std::uint64_t native = mixed(traits, options) ? trace::base_page_bytes : traits.page_bytes;
  const std::uint64_t bytes = options.page_bytes == 0 ? native : options.page_bytes;
  if (mixed(traits, options) && bytes != trace::base_page_bytes)
    throw std::invalid_argument("mixed page sizes are managed by pages of 4096 bytes, not 2097152");
  if (bytes != trace::base_page_bytes && bytes != trace::huge_page_bytes)
    throw std::invalid_argument("managed pages must be of 4096 or 2097152 bytes");
  if (bytes < stream.page_bytes)
    throw std::invalid_argument("the stream has pages of " + std::to_string(stream.page_bytes) +
                                " bytes: managed pages of " + std::to_string(bytes) +
                                " bytes need a stream of such pages");
  return bytes;
}

/// Bytes of fast memory in the miniature: so many whatever the size of the policy's pages.
double fast_bytes(const RunOptions& options, const PageTable::Layout& layout, double scale) {
  if (options.fast_bytes != 0) return static_cast<double>(options.fast_bytes) / scale;
  return options.fast_share * static_cast<double>(layout.footprint * layout.stream_page_bytes);
}

PageTable::Layout layout(const trace::Reader& stream, const PolicyTraits& traits,
                         const RunOptions& options) {
  PageTable::Layout layout;
  layout.mixed = mixed(traits, options);
  layout.base_pages = stream.info().pages;
  layout.page_bytes = chosen_page_bytes(stream.info(), traits, options);
  layout.stream_page_bytes = stream.info().page_bytes;
  layout.footprint = peak_pages(stream, 0);
  const unsigned shift = page_shift(layout.page_bytes, layout.stream_page_bytes);
  layout.slow_pages = shift == 0 ? layout.footprint : peak_pages(stream, shift);
  // A huge page takes the room of all its pages, touched or not.
  if (layout.mixed)
    layout.slow_pages = peak_pages(stream, page_shift(huge_page_bytes, layout.stream_page_bytes)) *
                        PageTable::unit_pages;
  const double scale = stream.info().scale;
  const double fast = fast_bytes(options, layout, scale);
  const auto bytes = static_cast<double>(layout.page_bytes);
  const auto fast_pages = static_cast<std::uint64_t>(std::llround(fast / bytes));
  layout.fast_pages =
      traits.unbounded_fast ? layout.slow_pages : std::min(layout.slow_pages, fast_pages);
  layout.placement = traits.placement;
  // A tier of no bytes, or one that holds everything, leaves nothing to decide, however coarsely.
  const bool decides = fast > 0 && layout.fast_pages < layout.slow_pages;
  const std::uint64_t each = layout.mixed ? PageTable::unit_pages : 1;
  if (decides && !options.coarse && layout.fast_pages / each < least_fast_pages)
    throw std::invalid_argument(
        too_coarse(layout.fast_pages / each, layout.page_bytes * each, scale, fast,
                   static_cast<double>(layout.footprint * layout.stream_page_bytes)));
  return layout;
}

double threads(const MachineProfile& profile, const RunOptions& options) {
  return options.threads > 0 ? options.threads : profile.threads;
}

}  // namespace

Machine::Machine(const trace::Reader& stream, const MachineProfile& profile,
                 const PolicyTraits& traits, const RunOptions& options)
    : info_(stream.info()),
      scale_(info_.scale),
      pages_(layout(stream, traits, options)),
      mover_(pages_, ledger_, profile, scale_, options.seed),
      traps_(pages_, ledger_, profile, scale_, threads(profile, options), options.seed),
      lanes_(ledger_, profile, info_, threads(profile, options),
             pages_.page_bytes() == huge_page_bytes),
      sampler_(info_, profile, threads(profile, options), options.seed),
      tiering_(ledger_, profile, scale_, traits.standing_threads),
      by_faults_(includes(traits.needs, Need::faults)),
      maps_first_(traits.maps_first) {
  for (const trace::Object& object : info_.objects) {
    const auto found = std::ranges::find(sites_, object.site);
    site_of_object_.push_back(static_cast<std::uint32_t>(found - sites_.begin()));
    if (found == sites_.end()) sites_.push_back(object.site);
  }
}

void Machine::attach(Policy& policy) {
  policy_ = &policy;
  tiering_.start(policy);
}

std::size_t Machine::reshape(Change to, std::span<const PageId> units) {
  if (!pages_.mixed()) return Memory::reshape(to, units);  // says that it is not offered
  return mover_.reshape(to, units);
}

std::size_t Machine::request(Tier to, std::span<const PageId> pages, Way way) {
  thread_.check();
  if (way == Way::background) return mover_.request(to, pages);
  for (const PageId page : pages) {
    const auto stream_class = traps_.faulted(page);
    if (!stream_class)
      throw std::logic_error("Memory::request: Way::in_fault for a page that has not just faulted");
    lanes_.move_in_fault(*stream_class, mover_.move_in_fault(page, to, maps_first_));
  }
  return pages.size();
}

void Machine::fault_again(PageId page, std::uint32_t times) {
  thread_.check();
  traps_.fault_again(page, times, lanes_);
}

void Machine::charge(Work kind, std::uint64_t times, Payer by) {
  tiering_.bring_lines(kind, times);
  if (by == Payer::application) {
    traps_.charge_application(tiering_.work_ns(kind, times));
  } else {
    tiering_.charge(kind, times);
  }
}

void Machine::enter_section(bool timed) {
  lanes_.meet(ledger_.timed());
  ledger_.enter_section(timed);
}

void Machine::apply(std::span<const trace::Event> events) {
  for (const trace::Event& event : events) {
    switch (event.type) {
      case trace::EventType::map:
        if (const PageRange range = pages_.map(event); range.count != 0)
          policy_->on_map(range, site_of_object_[event.object], now());
        break;
      case trace::EventType::touch:
        traps_.first_touched(pages_.place(event, *policy_, now()));
        break;
      case trace::EventType::unmap:
        if (pages_.mixed())
          for (const PageRange unit : pages_.cut_by({PageId{event.first}, event.count}))
            if (unit.count > 1) mover_.cut(unit);
        if (const PageRange range = pages_.unmap(event); range.count != 0) {
          traps_.forget(range);
          mover_.forget(range);
          pages_.remove(range);
          policy_->on_unmap(range, now());
        }
        break;
    }
  }
}

void Machine::play(const trace::Block& block) {
  sampler_.begin(block, lanes_.expected_ns(block));
  lanes_.clear_counts();
  // The hot loop: while no page is armed it looks at one bit per entry, and at none of the others.
  const unsigned shift = pages_.shift();
  const PageBits& slow = pages_.slow();
  const unsigned unit_shift = page_shift(huge_page_bytes, trace::base_page_bytes);
  for (const trace::Segment& segment : block.segments) {
    const std::uint64_t in_slow =
        pages_.any_armed(segment.kind)
            ? play_armed(segment)
            : gather<false>(segment.pages, segment.counts, shift, slow.words()).slow;
    if (pages_.mixed())
      lanes_.count_huge(segment, gather_huge(segment.pages, segment.counts, unit_shift,
                                             slow.words(), pages_.huge().words()));
    lanes_.count(segment, in_slow, sampler_.play(segment, in_slow, shift, slow, samples_),
                 sampler_.sample_ns(segment.kind));
  }
  traps_.draw();
  traps_.begin(block);
  ++blocks_played_;
}

/// Returns the segment's accesses to the slow tier, and passes accesses to armed pages on to what
/// waits for them.
std::uint64_t Machine::play_armed(const trace::Segment& segment) {
  if (tripped_.size() < segment.pages.size()) tripped_.resize(segment.pages.size());
  const Gathered found =
      gather<true>(segment.pages, segment.counts, pages_.shift(), pages_.slow().words(),
                   pages_.armed(segment.kind).words(), tripped_.data());
  ByMove<std::uint64_t> held_up;
  for (const std::uint32_t entry : std::span{tripped_}.first(found.tripped)) {
    const PageRange unit = pages_.unit(segment.pages[entry] >> pages_.shift());
    const std::uint64_t page = unit.first.value;
    const std::uint64_t count = segment.counts[entry];
    if (pages_.holds_up(page, segment.kind))
      held_up.of(move_size(unit.count), other(pages_.tier_of(page))) += count;
    if (mover_.touch(page, segment.kind, count)) lanes_.count_fault(segment.stream_class);
    traps_.touch(segment, page, count);
  }
  for (const MoveSize size : move_sizes) {
    if (size == MoveSize::unit && !pages_.mixed()) break;
    for (const Tier to : {Tier::slow, Tier::fast})
      lanes_.count_in_flight(segment, held_up.of(size, to), mover_.moving_share(size, to),
                             mover_.away_ns(size, to));
  }
  return found.slow;
}

double Machine::solve(const trace::Block& block) {
  Interference interference;
  mover_.disturb(interference);
  tiering_.disturb(interference);
  traps_.disturb(interference);
  for (const std::uint64_t operations : block.operations)
    ledger_.sums()[Sum::operations] += static_cast<double>(operations) * scale_;
  const double block_ns = lanes_.solve(block, interference);
  TT_ASSERT(block_ns >= 0);  // virtual time never goes back
  if (block_ns > 0) block_ns_ = block_ns;
  return block_ns;
}

double Machine::operation_ns(const trace::Operation& operation) const {
  return sim::operation_ns(operation, info_, pages_, mover_, lanes_);
}

void Machine::call_policy(double block_ns) {
  thread_.check();
  pages_.hold(policy_->metadata_bytes() / pages_.page_bytes());
  traps_.settle(block_ns, lanes_, *policy_);
  if (pages_.short_of_fast()) policy_->on_pressure(Tier::fast, now());
  sampler_.shuffle(samples_);
  tiering_.begin(block_ns, lanes_.now_ns(), samples_, *policy_);
  if (by_faults_) {
    block_ns = play_faults(block_ns);
  } else {
    tiering_.run(lanes_.now_ns(), *policy_);
  }
  tiering_.end(*policy_);
  TT_ASSERT_FULL(pages_.consistent());
  TT_ASSERT_FULL(mover_.consistent());
  TT_ASSERT_FULL(traps_.consistent());
  mover_.settle(block_ns, tiering_.left_ns());
}

/// A page that faults moves at once if there is room, and its thread goes on when it has moved: the
/// block lasts longer by that, and what faults later in it faults later. Kswapd makes room
/// meanwhile. So that what comes of it does not depend on the length of blocks, they go on
/// together, a fault at a time. Returns how long the block has become.
double Machine::play_faults(double block_ns) {
  const double end_ns = lanes_.now_ns();
  const auto parts = static_cast<int>(
      std::clamp(std::ceil(block_ns / most_part_ns), 1.0, double{TieringThread::most_ticks}));
  double at_ns = end_ns - block_ns;
  double late_ns = 0;
  for (int part = 1; part <= parts; ++part) {
    const double until_ns = end_ns - block_ns * (parts - part) / parts;
    do {
      const double before_ns = at_ns;
      if (block_ns > 0) traps_.passed(1 - (end_ns - at_ns) / block_ns);
      at_ns = traps_.deliver(until_ns, late_ns, lanes_, *policy_);
      const double longer_ns = lanes_.extend();
      late_ns += longer_ns;
      tiering_.extend(longer_ns);
      tiering_.hurry(at_ns + late_ns, *policy_);
      tiering_.run(at_ns + late_ns, *policy_);
      const double lasts_ns = block_ns + late_ns;
      const double passed = lasts_ns > 0 ? (at_ns - before_ns + longer_ns) / lasts_ns : 1;
      mover_.go_on(passed, lasts_ns, tiering_.left_ns(), at_ns + late_ns, *policy_);
    } while (at_ns < until_ns);
  }
  traps_.passed(1);
  return block_ns + late_ns;
}

}  // namespace tt::sim
