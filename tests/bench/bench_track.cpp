// SPDX-License-Identifier: MIT

// Speed and accuracy of the trackers; one JSON object {name: value} on standard output, progress on
// standard error.
//
//   bench_track                                         everything, about two minutes
//   bench_track --case blocked.4m.zipf                  one case, at the same length
//   bench_track --case blocked.4m.zipf --increments N   N increments after the same set-up: for
//                                                       cachegrind, run two lengths and subtract
//
// Speeds are M increments per second of processor time on one thread, medians of several rounds.
// Filters are 4-bit, k = 4, conservative, sized for the pages at an error of 0.001, and hold every
// page before the clock starts; between rounds they are halved, so that counts neither vanish nor
// all saturate.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <iostream>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/rng.hpp"
#include "track/cbf.hpp"
#include "track/coalesce.hpp"
#include "track/exact.hpp"

namespace {

using namespace tt;
using namespace tt::track;

constexpr std::uint64_t mega = std::uint64_t{1} << 20;
constexpr std::size_t sample_count = 8 * mega;
constexpr std::size_t batch_size = 100'000;

/// Processor time of this thread: what else runs on a shared machine costs cache and bandwidth, but
/// does not stop this clock.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Zipf ranks by rejection inversion (Hormann and Derflinger, 1996): exact, constant time, no
/// table.
class Zipf {
 public:
  Zipf(std::uint64_t n, double exponent) : n_(static_cast<double>(n)), s_(exponent) {
    low_ = integral(1.5) - 1;
    high_ = integral(n_ + 0.5);
  }
  /// Rank in 0 .. n-1, 0 the most frequent.
  std::uint64_t operator()(Rng& rng) const {
    while (true) {
      const double u = high_ + rng.uniform() * (low_ - high_);
      const double x = inverse(u);
      const double k = std::clamp(std::floor(x + 0.5), 1.0, n_);
      if (u >= integral(k + 0.5) - std::pow(k, -s_)) return static_cast<std::uint64_t>(k) - 1;
    }
  }

 private:
  [[nodiscard]] double integral(double x) const {
    return std::expm1((1 - s_) * std::log(x)) / (1 - s_);
  }
  [[nodiscard]] double inverse(double u) const {
    return std::exp(std::log1p(u * (1 - s_)) / (1 - s_));
  }
  double n_;
  double s_;
  double low_;
  double high_;
};

/// Samples of n pages. Hot pages are scattered by an odd multiplier (a bijection of 2^b pages).
std::vector<PageId> samples(std::uint64_t pages, bool zipf) {
  Rng rng(pages + (zipf ? 1 : 0));
  const Zipf rank(pages, 0.99);
  std::vector<PageId> out(sample_count);
  for (auto& page : out)
    page = {zipf ? rank(rng) * 0x9e3779b97f4a7c15ULL % pages : rng.below(pages)};
  return out;
}

struct Timing {
  std::size_t increments = sample_count;
  int rounds = 5;
};

/// M increments/s of count(batch) over the samples, repeated from the start as often as needed;
/// between(round) is not timed.
double rate(std::span<const PageId> all, Timing timing,
            const std::function<void(std::span<const PageId>)>& count,
            const std::function<void()>& between) {
  std::vector<double> rates;
  for (int round = 0; round < timing.rounds; ++round) {
    const double start = now();
    for (std::size_t done = 0; done < timing.increments;) {
      const std::size_t at = done % all.size();
      const std::size_t n = std::min({batch_size, timing.increments - done, all.size() - at});
      count(all.subspan(at, n));
      done += n;
    }
    rates.push_back(static_cast<double>(timing.increments) / (now() - start) / 1e6);
    between();
  }
  return median(rates);
}

void count_every_page(Tracker& tracker, std::uint64_t pages) {
  std::vector<PageId> batch;
  for (std::uint64_t first = 0; first < pages; first += batch_size) {
    batch.clear();
    for (std::uint64_t page = first; page < std::min(first + batch_size, pages); ++page)
      batch.push_back({page});
    tracker.increment(std::span<const PageId>(batch));
  }
}

double tracker_rate(Tracker& tracker, std::uint64_t pages, std::span<const PageId> all,
                    Timing timing) {
  count_every_page(tracker, pages);
  return rate(
      all, timing, [&](std::span<const PageId> batch) { tracker.increment(batch); },
      [&] {
        if (timing.rounds == 1) return;
        tracker.begin_cooling();
        tracker.cool(tracker.lines());
      });
}

double map_rate(std::uint64_t pages, std::span<const PageId> all, Timing timing) {
  std::unordered_map<std::uint64_t, std::uint32_t> map;
  map.reserve(pages);
  for (std::uint64_t page = 0; page < pages; ++page) map.emplace(page, 1);
  return rate(
      all, timing,
      [&](std::span<const PageId> batch) {
        for (const PageId page : batch) ++map[page.value];
      },
      [] {});
}

CbfOptions filter_of(std::uint64_t pages, bool blocked) {
  return {.pages = pages, .blocked = blocked};
}

/// One speed case, named KIND.SIZE.DISTRIBUTION.
double run_case(std::string_view name, std::span<const PageId> all, std::uint64_t pages,
                Timing timing) {
  if (name.starts_with("unordered_map")) return map_rate(pages, all, timing);
  const auto tracker = name.starts_with("exact")
                           ? make_exact(pages)
                           : make_cbf(filter_of(pages, name.starts_with("blocked")));
  return tracker_rate(*tracker, pages, all, timing);
}

/// Share of `pages` pages never counted that have a count, after `pages` others were counted once.
double false_positives(const CbfOptions& options) {
  const auto filter = make_cbf(options);
  count_every_page(*filter, options.pages);
  std::vector<PageId> batch(batch_size);
  std::vector<std::uint32_t> counts(batch_size);
  std::uint64_t positive = 0;
  const std::uint64_t asked = 40 * batch_size;
  for (std::uint64_t first = 0; first < asked; first += batch_size) {
    for (std::size_t i = 0; i < batch_size; ++i) batch[i] = {options.pages + first + i};
    filter->get(batch, counts);
    for (const std::uint32_t count : counts) positive += count > 0 ? 1 : 0;
  }
  return static_cast<double>(positive) / static_cast<double>(asked);
}

/// Share of `pages` pages counted once whose count is larger; theory is for raising all k counters.
double over_counts(CbfOptions options, bool conservative) {
  options.conservative = conservative;
  const auto filter = make_cbf(options);
  count_every_page(*filter, options.pages);
  std::vector<PageId> batch;
  std::vector<std::uint32_t> counts(batch_size);
  std::uint64_t over = 0;
  for (std::uint64_t first = 0; first < options.pages; first += batch_size) {
    batch.clear();
    for (std::uint64_t page = first; page < std::min(first + batch_size, options.pages); ++page)
      batch.push_back({page});
    filter->get(batch, counts);
    for (std::size_t i = 0; i < batch.size(); ++i) over += counts[i] > 1 ? 1 : 0;
  }
  return static_cast<double>(over) / static_cast<double>(options.pages);
}

/// Halving a filter of 64 Mi pages: M lines/s of the sweep alone, the median slice of it that
/// a batch of 100 000 samples takes on, and the speed of counting while a halving is under way.
struct Cooling {
  double lines_rate;
  double slice_milliseconds;
  double increment_rate;
};
Cooling cooling(std::span<const PageId> all, std::uint64_t pages) {
  const auto filter = make_cbf(filter_of(pages, true));
  count_every_page(*filter, pages);
  Cooling result{};
  filter->begin_cooling();
  const double start = now();
  filter->cool(filter->lines());
  result.lines_rate = static_cast<double>(filter->lines()) / (now() - start) / 1e6;

  filter->begin_cooling();
  const std::uint64_t slice = filter->lines() * batch_size / all.size() + 1;
  double counting = 0;
  std::vector<double> slices;
  for (std::size_t at = 0; at < all.size() && filter->cooling(); at += batch_size) {
    const double before = now();
    filter->increment(all.subspan(at, std::min(batch_size, all.size() - at)));
    const double between = now();
    filter->cool(slice);
    slices.push_back(now() - between);
    counting += between - before;
  }
  result.slice_milliseconds = median(slices) * 1e3;
  result.increment_rate = static_cast<double>(slices.size() * batch_size) / counting / 1e6;
  return result;
}

class Figures {
 public:
  void add(const std::string& name, double value) {
    std::cerr << name << " " << value << "\n";
    all_.emplace_back(name, value);
  }
  void print() const {
    std::printf("{");
    const char* separator = "";
    for (const auto& [name, value] : all_) {
      std::printf("%s\n \"%s\": %.6g", separator, name.c_str(), value);
      separator = ",";
    }
    std::printf("\n}\n");
  }

 private:
  std::vector<std::pair<std::string, double>> all_;
};

std::uint64_t pages_of(std::string_view name) {
  if (name.find(".64m.") != std::string_view::npos) return 64 * mega;
  if (name.find(".4m.") != std::string_view::npos) return 4 * mega;
  if (name.find(".64k.") != std::string_view::npos) return mega / 16;
  throw std::invalid_argument("unknown case '" + std::string(name) +
                              "'; a case is KIND.SIZE.DISTRIBUTION, e.g. blocked.64m.uniform");
}
bool is_zipf(std::string_view name) {
  if (name.ends_with(".zipf")) return true;
  if (name.ends_with(".uniform")) return false;
  throw std::invalid_argument("unknown distribution in case '" + std::string(name) + "'");
}

void speeds(Figures& figures) {
  for (const std::string size : {"4m", "64m"})
    for (const std::string shape : {"zipf", "uniform"}) {
      const std::string suffix = "." + size + "." + shape;
      const std::uint64_t pages = pages_of(suffix);
      const auto all = samples(pages, shape == "zipf");
      const double blocked = run_case("blocked", all, pages, {});
      figures.add("cbf.blocked" + suffix, blocked);
      figures.add("cbf.standard" + suffix, run_case("standard", all, pages, {.rounds = 3}));
      figures.add("exact" + suffix, run_case("exact", all, pages, {.rounds = 3}));
      const double map = run_case("unordered_map", all, pages, {.rounds = 3});
      figures.add("cbf.unordered_map" + suffix, map);
      figures.add("cbf.ratio" + suffix, blocked / map);
    }
}

void accuracy(Figures& figures) {
  for (const std::uint64_t millions : {1U, 16U, 64U})
    for (const bool blocked : {true, false}) {
      CbfOptions options = filter_of(millions * mega, blocked);
      const std::string suffix =
          (blocked ? ".blocked." : ".standard.") + std::to_string(millions) + "m";
      const double theory = cbf_false_positive_rate(options, options.pages);
      figures.add("cbf.false_positives" + suffix, false_positives(options));
      figures.add("cbf.over_counts" + suffix, over_counts(options, true));
      figures.add("cbf.over_counts_all" + suffix, over_counts(options, false));
      figures.add("cbf.theory" + suffix, theory);
    }
}

void cooling(Figures& figures) {
  const auto [lines, slice, increments] = cooling(samples(64 * mega, false), 64 * mega);
  figures.add("cbf.cooling.64m.lines", lines);
  figures.add("cbf.cooling.64m.slice_ms", slice);
  figures.add("cbf.cooling.64m.uniform", increments);
}

/// Samples per update after coalescing batches of 100 000 (FreqTier, 2024, §V-C(c), reports 4), and
/// what a sample costs with and without it.
void coalescing(Figures& figures) {
  for (const std::string size : {"64k", "4m", "64m"}) {
    const std::uint64_t pages = pages_of("." + size + ".");
    const auto all = samples(pages, true);
    Coalescer coalescer;
    const auto filter = make_cbf(filter_of(pages, true));
    count_every_page(*filter, pages);
    std::uint64_t updates = 0;
    std::uint64_t counted = 0;
    const double speed = rate(
        all, {.rounds = 3},
        [&](std::span<const PageId> batch) {
          const auto merged = coalescer.coalesce(batch);
          filter->increment(merged);
          updates += merged.size();
          counted += batch.size();
        },
        [] {});
    figures.add("coalesce.saving." + size + ".zipf",
                static_cast<double>(counted) / static_cast<double>(updates));
    figures.add("coalesce.blocked." + size + ".zipf", speed);
  }
}

int run(std::span<char* const> arguments) {
  std::string_view name;
  Timing timing;
  for (std::size_t i = 1; i < arguments.size(); i += 2) {
    const std::string_view option = arguments[i];
    if (i + 1 == arguments.size()) throw std::invalid_argument("option without a value");
    const std::string_view value = arguments[i + 1];
    if (option == "--case") {
      name = value;
    } else if (option == "--increments") {
      timing.rounds = 1;
      const auto end = value.data() + value.size();
      if (std::from_chars(value.data(), end, timing.increments).ptr != end)
        throw std::invalid_argument("--increments wants a whole number");
    } else {
      throw std::invalid_argument("unknown option '" + std::string(option) + "'");
    }
  }
  Figures figures;
  if (name.empty()) {
    speeds(figures);
    accuracy(figures);
    cooling(figures);
    coalescing(figures);
  } else {
    const std::uint64_t pages = pages_of(name);
    figures.add(std::string(name), run_case(name, samples(pages, is_zipf(name)), pages, timing));
  }
  figures.print();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv, static_cast<std::size_t>(argc)});
  } catch (const std::exception& error) {
    std::cerr << "bench_track: " << error.what() << "\n";
    return 2;
  }
}
