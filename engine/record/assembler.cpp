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
#include "record/blocks.hpp"
#include "record/spool.hpp"
#include "trace/overlap.hpp"

namespace tt::record {
namespace {

constexpr unsigned page_shift = 12;
static_assert(std::size_t{1} << page_shift == trace::base_page_bytes);
constexpr std::uint64_t window_pages = (64ull << 20) >> page_shift;
constexpr std::uint64_t least_piece_pages = (64ull << 10) >> page_shift;
constexpr std::uint64_t pieces_of_a_size = 4;
/// Page numbers of a process take 36 bits (48-bit addresses); its number lies above them. Shared
/// memory has numbers like processes, above theirs.
constexpr unsigned process_shift = 36;
constexpr std::uint64_t process_limit = 1U << 27;

/// Pages that are mapped alike: not accessed so far (no place in the stream), or in the stream from
/// `place` on.
struct Range {
  std::uint64_t pages = 0;
  std::uint32_t site = 0;
  bool whole = true;  // placed as one; else it may be mostly unused, and is placed in pieces
  bool placed = false;
  std::uint32_t place = 0;
  std::uint64_t stands_for = 0;  // not 0: the page of shared memory that the first page is
};

}  // namespace

struct Assembler::Impl {
  Impl(std::filesystem::path file, trace::StreamInfo info, AssemblerOptions given)
      : options(given),
        classes(info.classes),
        name(file.string()),
        blocks(std::move(file), std::move(info),
               {given.scale, given.threads, given.nominal_latency_ns}),
        rng(mix64(given.seed) ^ 0x617373656d626c65ULL),
        block_ns(given.block_ms * 1e6) {
    if (!std::isfinite(options.offered_per_s) || options.offered_per_s < 0)
      throw std::invalid_argument("assembler: offered_per_s is not negative");
    if (!std::isfinite(options.block_ms) || options.block_ms <= 0)
      throw std::invalid_argument("assembler: block_ms is positive");
    set_up = options.set_up_s > 0 || options.operations;
    if (set_up) blocks.set_timed(false);
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
    rest.place += static_cast<std::uint32_t>(before);
    if (rest.stands_for != 0) rest.stands_for += before;
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
      if (at->second.stands_for != 0)
        mapped[at->second.stands_for >> process_shift] -= at->second.pages;
      gone(at->first, at->second);
      at = ranges.erase(at);
    }
  }

  void map(std::uint64_t address, std::uint64_t bytes, std::string_view site, std::uint64_t shared,
           std::uint64_t offset) {
    const auto [first, count] = pages(address, bytes);
    if (count == 0) return;
    take(first, count, [](auto, const auto&) {});
    Range range{count, site_of(site), count <= window_pages};
    if (shared != 0) {
      const std::uint64_t number =
          shared_numbers.try_emplace(shared, shared_numbers.size()).first->second;
      const std::uint64_t from = (offset & Record::address_mask) >> page_shift;
      if (number >= process_limit || count > (std::uint64_t{1} << process_shift) - from)
        throw std::invalid_argument("assembler: too much shared memory");
      range.stands_for = (process_limit + number) << process_shift | from;
      mapped[process_limit + number] += count;
      fill(range);
    }
    ranges.insert_or_assign(first, range);
    forget_shared();
  }

  /// Maps what is not mapped of the shared memory that the range stands for.
  void fill(const Range& range) {
    cached = ranges.end();
    const std::uint64_t end = range.stands_for + range.pages;
    for (std::uint64_t page = range.stands_for; page < end;) {
      const auto after = ranges.upper_bound(page);
      if (after != ranges.begin()) {
        const auto& [first, before] = *std::prev(after);
        if (first + before.pages > page) {
          page = first + before.pages;
          continue;
        }
      }
      const std::uint64_t to = after == ranges.end() ? end : std::min(end, after->first);
      ranges.emplace_hint(after, page, Range{to - page, range.site, range.whole});
      page = to;
    }
  }

  /// Frees shared memory that nobody maps any more.
  void forget_shared() {
    for (auto at = mapped.begin(); at != mapped.end();) {
      if (at->second > 0) {
        ++at;
        continue;
      }
      const std::uint64_t first = at->first << process_shift;
      at = mapped.erase(at);
      take(first, std::uint64_t{1} << process_shift, [](auto, const auto&) {});
    }
  }

  void unmap(std::uint64_t address, std::uint64_t bytes) {
    const auto [first, count] = pages(address, bytes);
    take(first, count, [](auto, const auto&) {});
    forget_shared();
  }

  void discard(std::uint64_t address, std::uint64_t bytes) {
    const auto [first, count] = pages(address, bytes);
    std::vector<std::pair<std::uint64_t, Range>> again;
    take(first, count, [&](std::uint64_t at, Range range) {
      // What is shared keeps its content: the process has let go of its own view of it.
      if (range.stands_for != 0) mapped[range.stands_for >> process_shift] += range.pages;
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

  /// Pages of the next piece around the page: the more pieces its window has, the larger.
  [[nodiscard]] std::uint64_t piece(std::uint64_t page) const {
    const std::uint64_t window = page / window_pages * window_pages;
    std::uint64_t pieces = 0;
    for (auto at = ranges.lower_bound(window);
         at != ranges.end() && at->first < window + window_pages; ++at)
      pieces += at->second.placed ? 1 : 0;
    std::uint64_t size = least_piece_pages;
    for (; pieces >= pieces_of_a_size && size < window_pages; pieces -= pieces_of_a_size) size *= 2;
    return size;
  }

  /// The placed range that holds the page; a page of shared memory becomes that memory's.
  Ranges::iterator find(std::uint64_t& page) {
    if (holds(cached, page)) return cached;
    auto at = ranges.upper_bound(page);
    if (at != ranges.begin()) --at;
    if (holds(at, page) && at->second.stands_for != 0) {
      page = at->second.stands_for + (page - at->first);
      return find(page);
    }
    if (!holds(at, page)) {
      // As much of the aligned piece around it as is not mapped.
      const std::uint64_t size = piece(page);
      const std::uint64_t start = page / size * size;
      const auto after = ranges.upper_bound(page);
      std::uint64_t from = start;
      if (after != ranges.begin()) {
        const auto& [first, range] = *std::prev(after);
        from = std::max(from, first + range.pages);
      }
      std::uint64_t to = start + size;
      if (after != ranges.end()) to = std::min(to, after->first);
      at = ranges.emplace_hint(after, from, Range{to - from, site_of("unknown")});
    }
    if (!at->second.placed) {
      if (!at->second.whole) {
        const std::uint64_t size = piece(page);
        const std::uint64_t from = at->first + (page - at->first) / size * size;
        cut(from);
        cut(from + size);
        at = ranges.find(from);
      }
      Range& range = at->second;
      range.place = blocks.map(sites[range.site], range.pages * trace::base_page_bytes);
      range.placed = true;
    }
    cached = at;
    return at;
  }

  [[nodiscard]] static std::uint32_t place_of(Ranges::iterator at, std::uint64_t page) {
    return at->second.place + static_cast<std::uint32_t>(page - at->first);
  }
  void check_class(std::uint32_t stream_class) const {
    if (stream_class >= classes.size())
      throw std::invalid_argument("class " + std::to_string(stream_class) + " of " +
                                  std::to_string(classes.size()) + " that the stream has");
  }

  void access(std::uint64_t address, AccessKind kind, std::uint32_t stream_class, double count) {
    check_class(stream_class);
    if (!(count >= 0 && count <= 1e12))
      throw std::invalid_argument("an access stands for " + std::to_string(count) +
                                  " accesses; allowed are 0 to 1e12");
    const double below = std::floor(count);
    const auto whole =
        static_cast<std::uint64_t>(below) + (rng.uniform() < count - below ? 1U : 0U);
    if (whole == 0) return;
    std::uint64_t page = key(address);
    const auto at = find(page);
    blocks.miss(stream_class, kind, place_of(at, page), whole);
    observed += whole;
    const trace::StreamClass& from = classes[stream_class];
    const double waits = kind == AccessKind::load ? 1.0 : trace::store_stall * from.store_fill;
    stall_ns += static_cast<double>(whole) *
                std::max(from.issue_ns, waits * options.nominal_latency_ns / from.mlp);
  }

  void time(std::uint64_t ns) {
    if (ns <= now) return;
    now = ns;
    if (set_up && options.set_up_s > 0 && static_cast<double>(now) >= options.set_up_s * 1e9)
      begin_timed();
    if (options.operations && options.set_up_s == 0 && !set_up && !over &&
        now > options.last_operation_ns) {
      end_block();
      blocks.set_timed(false);
      over = true;
    }
    if (static_cast<double>(now - block_start) >= block_ns) end_block();
  }

  void begin_timed() {
    end_block();
    blocks.set_timed(true);
    set_up = false;
  }

  void end_block() {
    if (options.wall_time) {
      const double elapsed =
          static_cast<double>(now - block_start) * options.threads / options.scale;
      if (elapsed > stall_ns) blocks.compute(elapsed - stall_ns);
    }
    if (options.offered_per_s > 0 && !set_up && !over) idle();
    blocks.end_block();
    block_start = now;
    stall_ns = 0;
    // An operation is told in the block in which it ends, when its memory must be there.
    std::vector<std::uint32_t> needed;
    if (!freed.empty())
      for (const auto& [number, accesses] : under_way)
        for (const trace::OpAccess& access : accesses) needed.push_back(access.page);
    std::ranges::sort(needed);
    const auto used = [&](const auto& range) {
      const auto at = std::ranges::lower_bound(needed, range.first);
      return at != needed.end() && *at - range.first < range.second;
    };
    const auto gone = std::ranges::stable_partition(freed, used);
    for (const auto& [place, count] : gone) blocks.unmap(place, count);
    freed.erase(gone.begin(), gone.end());
  }

  /// As long as it takes until clients have asked for what has been done.
  void idle() {
    busy_ns += blocks.nominal_ns();
    const double asked_ns = static_cast<double>(done) * options.scale / options.offered_per_s * 1e9;
    if (asked_ns <= busy_ns) return;
    blocks.compute((asked_ns - busy_ns) * options.threads / options.scale);
    busy_ns = asked_ns;
  }

  // ------------------------------------------------------------------------------ operations

  /// Numbers of operations that are under way are a process's own.
  [[nodiscard]] std::pair<std::uint64_t, std::uint32_t> number_of(std::uint32_t slot) const {
    return {base, slot};
  }

  void operation_access(std::uint32_t slot, std::uint64_t address, AccessKind kind,
                        std::uint32_t stream_class, std::uint32_t count) {
    check_class(stream_class);
    if (count == 0 || count > trace::Coalesced::max_count)
      throw std::invalid_argument("an operation's access of " + std::to_string(count));
    std::uint64_t page = key(address);
    const auto at = find(page);
    under_way[number_of(slot)].push_back({place_of(at, page), static_cast<std::uint16_t>(count),
                                          static_cast<std::uint8_t>(stream_class), kind});
  }

  void operation(std::uint32_t slot, std::uint32_t level, double compute_ns) {
    check_operations();
    if (!(compute_ns >= 0 && compute_ns <= 1e18))
      throw std::invalid_argument("an operation of " + std::to_string(compute_ns) + " ns");
    auto found = under_way.extract(number_of(slot));
    if (level < options.operation_level || level == abandoned_operation) return;
    blocks.sampled(compute_ns, found ? std::move(found.mapped()) : std::vector<trace::OpAccess>{});
  }

  void check_operations() const {
    if (!options.operations)
      throw std::invalid_argument("an operation, and the header knows of none");
  }

  void operations(std::uint64_t count) {
    check_operations();
    blocks.operations(count);
    done += count;
  }

  trace::StreamInfo finish() {
    if (set_up)
      throw std::runtime_error(name + ": it all came within the set-up's " +
                               std::to_string(options.set_up_s) + " s; nothing is left to time");
    if (observed == 0)
      throw std::runtime_error(name + ": no access was observed; there is nothing to play");
    end_block();
    return blocks.finish();
  }

  AssemblerOptions options;
  std::vector<trace::StreamClass> classes;
  std::string name;
  Blocks blocks;
  Rng rng;
  double block_ns;

  std::uint64_t base = 0;  // of the process
  Ranges ranges;           // by page; never overlap
  Ranges::iterator cached = ranges.end();
  std::map<std::uint64_t, std::uint64_t> shared_numbers;  // by identity
  std::map<std::uint64_t, std::uint64_t> mapped;          // pages, by number of shared memory
  std::vector<std::string> sites;
  std::map<std::string, std::uint32_t, std::less<>> site_numbers;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> freed;  // pages, at the end of the block
  /// What operations that are under way have accessed so far, by process and slot.
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::vector<trace::OpAccess>> under_way;

  bool set_up = false;
  bool over = false;  // the last operation has ended
  std::uint64_t now = 0;
  std::uint64_t block_start = 0;
  std::uint64_t done = 0;  // operations
  double busy_ns = 0;      // nominal time of the timed part, idle time included
  double stall_ns = 0;     // thread time that the open block's accesses explain
  std::uint64_t observed = 0;
};

Assembler::Assembler(std::filesystem::path file, trace::StreamInfo info, AssemblerOptions options)
    : impl_(std::make_unique<Impl>(std::move(file), std::move(info), options)) {}
Assembler::~Assembler() = default;

void Assembler::process(std::uint32_t number) {
  if (number >= process_limit) throw std::invalid_argument("assembler: too many processes");
  impl_->base = std::uint64_t{number} << process_shift;
}
void Assembler::time(std::uint64_t ns) { impl_->time(ns); }
void Assembler::map(std::uint64_t address, std::uint64_t bytes, std::string_view site,
                    std::uint64_t shared, std::uint64_t offset) {
  impl_->map(address, bytes, site, shared, offset);
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
  impl_->blocks.compute(thread_ns / impl_->options.scale);
}
void Assembler::phase(bool timed) {
  impl_->end_block();
  impl_->blocks.set_timed(timed);
}
void Assembler::operations_begin() {
  if (impl_->set_up && impl_->options.set_up_s == 0) impl_->begin_timed();
}
void Assembler::operation_access(std::uint32_t slot, std::uint64_t address, AccessKind kind,
                                 std::uint32_t stream_class, std::uint32_t count) {
  impl_->operation_access(slot, address, kind, stream_class, count);
}
void Assembler::operation(std::uint32_t slot, std::uint32_t level, double compute_ns) {
  impl_->operation(slot, level, compute_ns);
}
void Assembler::operations(std::uint64_t count) { impl_->operations(count); }
void Assembler::ended() {
  std::erase_if(impl_->under_way,
                [&](const auto& each) { return each.first.first == impl_->base; });
  impl_->unmap(0, Record::address_mask);
}
trace::StreamInfo Assembler::finish() { return impl_->finish(); }

}  // namespace tt::record
