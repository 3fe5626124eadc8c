// SPDX-License-Identifier: MIT

#include "record/windows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/types.hpp"

namespace tt::record {
namespace {

/// Affinity of a window's halves below which neither says anything of the other.
constexpr double least_own = 0.1;

/// Counts of a window's even and odd blocks, by page.
using Halves = std::array<std::vector<float>, 2>;

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  return std::transform_reduce(
      a.begin(), a.end(), b.begin(), 0.0, std::plus{},
      [](float x, float y) { return static_cast<double>(x) * static_cast<double>(y); });
}

/// Counts become the roots of their shares, so that the product of two is their affinity.
void make_roots(std::vector<float>& counts) {
  const double all = std::accumulate(counts.begin(), counts.end(), 0.0);
  if (all <= 0) return;
  for (float& count : counts)
    count = static_cast<float>(std::sqrt(static_cast<double>(count) / all));
}

/// Of each page its place among those that are looked at, or `none`.
class PageSample {
 public:
  PageSample(std::uint64_t pages, std::uint64_t most) : place_(pages, none) {
    const double share = std::min(1.0, static_cast<double>(most) / static_cast<double>(pages));
    for (std::uint64_t page = 0; page < pages; ++page)
      if (static_cast<double>(mix64(page) >> 11) * 0x1.0p-53 < share) place_[page] = size_++;
  }
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  [[nodiscard]] std::uint32_t operator[](std::uint32_t page) const { return place_[page]; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  std::vector<std::uint32_t> place_;
  std::uint32_t size_ = 0;
};

}  // namespace

Windows windows(const trace::Reader& reader, std::size_t count, std::uint64_t most_pages) {
  const trace::StreamInfo& info = reader.info();
  trace::Block block;
  std::vector<std::uint64_t> timed;
  std::vector<double> ends;  // seconds, after each timed block
  double now = 0;
  for (std::uint64_t b = 0; b < info.blocks; ++b) {
    reader.read(b, block);
    if (!block.timed) continue;
    now += block.nominal_ns * 1e-9;
    timed.push_back(b);
    ends.push_back(now);
  }
  count = std::min(count, timed.size() / 2);
  Windows out;
  if (count == 0) return out;
  const PageSample sample(info.pages, most_pages);
  std::vector<Halves> counts;
  std::size_t at = 0;
  for (std::size_t w = 0; w < count; ++w) {
    const std::size_t first = at;
    const std::size_t left = count - w - 1;  // windows that need two blocks, too
    const double until = now * static_cast<double>(w + 1) / static_cast<double>(count);
    Halves& halves = counts.emplace_back();
    for (auto& half : halves) half.resize(sample.size());
    Window window{.from = timed[first], .begin_s = first == 0 ? 0 : ends[first - 1]};
    while (at < timed.size() - 2 * left &&
           (at < first + 2 || left == 0 || ends[at] <= until * (1 + 1e-9))) {
      reader.read(timed[at], block);
      for (const trace::Segment& segment : block.segments) {
        window.accesses += segment.sum;
        for (std::size_t e = 0; e < segment.pages.size(); ++e)
          if (const auto place = sample[segment.pages[e]]; place != PageSample::none)
            halves[(at - first) % 2][place] += segment.counts[e];
      }
      ++at;
    }
    window.to = timed[at - 1] + 1;
    window.end_s = ends[at - 1];
    out.windows.push_back(window);
    if (window.to - window.from != at - first)  // set-up in between
      for (auto& half : halves) half.assign(half.size(), 0);
  }
  reader.confirm();

  std::vector<double> own(count);
  for (std::size_t w = 0; w < count; ++w) {
    for (auto& half : counts[w]) make_roots(half);
    own[w] = dot(counts[w][0], counts[w][1]);
  }
  out.alike.resize(count * count);
  for (std::size_t v = 0; v < count; ++v) {
    for (std::size_t w = v; w < count; ++w) {
      if (std::min(own[v], own[w]) < least_own) continue;
      const double both =
          v == w ? own[v] : (dot(counts[v][0], counts[w][1]) + dot(counts[v][1], counts[w][0])) / 2;
      out.alike[v * count + w] = out.alike[w * count + v] =
          std::min(1.0, both / std::sqrt(own[v] * own[w]));
    }
  }
  return out;
}

}  // namespace tt::record
