// SPDX-License-Identifier: MIT

// NeighbourPrior: how hot is a page, by its own count and by those of its neighbours?
//
// A sampler sees a page of a large system a few times a minute at best: by their counts alone most
// hot pages cannot be told from cold ones for a long time. But memory is allocated and used in
// objects of many pages, whose samples together tell soon how hot they are on average, and how
// alike their pages are. So counts are drawn toward the mean of their neighbourhood, the less the
// more they differ there (an empirical Bayes estimate, Robbins 1956; the gamma-Poisson model). A
// page of an array that is swept is as hot as the array, at its first sample; one of a heap whose
// hot objects are scattered is as hot as its own count says.
//
// Pages of a neighbourhood are taken to have rates from a gamma distribution of its mean and of
// shape a; a page that was counted c times where the mean is m is then expected to have
// m (c + a) / (m + a). The shape follows from what a sampled page had been counted before: on
// average m (1 + 1/a), since hot pages are sampled more often.
//
// The threshold is where the pages above fill the fast tier. Their number is estimated from the
// samples: one of a page of rate r stands for 1/r of a page (Horvitz and Thompson 1952).
//
// Rates are relative: 1 is what each page would have if all samples fell evenly into as many pages
// as the fast tier holds.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/page_count.hpp"
#include "core/page_map.hpp"
#include "core/types.hpp"

namespace tt::classify {

class NeighbourPrior {
 public:
  struct Options {
    double fast_pages = 1;
    double neighbourhoods = 256;  // that the fast tier has room for
    double memory = 1;            // samples between two halvings of the neighbourhoods' counts
    double period = 1;            // samples between two adaptations of the threshold
    std::uint32_t max_count = 1;  // of the tracker
  };

  explicit NeighbourPrior(const Options& options);

  void map(PageRange range) { mapped(range, 1); }
  void unmap(PageRange range) { mapped(range, -1); }
  /// Samples of the last advance(): pages whose counts went from before[i] to after[i].
  void add(std::span<const PageCount> counts, std::span<const std::uint32_t> before,
           std::span<const std::uint32_t> after);
  /// Counts samples that are about to be added. Returns whether the threshold was adapted.
  bool advance(std::uint64_t samples);
  /// The fast tier holds so many pages from now on; neighbourhoods stay as large as they are.
  void set_fast_pages(double pages) { options_.fast_pages = pages; }
  /// The tracker has halved its counts.
  void cool() { own_samples_ /= 2; }

  /// Expected rate of a page that the tracker holds `count` for.
  [[nodiscard]] double rate(PageId page, std::uint32_t count) const;
  /// Rate from which pages fit the fast tier; infinite before the first adaptation.
  [[nodiscard]] double threshold() const { return threshold_; }
  /// Pages that are estimated to reach the threshold.
  [[nodiscard]] double hot_pages() const { return hot_pages_; }
  /// Adaptations so far.
  [[nodiscard]] std::uint64_t version() const { return version_; }

 private:
  struct Block {
    float samples = 0;           // lately
    float before = 0, mean = 0;  // sums over them: the sampled page's count, and what was expected
    std::uint32_t epoch = 0;     // halvings that the sums have had
    std::int32_t pages = 0;      // mapped
    double born = 0;             // all samples so far, when there came to be pages
  };
  static constexpr std::size_t steps = 8, octaves = 32;  // of the rates' histogram

  void mapped(PageRange range, std::int32_t sign);
  [[nodiscard]] PageId block_of(PageId page) const { return {page.value / block_pages_}; }
  /// Mean count of the block's pages, in the tracker's memory.
  [[nodiscard]] double mean(const Block& block) const;
  [[nodiscard]] double expected(const Block& block, std::uint32_t count) const;
  [[nodiscard]] float halved(float sum, const Block& block) const;
  void adapt();
  static std::size_t bin(double rate);
  static double bin_floor(std::size_t bin);

  Options options_;
  const std::uint64_t block_pages_;
  PageMap<Block> blocks_;
  double own_samples_ = 0;    // that the tracker's counts are of
  double block_samples_ = 0;  // that the blocks' are of
  double all_samples_ = 0;    // ever
  double since_halved_ = 0, since_adapted_ = 0;
  std::uint32_t epoch_ = 0;
  double before_ = 0, mean_ = 0;                 // Block's sums, over all
  std::array<double, steps * octaves> pages_{};  // by rate: number of pages times sampled_
  double sampled_ = 0;
  double threshold_, hot_pages_ = 0;
  std::uint64_t version_ = 0;
};

}  // namespace tt::classify
