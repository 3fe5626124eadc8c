// Recorder: recorder.hpp defines what counts. This is the path of a touch through filter,
// coalescing and blocks.
#include "trace/recorder.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/math.hpp"
#include "core/rng.hpp"
#include "trace/llc.hpp"
#include "trace/overlap.hpp"
#include "trace/pattern.hpp"
#include "trace/seen.hpp"
#include "trace/writer.hpp"

namespace tt::trace {
namespace {

enum class PageState : std::uint8_t { untouched, touched, freed };

constexpr std::uint32_t max_count = std::numeric_limits<std::uint16_t>::max();

/// Entries of one class and kind in the open block. `last` finds a page's newest entry: epoch (of
/// the block) in the upper half, place in the lower; starting a block is adding one to the epoch.
struct Accumulator {
  std::vector<std::uint32_t> pages;
  std::vector<std::uint16_t> counts;
  std::vector<std::uint64_t> last;

  void add(std::uint32_t page, std::uint32_t count, std::uint32_t epoch, std::size_t all_pages) {
    if (last.size() < all_pages) last.resize(all_pages);
    std::uint64_t& place = last[page];
    if (place >> 32 == epoch) {
      std::uint16_t& entry = counts[static_cast<std::uint32_t>(place)];
      const std::uint32_t fits = std::min(count, max_count - entry);
      entry = static_cast<std::uint16_t>(entry + fits);
      count -= fits;
    }
    if (count == 0) return;  // counts beyond 16 bits continue in a new entry
    place = std::uint64_t{epoch} << 32 | pages.size();
    pages.push_back(page);
    counts.push_back(static_cast<std::uint16_t>(count));
  }
  void clear() {
    pages.clear();
    counts.clear();
  }
};

const RecorderOptions& checked(const RecorderOptions& options) {
  for (const double value :
       {options.scale, options.block_ms, options.threads, options.nominal_latency_ns})
    if (!std::isfinite(value) || value <= 0)
      throw std::invalid_argument("recorder: scale, block_ms, threads and latency are positive");
  if (!std::has_single_bit(options.thinning))
    throw std::invalid_argument("recorder: thinning is a power of two");
  return options;
}

struct SampledOperation {
  std::uint32_t kind;
  double compute_ns;
  std::size_t first;  // in Impl::op_accesses
  std::size_t count;
};

}  // namespace

struct Recorder::Impl {
  Impl(std::filesystem::path file, StreamInfo description, RecorderOptions given)
      : options(checked(given)),
        info(std::move(description)),
        llc(static_cast<double>(options.llc_bytes) / (options.scale * options.thinning),
            options.llc_ways),
        rng(mix64(options.seed) ^ 0x6f7073616d706c65ULL),
        seen(info.classes.size()),
        accumulators(info.classes.size() * 2),
        compute(info.lanes.size()),
        lane_ns(info.lanes.size()),
        operations(info.op_kinds.size()) {
    info.scale = options.scale;
    if (info.page_bytes != base_page_bytes && info.page_bytes != huge_page_bytes)
      throw std::invalid_argument("recorder: pages are of 4096 or 2097152 bytes");
    if (options.thinning > info.page_bytes / base_page_bytes)
      throw std::invalid_argument("recorder: thinning leaves a base page of each page");
    if (options.thinning > 1 && !info.op_kinds.empty())
      throw std::invalid_argument("recorder: operations are whole, and cannot be thinned");
    held_bytes = info.page_bytes / options.thinning;
    frame_shift = static_cast<unsigned>(std::countr_zero(held_bytes / base_page_bytes));
    for (const Lane& lane : info.lanes)
      full_scale.push_back(
          options.scale * options.thinning /
          (lane.thread_share == 0 ? 1 : std::max(1.0, lane.thread_share * options.threads)));
    for (const StreamClass& entry : info.classes)
      for (const double waits : {1.0, store_stall})  // loads, stores
        cost_ns.push_back(std::max(entry.issue_ns, waits * options.nominal_latency_ns / entry.mlp) *
                          full_scale.at(entry.lane));
    until_sample = draw_sample();
    limit_ns = options.block_ms * 1e6;
    writer.emplace(std::move(file), info);
  }

  // ----------------------------------------------------------------------------- address space

  Address map(std::string_view site, std::uint64_t bytes) {
    const std::uint64_t count = (bytes + held_bytes - 1) / held_bytes;
    if (count == 0) throw std::invalid_argument("recorder: a mapping of no bytes");
    const std::uint64_t first = reserve(std::string(site), count);
    events.push_back({EventType::map, static_cast<std::uint32_t>(info.objects.size() - 1),
                      static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count)});
    return first * held_bytes;
  }

  /// Page numbers for an object, without an event. Returns the first one.
  std::uint64_t reserve(std::string site, std::uint64_t count) {
    const std::uint64_t first = state.size();
    if (count > (LlcFilter::max_pages >> frame_shift) - first)
      throw std::invalid_argument("recorder: more than 128 GiB of simulated memory; raise scale");
    state.resize(first + count, PageState::untouched);
    runs.resize(state.size() << frame_shift);
    info.objects.push_back({std::move(site), first, count});
    return first;
  }

  void unmap(Address start) {
    const std::size_t object = object_of(start / held_bytes);
    if (object == info.objects.size() || info.objects[object].first_page * held_bytes != start)
      throw std::logic_error("recorder: unmap() of an address that map() did not return");
    unmap(start, info.objects[object].pages);
  }

  void unmap(Address start, std::uint64_t pages) {
    const std::uint64_t first = start / held_bytes;
    const std::size_t object = object_of(first);
    if (object == info.objects.size() || start % held_bytes != 0 || pages == 0 ||
        pages > info.objects[object].first_page + info.objects[object].pages - first)
      throw std::logic_error("recorder: unmap() of what is not one mapped range");
    const auto freed = std::span(state).subspan(first, pages);
    if (std::ranges::find(freed, PageState::freed) != freed.end())
      throw std::logic_error("recorder: unmap() of a page that is not mapped");
    if (in_operation) throw std::logic_error("recorder: unmap() inside an operation");
    // A block's events come before its accesses, so what was touched so far is closed first.
    if (busy()) close();
    std::ranges::fill(freed, PageState::freed);
    std::ranges::fill(std::span(runs).subspan(first << frame_shift, pages << frame_shift), Run{});
    events.push_back({EventType::unmap, static_cast<std::uint32_t>(object),
                      static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(pages)});
  }

  /// Objects lie in ascending order without gaps. Unknown page: objects.size().
  [[nodiscard]] std::size_t object_of(std::uint64_t page) const {
    if (page >= state.size()) return info.objects.size();
    const auto after = std::ranges::upper_bound(info.objects, page, {},
                                                [](const Object& o) { return o.first_page; });
    return static_cast<std::size_t>(after - info.objects.begin()) - 1;
  }

  void first_touch(std::uint64_t page) {
    if (page >= state.size() || state[page] == PageState::freed)
      throw std::logic_error("recorder: access to page " + std::to_string(page) +
                             ", which is not mapped");
    state[page] = PageState::touched;
    const auto number = static_cast<std::uint32_t>(page);
    const auto object = static_cast<std::uint32_t>(object_of(page));
    if (!events.empty()) {
      Event& last = events.back();
      if (last.type == EventType::touch && last.object == object &&
          last.first + last.count == number) {
        ++last.count;
        return;
      }
    }
    events.push_back({EventType::touch, object, number, 1});
  }

  // ---------------------------------------------------------------------------------- accesses

  void access(std::uint32_t stream_class, AccessKind kind, Address address, std::uint64_t bytes) {
    if (bytes == 0) return;
    Seen& seen_here = seen[stream_class];
    const bool load = kind == AccessKind::load;
    if (!load) seen_here.stores += (bytes + store_bytes - 1) / store_bytes;
    std::uint64_t line = address / line_bytes;
    const std::uint64_t end = (address + bytes - 1) / line_bytes + 1;
    while (line < end) {
      // Caches and prefetchers know base pages, whatever the pages of the stream are.
      const std::uint64_t frame = line / page_lines;
      const std::uint64_t page = frame >> frame_shift;
      const std::uint64_t frame_end = std::min(end, (frame + 1) * page_lines);
      if (page >= state.size() || state[page] != PageState::touched) first_touch(page);
      const auto first = static_cast<std::uint32_t>(line % page_lines);
      const auto lines = static_cast<std::uint32_t>(frame_end - line);
      const LlcFilter::Count found =
          llc.touch(static_cast<std::uint32_t>(frame), first, lines, !load);
      const Run::Followed followed = runs[frame].follow(first, lines);
      line = frame_end;
      const std::uint32_t count = load ? found.missed : found.dirtied;
      if (count == 0) continue;
      if (!load) {
        seen_here.dirtied += count;
        seen_here.filled += found.missed;
      }
      if (found.missed > 0) {
        const double share = static_cast<double>(found.missed) / lines;
        seen_here.fetched += found.missed;
        seen_here.prefetched += share * followed.prefetched;
        if (followed.started) seen_here.started += share;
      }
      add(stream_class, kind, static_cast<std::uint32_t>(page), count, found.missed);
      if (sampling) note(static_cast<std::uint32_t>(page), count, stream_class, kind);
      if (!in_operation && lane_ns[info.classes[stream_class].lane] >= limit_ns) close();
    }
  }

  void miss(std::uint32_t stream_class, AccessKind kind, Address address, std::uint64_t count) {
    if (in_operation) throw std::logic_error("recorder: miss() inside an operation");
    const std::uint64_t page = address / held_bytes;
    if (page >= state.size() || state[page] != PageState::touched) first_touch(page);
    while (count > 0) {
      const auto part = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, max_count));
      const double fetched_share =
          kind == AccessKind::store ? info.classes[stream_class].store_fill : 1.0;
      add(stream_class, kind, static_cast<std::uint32_t>(page), part,
          static_cast<std::uint32_t>(part * fetched_share + 0.5));
      count -= part;
    }
    if (block_ns() >= limit_ns) close();
  }

  /// `fetched_lines`: of the entries, those that wait for their line.
  void add(std::uint32_t stream_class, AccessKind kind, std::uint32_t page, std::uint32_t count,
           std::uint32_t fetched_lines) {
    const std::size_t way = stream_class * 2 + index(kind);
    accumulators.at(way).add(page, count * options.thinning, epoch, state.size());
    lane_ns[info.classes[stream_class].lane] += fetched_lines * cost_ns[way];
  }

  void note(std::uint32_t page, std::uint32_t count, std::uint32_t stream_class, AccessKind kind) {
    const auto added = static_cast<std::uint16_t>(count);  // of one page: at most 64
    if (op_accesses.size() > sampled.back().first) {
      OpAccess& last = op_accesses.back();
      if (last.page == page && last.stream_class == stream_class && last.kind == kind &&
          last.count <= max_count - added) {
        last.count = static_cast<std::uint16_t>(last.count + added);
        return;
      }
    }
    op_accesses.push_back({page, added, static_cast<std::uint8_t>(stream_class), kind});
  }

  void add_compute(std::uint32_t lane, double nanoseconds) {
    compute.at(lane) += nanoseconds * options.thinning;
    lane_ns[lane] += nanoseconds * full_scale[lane];
    if (sampling) sampled.back().compute_ns += nanoseconds;
    if (!in_operation && lane_ns[lane] >= limit_ns) close();
  }

  /// Operations until the next sampled one: geometric, so that one draw serves many operations.
  [[nodiscard]] std::uint64_t draw_sample() {
    const double p = options.op_sample_probability;
    if (p >= 1) return 0;
    if (p <= 0) return std::numeric_limits<std::uint64_t>::max();
    const double skipped = math::log1p(-rng.uniform()) / math::log1p(-p);
    return static_cast<std::uint64_t>(std::min(skipped, 1e18));
  }

  void begin_operation(std::uint32_t kind) {
    if (in_operation) throw std::logic_error("recorder: operations do not nest");
    ++operations.at(kind);
    in_operation = true;
    if (until_sample-- > 0) return;
    sampling = true;
    until_sample = draw_sample();
    sampled.push_back({kind, 0, op_accesses.size(), 0});
  }

  void end_operation() {
    if (!in_operation) throw std::logic_error("recorder: no operation to end");
    if (sampling) sampled.back().count = op_accesses.size() - sampled.back().first;
    in_operation = sampling = false;
    if (block_ns() >= limit_ns) close();
  }

  // ------------------------------------------------------------------------------------ blocks

  [[nodiscard]] double block_ns() const { return std::ranges::max(lane_ns); }

  /// Whether the open block holds anything besides events.
  [[nodiscard]] bool busy() const {
    return block_ns() > 0 || std::ranges::any_of(operations, [](auto count) { return count > 0; });
  }

  void close() {
    Block block;
    block.timed = timed;
    block.nominal_ns = block_ns();
    block.compute_ns = compute;
    block.operations = operations;
    block.events = events;
    for (std::size_t i = 0; i < accumulators.size(); ++i) {
      const Accumulator& from = accumulators[i];
      if (from.pages.empty()) continue;
      block.segments.push_back({static_cast<std::uint32_t>(i / 2),
                                static_cast<AccessKind>(i % 2),
                                0,
                                from.pages,
                                from.counts,
                                {}});
    }
    for (const SampledOperation& operation : sampled)
      block.sampled.push_back({operation.kind, operation.compute_ns,
                               std::span(op_accesses).subspan(operation.first, operation.count)});
    append(block);
    if (in_pattern) pattern.keep(block);

    for (Accumulator& accumulator : accumulators) accumulator.clear();
    std::ranges::fill(compute, 0);
    std::ranges::fill(lane_ns, 0);
    std::ranges::fill(operations, 0);
    events.clear();
    sampled.clear();
    op_accesses.clear();
    ++epoch;
  }

  void append(const Block& block) {
    writer->write(block);
    total_ns += block.nominal_ns;
    if (block.timed) timed_ns += block.nominal_ns;
  }

  // ------------------------------------------------------------------------------------ patterns

  void begin_pattern() {
    if (in_pattern || in_operation) throw std::logic_error("recorder: a pattern inside another");
    if (busy() || !events.empty()) close();
    pattern = Pattern{};
    own_page = state.size();
    own_object = info.objects.size();
    in_pattern = true;
    pattern_seen = seen;
  }

  void end_pattern() {
    if (!in_pattern || in_operation) throw std::logic_error("recorder: no pattern to end");
    if (busy() || !events.empty()) close();
    in_pattern = false;
    own_pages = state.size() - own_page;
    own_objects = info.objects.size() - own_object;
    for (std::size_t c = 0; c < seen.size(); ++c) pattern_seen[c] = seen[c].since(pattern_seen[c]);
  }

  void check_pattern(bool usable) {
    if (in_pattern || in_operation || !usable)
      throw std::logic_error("recorder: no pattern that could be repeated");
    if (busy() || !events.empty()) close();
  }

  /// So that a class's shares are those of everything written.
  void count_pattern(double times) {
    for (std::size_t c = 0; c < seen.size(); ++c) seen[c].add(pattern_seen[c], times);
  }

  void repeat_pattern(std::uint64_t times) {
    check_pattern(pattern.repeatable(timed, own_page));
    for (std::uint64_t i = 0; i < times; ++i) {
      const Pattern::Shift shift{own_page, own_object, state.size() - own_page,
                                 info.objects.size() - own_object};
      for (std::size_t object = own_object; object < own_object + own_objects; ++object) {
        const Object& first = info.objects[object];
        (void)reserve(first.site, first.pages);
      }
      // In the end they are touched, or freed, as the first ones were.
      std::copy_n(state.begin() + static_cast<std::ptrdiff_t>(own_page), own_pages,
                  state.begin() + static_cast<std::ptrdiff_t>(own_page + shift.pages));
      pattern.repeat(shift, [&](const Block& block) { append(block); });
    }
    count_pattern(static_cast<double>(times));
  }

  void draw_pattern(double times) {
    check_pattern(pattern.drawable(timed));
    pattern.draw(times, rng, [&](const Block& block) { append(block); });
    count_pattern(times);
  }

  StreamInfo finish() {
    if (in_operation) throw std::logic_error("recorder: finish() inside an operation");
    if (busy() || !events.empty()) close();
    info.pages = state.size();
    info.nominal_seconds = timed_ns * 1e-9;
    for (std::size_t c = 0; c < seen.size(); ++c) seen[c].describe(info.classes[c]);
    return writer->finish(info);
  }

  RecorderOptions options;
  StreamInfo info;
  LlcFilter llc;
  Rng rng;
  std::optional<Writer> writer;

  std::vector<double> full_scale;  // per lane: full-scale ns per ns of simulated thread time
  std::vector<double> cost_ns;     // per class * 2 + kind: full-scale ns per entry
  double limit_ns = 0;
  double total_ns = 0;
  double timed_ns = 0;
  bool timed = true;

  std::uint64_t held_bytes = 0;  // of the kernel's memory in a page
  unsigned frame_shift = 0;      // a page of the stream is 2^frame_shift of its base pages
  std::vector<PageState> state;  // per page of the address space

  std::vector<Run> runs;   // per base page
  std::vector<Seen> seen;  // by class

  Pattern pattern;
  bool in_pattern = false;
  std::uint64_t own_page = 0;   // the first that the pattern mapped
  std::uint64_t own_pages = 0;  // how many
  std::size_t own_object = 0;   // likewise
  std::size_t own_objects = 0;
  std::vector<Seen> pattern_seen;  // of the pattern alone once it is over

  // The open block.
  std::uint32_t epoch = 1;
  std::vector<Accumulator> accumulators;  // class * 2 + kind
  std::vector<double> compute;
  std::vector<double> lane_ns;  // full scale
  std::vector<std::uint64_t> operations;
  std::vector<Event> events;
  std::vector<SampledOperation> sampled;
  std::vector<OpAccess> op_accesses;
  bool in_operation = false;
  bool sampling = false;
  std::uint64_t until_sample = 0;
};

Recorder::Recorder(std::filesystem::path file, StreamInfo info, RecorderOptions options)
    : impl_(std::make_unique<Impl>(std::move(file), std::move(info), options)) {}
Recorder::~Recorder() = default;

Address Recorder::map(std::string_view site, std::uint64_t bytes) {
  return impl_->map(site, bytes);
}
void Recorder::unmap(Address start) { impl_->unmap(start); }
void Recorder::unmap(Address start, std::uint64_t pages) { impl_->unmap(start, pages); }

void Recorder::set_timed(bool timed) {
  if (impl_->in_operation) throw std::logic_error("recorder: set_timed() inside an operation");
  if (timed != impl_->timed && impl_->busy()) impl_->close();
  impl_->timed = timed;
}

void Recorder::load(std::uint32_t stream_class, Address address, std::uint64_t bytes) {
  impl_->access(stream_class, AccessKind::load, address, bytes);
}
void Recorder::store(std::uint32_t stream_class, Address address, std::uint64_t bytes) {
  impl_->access(stream_class, AccessKind::store, address, bytes);
}
void Recorder::miss(std::uint32_t stream_class, AccessKind kind, Address address,
                    std::uint64_t count) {
  impl_->miss(stream_class, kind, address, count);
}
void Recorder::end_block() {
  if (impl_->in_operation) throw std::logic_error("recorder: end_block() inside an operation");
  if (impl_->busy()) impl_->close();
}
void Recorder::compute(std::uint32_t lane, double nanoseconds) {
  impl_->add_compute(lane, nanoseconds);
}
void Recorder::begin_operation(std::uint32_t kind) { impl_->begin_operation(kind); }
void Recorder::end_operation() { impl_->end_operation(); }

void Recorder::begin_pattern() { impl_->begin_pattern(); }
void Recorder::end_pattern() { impl_->end_pattern(); }
void Recorder::repeat_pattern(std::uint64_t times) { impl_->repeat_pattern(times); }
void Recorder::draw_pattern(double times) { impl_->draw_pattern(times); }

double Recorder::timed_seconds() const {
  return (impl_->timed_ns + (impl_->timed ? impl_->block_ns() : 0)) * 1e-9;
}
double Recorder::total_seconds() const { return (impl_->total_ns + impl_->block_ns()) * 1e-9; }

StreamInfo Recorder::finish() { return impl_->finish(); }

}  // namespace tt::trace
