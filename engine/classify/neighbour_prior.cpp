// SPDX-License-Identifier: MIT

#include "classify/neighbour_prior.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tt::classify {

namespace {

/// Samples' worth of trust in the shape of all neighbourhoods, in that of a single one.
constexpr double shared_weight = 8;
/// Pages that differ less than this shape says are alike.
constexpr double largest_shape = 1e3;

}  // namespace

NeighbourPrior::NeighbourPrior(const Options& options)
    : options_(options),
      block_pages_(static_cast<std::uint64_t>(
          std::max(1.0, std::round(options.fast_pages / options.neighbourhoods)))),
      threshold_(std::numeric_limits<double>::infinity()) {}

void NeighbourPrior::mapped(PageRange range, std::int32_t sign) {
  for (PageId at = range.first; at < range.end();) {
    const PageId end{std::min(range.end().value, (at.value / block_pages_ + 1) * block_pages_)};
    Block& block = blocks_[block_of(at)];
    // What it knows of pages that were here before stays: addresses are used again for the like.
    if (block.pages == 0 && sign > 0) block.born = all_samples_;
    block.pages = std::max(0, block.pages + sign * static_cast<std::int32_t>(end.value - at.value));
    at = end;
  }
}

float NeighbourPrior::halved(float sum, const Block& block) const {
  return std::ldexp(sum, -static_cast<int>(std::min(epoch_ - block.epoch, 64U)));
}

double NeighbourPrior::mean(const Block& block) const {
  const double seen = std::min(block_samples_, all_samples_ - block.born);
  if (block.pages == 0 || seen <= 0) return 0;
  return halved(block.samples, block) / seen * own_samples_ / block.pages;
}

double NeighbourPrior::expected(const Block& block, std::uint32_t count) const {
  const double mean = this->mean(block);
  // A full counter says only that there were more.
  const double own = count < options_.max_count ? count : std::max<double>(count, mean);
  if (mean <= 0) return own;
  const double all = mean_ > 0 ? before_ / mean_ : 1;
  const double excess = (halved(block.before, block) + shared_weight * all) /
                            (halved(block.mean, block) + shared_weight) -
                        1;
  const double shape = excess * largest_shape > 1 ? 1 / excess : largest_shape;
  return mean * (own + shape) / (mean + shape);
}

double NeighbourPrior::rate(PageId page, std::uint32_t count) const {
  const Block* block = blocks_.find(block_of(page));
  if (block == nullptr || own_samples_ <= 0) return 0;
  return expected(*block, count) * options_.fast_pages / own_samples_;
}

void NeighbourPrior::add(std::span<const PageCount> counts, std::span<const std::uint32_t> before,
                         std::span<const std::uint32_t> after) {
  for (std::size_t i = 0; i < counts.size(); ++i) {
    Block& block = blocks_[block_of(counts[i].page)];
    const auto times = static_cast<float>(counts[i].count);
    block.samples = halved(block.samples, block);
    block.before = halved(block.before, block);
    block.mean = halved(block.mean, block);
    block.epoch = epoch_;
    const auto mean =
        static_cast<float>(std::min(this->mean(block), static_cast<double>(options_.max_count)));
    const auto had = static_cast<float>(before[i]);
    block.samples += times;
    block.before += times * had;
    block.mean += times * mean;
    before_ += times * had;
    mean_ += times * mean;
    const double rate =
        expected(block, after[i]) * options_.fast_pages / std::max(1.0, own_samples_);
    pages_[bin(rate)] += times * options_.fast_pages / std::max(rate, bin_floor(0));
  }
}

bool NeighbourPrior::advance(std::uint64_t samples) {
  const auto count = static_cast<double>(samples);
  own_samples_ += count;
  block_samples_ += count;
  all_samples_ += count;
  sampled_ += count;
  since_halved_ += count;
  since_adapted_ += count;
  if (since_halved_ >= options_.memory) {
    since_halved_ = 0;
    ++epoch_;
    block_samples_ /= 2;
    before_ /= 2;
    mean_ /= 2;
  }
  if (since_adapted_ < options_.period) return false;
  since_adapted_ = 0;
  adapt();
  return true;
}

void NeighbourPrior::adapt() {
  hot_pages_ = 0;
  std::size_t at = pages_.size();
  for (; at > 0; --at) {
    const double more = hot_pages_ + pages_[at - 1] / sampled_;
    if (more > options_.fast_pages) break;
    hot_pages_ = more;
  }
  threshold_ = bin_floor(at);
  for (double& pages : pages_) pages /= 2;
  sampled_ /= 2;
  ++version_;
}

/// Rates from 2^-16 to 2^16, an eighth of an octave wide at its lower end.
std::size_t NeighbourPrior::bin(double rate) {
  int exponent = 0;
  const double fraction = std::frexp(rate, &exponent);  // in [1/2, 1)
  const int octave = exponent + static_cast<int>(octaves) / 2;
  if (rate <= 0 || octave < 0) return 0;
  const auto step = static_cast<std::size_t>((fraction - 0.5) * 2 * steps);
  return std::min(static_cast<std::size_t>(octave) * steps + step, steps * octaves - 1);
}

double NeighbourPrior::bin_floor(std::size_t bin) {
  const int octave = static_cast<int>(bin / steps) - static_cast<int>(octaves) / 2;
  return std::ldexp(0.5 + static_cast<double>(bin % steps) / (2 * steps), octave);
}

}  // namespace tt::classify
