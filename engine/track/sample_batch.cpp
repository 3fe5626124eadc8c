// SPDX-License-Identifier: MIT

#include "track/sample_batch.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tt::track {

SampleBatch::SampleBatch(double size)
    : size_(static_cast<std::size_t>(std::max(1.0, std::round(size)))) {}

std::size_t SampleBatch::take(std::uint64_t limit) {
  const auto rest = std::span{std::as_const(samples_)}.subspan(taken_);
  part_ = rest.first(static_cast<std::size_t>(std::min<std::uint64_t>(rest.size(), limit)));
  taken_ += part_.size();
  return part_.size();
}

Counted SampleBatch::count(Tier tier, Tracker& tracker) {
  sampled_.clear();
  for (const Sample& sample : part_) {
    if (sample.tier == tier) sampled_.push_back(sample.page);
  }
  if (sampled_.empty()) return {};
  const auto counts = coalescer_.coalesce(sampled_);
  pages_.clear();
  for (const PageCount& item : counts) pages_.push_back(item.page);
  tracker.get(pages_, before_);
  tracker.increment(counts);
  tracker.get(pages_, after_);
  return {pages_, counts, before_, after_};
}

KnobDecl sample_batch_knob(std::string source) {
  return knob::real("sample_batch", 100000, {1000, 10000000, knob::log}, Unit::samples,
                    std::move(source),
                    "samples coalesced and processed together; their hot pages are promoted by "
                    "one call");
}

}  // namespace tt::track
