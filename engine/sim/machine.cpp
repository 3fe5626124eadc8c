#include "sim/machine.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "sim/address_space.hpp"
#include "sim/gather.hpp"
#include "sim/operations.hpp"

namespace tt::sim {
namespace {

std::uint64_t chosen_page_bytes(const PolicyTraits& traits, const RunOptions& options) {
  const std::uint64_t bytes = options.page_bytes == 0 ? traits.page_bytes : options.page_bytes;
  if (bytes != trace::base_page_bytes && bytes != huge_page_bytes)
    throw std::invalid_argument("managed pages must be of 4096 or 2097152 bytes");
  return bytes;
}

/// Bytes of fast memory in the miniature: so many whatever the size of the policy's pages.
double fast_bytes(const RunOptions& options, std::uint64_t footprint, double scale) {
  if (options.fast_bytes != 0) return static_cast<double>(options.fast_bytes) / scale;
  return options.fast_share * static_cast<double>(footprint * trace::base_page_bytes);
}

PageTable::Layout layout(const trace::Reader& stream, const PolicyTraits& traits,
                         const RunOptions& options) {
  PageTable::Layout layout;
  layout.base_pages = stream.info().pages;
  layout.page_bytes = chosen_page_bytes(traits, options);
  layout.footprint = peak_pages(stream, 0);
  const unsigned shift = page_shift(layout.page_bytes);
  layout.slow_pages = shift == 0 ? layout.footprint : peak_pages(stream, shift);
  const double fast = fast_bytes(options, layout.footprint, stream.info().scale) /
                      static_cast<double>(layout.page_bytes);
  layout.fast_pages = traits.unbounded_fast
                          ? layout.slow_pages
                          : std::min(layout.slow_pages,
                                     static_cast<std::uint64_t>(std::llround(fast)));
  // Before its first touch nothing sets a page apart from its neighbours, except for an oracle. The
  // others are asked again now and then, so that they can answer by what is still free.
  layout.placed_at_once = traits.needs_oracle ? 1 : 512;
  return layout;
}

}  // namespace

Machine::Machine(const trace::Reader& stream, const MachineProfile& profile,
                 const PolicyTraits& traits, const RunOptions& options)
    : info_(stream.info()),
      scale_(info_.scale),
      pages_(layout(stream, traits, options)),
      mover_(pages_, ledger_, profile, traits, scale_),
      lanes_(ledger_, profile, info_, options.threads > 0 ? options.threads : profile.threads,
             pages_.page_bytes() == huge_page_bytes),
      sampler_(options.seed),
      tiering_(ledger_, profile, scale_) {}

void Machine::attach(Policy& policy) {
  policy_ = &policy;
  tiering_.start(policy);
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
          policy_->on_map(range, now());
        break;
      case trace::EventType::touch:
        pages_.place(event, *policy_);
        break;
      case trace::EventType::unmap:
        if (const PageRange range = pages_.unmap(event); range.count != 0) {
          mover_.forget(range);
          pages_.remove(range);
          policy_->on_unmap(range, now());
        }
        break;
    }
  }
}

void Machine::play(const trace::Block& block) {
  std::array<double, 2> events{};
  for (const trace::Segment& segment : block.segments)
    events[index(segment.kind)] += static_cast<double>(segment.sum);
  for (const AccessKind kind : {AccessKind::load, AccessKind::store})
    sampler_.observe(kind, events[index(kind)], lanes_.expected_ns(block));
  lanes_.clear_counts();
  if (mover_.any_in_flight()) {
    play_segments<true>(block);
  } else {
    play_segments<false>(block);
  }
}

/// The hot loop: without pages in flight it looks at one bit per entry, and at none of the others.
template <bool InFlight>
void Machine::play_segments(const trace::Block& block) {
  const unsigned shift = pages_.shift();
  const PageBits& slow = pages_.slow();
  for (const trace::Segment& segment : block.segments) {
    const TierSums found = gather<InFlight>(segment.pages, segment.counts, shift, slow.words(),
                                            mover_.in_flight().words());
    lanes_.count(segment, found.slow, sampler_.play(segment, shift, slow, samples_));
    if constexpr (InFlight) {
      if (!mover_.holds_up(segment.kind)) continue;
      for (const Tier to : {Tier::slow, Tier::fast})
        lanes_.count_in_flight(segment, found.in_flight[index(other(to))], mover_.moving_share(to),
                               mover_.away_ns(to));
    }
  }
}

double Machine::solve(const trace::Block& block) {
  Interference interference;
  mover_.disturb(interference);
  tiering_.disturb(interference);
  for (const std::uint64_t operations : block.operations)
    ledger_.sums()[Sum::operations] += static_cast<double>(operations) * scale_;
  return lanes_.solve(block, interference);
}

double Machine::operation_ns(const trace::Operation& operation) const {
  return sim::operation_ns(operation, info_, pages_, mover_, lanes_);
}

void Machine::run_tiering_thread(double block_ns) {
  sampler_.shuffle(samples_);
  tiering_.run(block_ns, lanes_.now_ns(), samples_, *policy_);
  mover_.settle(block_ns, tiering_.left_ns());
}

}  // namespace tt::sim
