// SPDX-License-Identifier: MIT

#include "sim/scale.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <variant>

#include "core/math.hpp"
#include "trace/stream.hpp"

namespace tt::sim {

double poisson_tail(double mean, double count) {
  if (count <= 0) return 1;
  if (mean <= 0) return 0;
  // Terms from `count` upward shrink once they are beyond the mean; the sum is exact to rounding
  // for the small tails that are asked for here.
  double term = math::exp(count * math::log(mean) - mean - math::log_gamma(count + 1));
  double sum = 0;
  for (double k = count; k < count + 10000; ++k) {
    sum += term;
    if (k > mean && term < sum * 1e-17) break;
    term *= mean / (k + 1);
  }
  return std::min(sum, 1.0);
}

double extreme_threshold(double threshold, double pages, double scale) {
  if (scale <= 1 || threshold <= 1 || pages <= 1) return threshold;
  // Even odds that none of `pages` has reached it; a single page cannot have a tail above one half.
  const double target = std::min(std::numbers::ln2 / pages, 0.5);
  const double scaled_target = std::min(std::numbers::ln2 * scale / pages, 0.5);
  double low = 0;
  double high = threshold;
  for (int i = 0; i < 200 && high - low > 1e-12 * high; ++i) {
    const double middle = 0.5 * (low + high);
    (poisson_tail(middle, threshold) < target ? low : high) = middle;
  }
  const double mean = 0.5 * (low + high);
  // The tail falls with the count: the first count whose tail is at most the target, and the one
  // before it, bracket the answer.
  double count = 1;
  double previous = 1;  // tail at count - 1
  double tail = poisson_tail(mean, count);
  while (tail > scaled_target && count < threshold) {
    ++count;
    previous = tail;
    tail = poisson_tail(mean, count);
  }
  if (tail > scaled_target) return threshold;
  const double share =
      (math::log(previous) - math::log(scaled_target)) / (math::log(previous) - math::log(tail));
  return std::clamp(count - 1 + share, 1.0, threshold);
}

std::string too_coarse(std::uint64_t pages, std::uint64_t page_bytes, double scale,
                       double fast_bytes, double footprint_bytes) {
  std::ostringstream out;
  const auto size = [](std::uint64_t bytes) {
    return bytes == trace::huge_page_bytes ? "2 MiB" : "4 KiB";
  };
  constexpr auto least = static_cast<double>(least_fast_pages);
  const auto bytes = static_cast<double>(page_bytes);
  out << "too coarse: at scale " << scale << " the fast tier holds " << pages
      << " simulated pages of " << size(page_bytes) << ", and a run needs at least "
      << least_fast_pages << ". What helps:";
  const double finer = std::floor(fast_bytes * scale / (least * bytes));
  const char* separator = " ";
  if (finer >= 1) {
    out << separator << "--scale " << finer << " or less (a larger miniature, which takes longer)";
    separator = "; ";
  }
  if (page_bytes > trace::base_page_bytes &&
      fast_bytes >= least * static_cast<double>(trace::base_page_bytes)) {
    out << separator << "--page-bytes " << trace::base_page_bytes << " (base pages)";
    separator = "; ";
  }
  constexpr double gib = 1024.0 * 1024 * 1024;
  // Rounded up to two digits behind the point.
  const double larger = std::ceil(least * bytes * scale / gib * 100) / 100;
  if (larger * gib < footprint_bytes * scale) {
    out << separator << "--fast-gib " << larger << " or more (a larger fast tier)";
    separator = "; ";
  }
  if (std::string_view{separator} == " ") out << " a workload with a larger footprint";
  return out.str();
}

Knobs scale_knobs(std::span<const KnobDecl> declared, const Knobs& knobs, double scale,
                  double fast_pages) {
  if (!(scale >= 1)) throw std::invalid_argument("scale must be at least 1");
  Knobs scaled = knobs;
  for (const KnobDecl& knob : declared) {
    switch (knob.unit) {
      case Unit::pages:
      case Unit::samples:
      case Unit::mebibytes:
      case Unit::gib_per_second:
      case Unit::hertz:
      case Unit::cores:
        scaled.set(knob.name, knobs.real(knob.name) / scale);
        break;
      case Unit::extreme_per_page:
        scaled.set(knob.name, extreme_threshold(knobs.real(knob.name), fast_pages, scale));
        break;
      case Unit::none:
      case Unit::ratio:
      case Unit::count_per_page:
      case Unit::milliseconds:
      case Unit::seconds:
      case Unit::cycles:
      case Unit::events_per_sample:
      case Unit::samples_per_page:
        break;
    }
  }
  return scaled;
}

}  // namespace tt::sim
