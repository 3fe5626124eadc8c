// SPDX-License-Identifier: MIT

#include "migrate/demotion_scan.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace tt::migrate {

DemotionScan::DemotionScan(const Options& options) : options_(options) {
  if (options.demote_watermark < options.promote_watermark) {
    throw std::invalid_argument("knob demote_watermark: found " +
                                to_string(KnobValue{options.demote_watermark}) +
                                ", must not be below promote_watermark (" +
                                to_string(KnobValue{options.promote_watermark}) + ")");
  }
}

DemotionScan::DemotionScan(const Knobs& knobs)
    : DemotionScan(Options{.promote_watermark = knobs.real("promote_watermark"),
                           .demote_watermark = knobs.real("demote_watermark"),
                           .chunk = knobs.real("scan_chunk"),
                           .slice = 1.0 / 60}) {}

DemotionScan::Result DemotionScan::run(Memory& memory, const MappedRanges& space,
                                       const Judge& judge) {
  Result result;
  const auto capacity = static_cast<double>(memory.capacity(Tier::fast));
  const auto room = [&] {
    return static_cast<double>(memory.free_pages(Tier::fast) + memory.pending(Tier::slow));
  };
  // "When the amount of free memory in the fast-tier is below PROMO_WMARK ..."
  if (left_ == 0 && room() < options_.promote_watermark * capacity) left_ = space.pages();
  if (left_ == 0) return result;
  result.triggered = true;

  // "... demote until it is greater than DEMOTE_WMARK", resuming from the last scanned address.
  const auto chunk = static_cast<std::uint64_t>(std::max(1.0, std::round(options_.chunk)));
  const std::uint64_t pass = space.pages();
  const auto slice =
      static_cast<std::uint64_t>(std::ceil(static_cast<double>(pass) * options_.slice));
  left_ = std::min(left_, pass);
  const std::uint64_t limit = std::min(left_, std::max(chunk, slice));
  bool queue_full = false;
  while (room() < options_.demote_watermark * capacity && result.scanned < limit && !queue_full) {
    const PageRange run = space.next(cursor_, std::min(chunk, limit - result.scanned));
    where_.resize(run.count);
    memory.residency(run.first, where_);
    fast_.clear();
    victims_.clear();
    for (std::uint64_t i = 0; i < run.count; ++i) {
      if (where_[i] == Residency::fast) fast_.push_back({run.first.value + i});
    }
    if (!fast_.empty()) judge(fast_, victims_);
    if (!victims_.empty()) {
      const std::size_t queued = memory.request(Tier::slow, victims_);
      result.requested += queued;
      queue_full = queued < victims_.size();
    }
    result.scanned += run.count;
    barren_ = victims_.empty() ? barren_ + run.count : 0;
    cursor_ = run.end();
  }
  memory.charge(Work::scan_step, result.scanned);
  // The next run goes on where a slice ended, unless the demotion is over.
  const bool done = queue_full || room() >= options_.demote_watermark * capacity;
  left_ = done ? 0 : left_ - result.scanned;
  result.ended = left_ == 0;
  result.short_of_mark = result.ended && !done;
  result.empty = barren_ >= pass;
  if (result.empty) barren_ = 0;
  return result;
}

std::vector<KnobDecl> watermark_knobs(const std::string& source) {
  return knob::list(
      knob::real("promote_watermark", 0.0125, {0, 0.9}, Unit::ratio, source,
                 "share of the fast tier that is free when demotion starts (PROMO_WMARK)"),
      knob::real("demote_watermark", 0.05, {0, 0.9}, Unit::ratio, source,
                 "share of the fast tier that is free when demotion stops (DEMOTE_WMARK); not "
                 "below promote_watermark"));
}

KnobDecl scan_chunk_knob(std::string source) {
  return knob::real("scan_chunk", 1024, {1, 1048576, knob::log}, Unit::pages, std::move(source),
                    "pages whose residency the demotion scan asks for at a time; it stops at "
                    "the end of a chunk");
}

}  // namespace tt::migrate
