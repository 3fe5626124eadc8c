// SPDX-License-Identifier: MIT

#include "record/assembler.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/rng.hpp"
#include "record/spool.hpp"
#include "trace/overlap.hpp"
#include "trace/recorder.hpp"

namespace tt::record {
namespace {

constexpr unsigned page_shift = 12;
static_assert(std::size_t{1} << page_shift == trace::base_page_bytes);
constexpr std::uint64_t piece_pages = (64ull << 20) >> page_shift;
constexpr std::uint64_t unknown_pages = (2ull << 20) >> page_shift;
/// Page numbers of a process take 36 bits (48-bit addresses); its number lies above them.
constexpr unsigned process_shift = 36;

/// Pages that are mapped alike: not accessed so far (no place in the stream), or in the stream from
/// `place` on.
struct Range {
  std::uint64_t pages = 0;
  std::uint32_t site = 0;
  bool placed = false;
  trace::Address place = 0;
};

trace::RecorderOptions recorder_options(const AssemblerOptions& options) {
  trace::RecorderOptions out;
  out.scale = options.scale;
  out.block_ms = 1e12;  // blocks end by the observation's clock
  out.threads = options.threads;
  out.llc_bytes = 0;  // what was observed has missed already; nothing passes the filter
  out.nominal_latency_ns = options.nominal_latency_ns;
  out.op_sample_probability = 0;
  out.seed = options.seed;
  return out;
}

}  // namespace

struct Assembler::Impl {
  Impl(std::filesystem::path file, trace::StreamInfo info, AssemblerOptions given)
      : options(given),
        classes(info.classes),
        name(file.string()),
        recorder(std::move(file), std::move(info), recorder_options(given)),
        rng(mix64(given.seed) ^ 0x617373656d626c65ULL),
        block_ns(given.block_ms * 1e6) {
    if (!std::isfinite(options.block_ms) || options.block_ms <= 0)
      throw std::invalid_argument("assembler: block_ms is positive");
    set_up = options.set_up_s > 0;
    if (set_up) recorder.set_timed(false);
  }

  using Ranges = std::map<std::uint64_t, Range>;

  [[nodiscard]] std::uint64_t key(std::uint64_t address) const {
    return (address & Record::address_mask) >> page_shift | base;
  }
  /// First page and number of pages that the bytes touch, within the process.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> pages(std::uint64_t address,
                                                              std::uint64_t bytes) const {
    address &= Record::address_mask;
    if (bytes == 0) return {key(address), 0};
    const std::uint64_t last = address + std::min(bytes, Record::address_mask - address + 1) - 1;
    return {key(address), (last >> page_shift) - (address >> page_shift) + 1};
  }

  /// Makes `page` the first page of a range if it is inside one.
  void cut(std::uint64_t page) {
    auto at = ranges.upper_bound(page);
    if (at == ranges.begin()) return;
    --at;
    Range& front = at->second;
    const std::uint64_t before = page - at->first;
    if (before == 0 || before >= front.pages) return;
    Range rest = front;
    rest.pages -= before;
    rest.place += before * trace::base_page_bytes;
    front.pages = before;
    ranges.emplace_hint(std::next(at), page, rest);
  }

  /// Takes [first, first + count) out of the mappings; calls `gone` for each range.
  template <typename Gone>
  void take(std::uint64_t first, std::uint64_t count, Gone gone) {
    if (count == 0) return;
    cached = ranges.end();
    cut(first);
    cut(first + count);
    auto at = ranges.lower_bound(first);
    while (at != ranges.end() && at->first < first + count) {
      if (at->second.placed) freed.emplace_back(at->second.place, at->second.pages);
      gone(at->first, at->second);
      at = ranges.erase(at);
    }
  }

  void map(std::uint64_t address, std::uint64_t bytes, std::string_view site) {
    const auto [first, count] = pages(address, bytes);
    if (count == 0) return;
    take(first, count, [](auto, const auto&) {});
    ranges.insert_or_assign(first, Range{count, site_of(site), false, 0});
  }

  void unmap(std::uint64_t address, std::uint64_t bytes) {
    const auto [first, count] = pages(address, bytes);
    take(first, count, [](auto, const auto&) {});
  }

  void discard(std::uint64_t address, std::uint64_t bytes) {
    const auto [first, count] = pages(address, bytes);
    std::vector<std::pair<std::uint64_t, Range>> again;
    take(first, count, [&](std::uint64_t at, Range range) {
      range.placed = false;
      range.place = 0;
      again.emplace_back(at, range);
    });
    ranges.insert(again.begin(), again.end());
  }

  [[nodiscard]] std::uint32_t site_of(std::string_view site) {
    const auto [at, fresh] =
        site_numbers.try_emplace(std::string(site), static_cast<std::uint32_t>(sites.size()));
    if (fresh) sites.emplace_back(site);
    return at->second;
  }

  [[nodiscard]] bool holds(Ranges::iterator at, std::uint64_t page) const {
    return at != ranges.end() && page >= at->first && page - at->first < at->second.pages;
  }

  /// The placed range that holds the page.
  Ranges::iterator find(std::uint64_t page) {
    if (holds(cached, page)) return cached;
    auto at = ranges.upper_bound(page);
    if (at != ranges.begin()) --at;
    if (!holds(at, page)) {
      // As much of the aligned 2 MiB around it as is not mapped.
      const std::uint64_t start = page / unknown_pages * unknown_pages;
      const auto after = ranges.upper_bound(page);
      std::uint64_t from = start;
      if (after != ranges.begin()) {
        const auto& [first, range] = *std::prev(after);
        from = std::max(from, first + range.pages);
      }
      std::uint64_t to = start + unknown_pages;
      if (after != ranges.end()) to = std::min(to, after->first);
      at = ranges.emplace_hint(after, from, Range{to - from, site_of("unknown"), false, 0});
    }
    if (!at->second.placed) {
      const std::uint64_t from = at->first + (page - at->first) / piece_pages * piece_pages;
      cut(from);
      cut(from + piece_pages);
      at = ranges.find(from);
      Range& range = at->second;
      range.place = recorder.map(sites[range.site], range.pages * trace::base_page_bytes);
      range.placed = true;
    }
    cached = at;
    return at;
  }

  void access(std::uint64_t address, AccessKind kind, std::uint32_t stream_class, double count) {
    if (stream_class >= classes.size())
      throw std::invalid_argument("class " + std::to_string(stream_class) + " of " +
                                  std::to_string(classes.size()) + " that the stream has");
    if (!(count >= 0 && count <= 1e12))
      throw std::invalid_argument("an access stands for " + std::to_string(count) +
                                  " accesses; allowed are 0 to 1e12");
    const double below = std::floor(count);
    const auto whole =
        static_cast<std::uint64_t>(below) + (rng.uniform() < count - below ? 1U : 0U);
    if (whole == 0) return;
    const std::uint64_t page = key(address);
    const auto at = find(page);
    recorder.miss(stream_class, kind,
                  at->second.place + (page - at->first) * trace::base_page_bytes, whole);
    observed += whole;
    const trace::StreamClass& from = classes[stream_class];
    const double waits = kind == AccessKind::load ? 1.0 : trace::store_stall * from.store_fill;
    stall_ns += static_cast<double>(whole) *
                std::max(from.issue_ns, waits * options.nominal_latency_ns / from.mlp);
  }

  void time(std::uint64_t ns) {
    if (ns <= now) return;
    now = ns;
    if (set_up && static_cast<double>(now) >= options.set_up_s * 1e9) {
      end_block();
      recorder.set_timed(true);
      set_up = false;
    }
    if (static_cast<double>(now - block_start) >= block_ns) end_block();
  }

  void end_block() {
    if (options.wall_time) {
      const double elapsed = static_cast<double>(now - block_start) * options.threads;
      if (elapsed > stall_ns) recorder.compute(0, elapsed - stall_ns);
    }
    recorder.end_block();
    block_start = now;
    stall_ns = 0;
    for (const auto& [place, count] : freed) recorder.unmap(place, count);
    freed.clear();
  }

  trace::StreamInfo finish() {
    if (set_up)
      throw std::runtime_error(name + ": it all came within the set-up's " +
                               std::to_string(options.set_up_s) + " s; nothing is left to time");
    if (observed == 0)
      throw std::runtime_error(name + ": no access was observed; there is nothing to play");
    end_block();
    return recorder.finish();
  }

  AssemblerOptions options;
  std::vector<trace::StreamClass> classes;
  std::string name;
  trace::Recorder recorder;
  Rng rng;
  double block_ns;

  std::uint64_t base = 0;  // of the process
  Ranges ranges;           // by page; never overlap
  Ranges::iterator cached = ranges.end();
  std::vector<std::string> sites;
  std::map<std::string, std::uint32_t, std::less<>> site_numbers;
  std::vector<std::pair<trace::Address, std::uint64_t>> freed;  // at the end of the block

  bool set_up = false;
  std::uint64_t now = 0;
  std::uint64_t block_start = 0;
  double stall_ns = 0;  // thread time that the open block's accesses explain
  std::uint64_t observed = 0;
};

Assembler::Assembler(std::filesystem::path file, trace::StreamInfo info, AssemblerOptions options)
    : impl_(std::make_unique<Impl>(std::move(file), std::move(info), options)) {}
Assembler::~Assembler() = default;

void Assembler::process(std::uint32_t number) {
  if (number >= 1U << 27) throw std::invalid_argument("assembler: too many processes");
  impl_->base = std::uint64_t{number} << process_shift;
}
void Assembler::time(std::uint64_t ns) { impl_->time(ns); }
void Assembler::map(std::uint64_t address, std::uint64_t bytes, std::string_view site) {
  impl_->map(address, bytes, site);
}
void Assembler::unmap(std::uint64_t address, std::uint64_t bytes) { impl_->unmap(address, bytes); }
void Assembler::discard(std::uint64_t address, std::uint64_t bytes) {
  impl_->discard(address, bytes);
}
void Assembler::access(std::uint64_t address, AccessKind kind, std::uint32_t stream_class,
                       double count) {
  impl_->access(address, kind, stream_class, count);
}
void Assembler::compute(double thread_ns) {
  if (!(thread_ns >= 0 && thread_ns <= 1e18))
    throw std::invalid_argument("a compute time of " + std::to_string(thread_ns) + " ns");
  impl_->recorder.compute(0, thread_ns);
}
void Assembler::phase(bool timed) {
  impl_->end_block();
  impl_->recorder.set_timed(timed);
}
trace::StreamInfo Assembler::finish() { return impl_->finish(); }

}  // namespace tt::record
