// SPDX-License-Identifier: MIT

// Recorder: recorder.hpp defines what counts. This is the path of a touch: through the mapped pages
// (recorded_space.hpp) and the cache filter (line_filter.hpp) into the open block (open_block.hpp)
// and the operation that is sampled (sampled_operations.hpp), and from there into the file.
#include "trace/recorder.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/rng.hpp"
#include "trace/line_filter.hpp"
#include "trace/open_block.hpp"
#include "trace/overlap.hpp"
#include "trace/recorded_pattern.hpp"
#include "trace/recorded_space.hpp"
#include "trace/sampled_operations.hpp"
#include "trace/writer.hpp"

namespace tt::trace {
namespace {

const RecorderOptions& checked(const RecorderOptions& options, const StreamInfo& info) {
  for (const double value :
       {options.scale, options.block_ms, options.threads, options.nominal_latency_ns})
    if (!std::isfinite(value) || value <= 0)
      throw std::invalid_argument("recorder: scale, block_ms, threads and latency are positive");
  if (!std::has_single_bit(options.thinning))
    throw std::invalid_argument("recorder: thinning is a power of two");
  if (info.page_bytes != base_page_bytes && info.page_bytes != huge_page_bytes)
    throw std::invalid_argument("recorder: pages are of 4096 or 2097152 bytes");
  if (options.thinning > info.page_bytes / base_page_bytes)
    throw std::invalid_argument("recorder: thinning leaves a base page of each page");
  if (options.thinning > 1 && !info.op_kinds.empty())
    throw std::invalid_argument("recorder: operations are whole, and cannot be thinned");
  return options;
}

/// What is recorded, in nominal time: full-scale nanoseconds.
struct NominalTime {
  NominalTime(const RecorderOptions& options, const StreamInfo& info) {
    for (const Lane& lane : info.lanes)
      of_thread.push_back(
          options.scale * options.thinning /
          (lane.thread_share == 0 ? 1 : std::max(1.0, lane.thread_share * options.threads)));
    for (const StreamClass& entry : info.classes)
      for (const double waits : {1.0, store_stall})  // loads, stores
        of_entry.push_back(
            std::max(entry.issue_ns, waits * options.nominal_latency_ns / entry.mlp) *
            of_thread.at(entry.lane));
  }
  std::vector<double> of_thread;  // by lane: per nanosecond of a simulated thread
  std::vector<double> of_entry;   // by way: class * 2 + kind
};

}  // namespace

struct Recorder::Impl {
  Impl(std::filesystem::path file, StreamInfo description, RecorderOptions given)
      : options(checked(given, description)),
        info(std::move(description)),
        nominal(options, info),
        rng(mix64(options.seed) ^ 0x6f7073616d706c65ULL),
        space(info.page_bytes, options.thinning),
        filter(static_cast<double>(options.llc_bytes) / (options.scale * options.thinning),
               options.llc_ways, info.classes.size()),
        block(info),
        operations(options.op_sample_probability, rng),
        limit_ns(options.block_ms * 1e6) {
    info.scale = options.scale;
    writer.emplace(std::move(file), info);
  }

  // ----------------------------------------------------------------------------- address space

  Address map(std::string_view site, std::uint64_t bytes) {
    const Event mapped = space.map(std::string(site), bytes);
    filter.resize(space.frames());
    block.events().push_back(mapped);
    return mapped.first * space.held_bytes();
  }

  void unmap(const Event& range) {
    if (in_operation) throw std::logic_error("recorder: unmap() inside an operation");
    // A block's events come before its accesses, so what was touched so far is closed first.
    if (block.busy()) close();
    space.free(range);
    const auto frames = [&](std::uint64_t pages) { return pages << space.frame_shift(); };
    filter.forget(frames(range.first), frames(range.count));
    block.events().push_back(range);
  }

  // ---------------------------------------------------------------------------------- accesses

  void access(std::uint32_t stream_class, AccessKind kind, Address address, std::uint64_t bytes) {
    if (bytes == 0) return;
    if (kind == AccessKind::store) filter.retire_stores(stream_class, bytes);
    std::uint64_t line = address / line_bytes;
    const std::uint64_t end = (address + bytes - 1) / line_bytes + 1;
    while (line < end) {
      const std::uint64_t frame = line / page_lines;
      const std::uint64_t page = frame >> space.frame_shift();
      const std::uint64_t frame_end = std::min(end, (frame + 1) * page_lines);
      space.touch(page, block.events());
      const LineFilter::Counted counted =
          filter.touch(stream_class, kind, frame, static_cast<std::uint32_t>(line % page_lines),
                       static_cast<std::uint32_t>(frame_end - line));
      line = frame_end;
      if (counted.entries == 0) continue;
      const auto number = static_cast<std::uint32_t>(page);
      add(stream_class, kind, number, counted.entries, counted.fetched);
      if (operations.sampling()) operations.note(number, counted.entries, stream_class, kind);
      close_if_full(info.classes[stream_class].lane);
    }
  }

  void miss(std::uint32_t stream_class, AccessKind kind, Address address, std::uint64_t count) {
    if (in_operation) throw std::logic_error("recorder: miss() inside an operation");
    const std::uint64_t page = address / space.held_bytes();
    space.touch(page, block.events());
    while (count > 0) {
      const auto part =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(count, Coalesced::max_count));
      const double fetched_share =
          kind == AccessKind::store ? info.classes[stream_class].store_fill : 1.0;
      add(stream_class, kind, static_cast<std::uint32_t>(page), part,
          static_cast<std::uint32_t>(part * fetched_share + 0.5));
      count -= part;
    }
    end_step();
  }

  /// `fetched`: of the entries, those that wait for their line.
  void add(std::uint32_t stream_class, AccessKind kind, std::uint32_t page, std::uint32_t entries,
           std::uint32_t fetched) {
    const std::size_t way = stream_class * 2 + index(kind);
    block.add(way, page, entries * options.thinning, space.pages());
    block.add_time(info.classes[stream_class].lane, fetched * nominal.of_entry[way]);
  }

  void add_compute(std::uint32_t lane, double nanoseconds) {
    block.add_compute(lane, nanoseconds * options.thinning);
    block.add_time(lane, nanoseconds * nominal.of_thread[lane]);
    if (operations.sampling()) operations.note_compute(nanoseconds);
    close_if_full(lane);
  }

  void begin_operation(std::uint32_t kind) {
    if (in_operation) throw std::logic_error("recorder: operations do not nest");
    block.add_operation(kind);
    in_operation = true;
    operations.begin(kind, rng);
  }

  void end_operation() {
    if (!in_operation) throw std::logic_error("recorder: no operation to end");
    operations.end();
    in_operation = false;
    end_step();
  }

  // ------------------------------------------------------------------------------------ blocks

  /// After what took time on one lane: a block never ends inside an operation.
  void close_if_full(std::uint32_t lane) {
    if (!in_operation && block.lane_ns(lane) >= limit_ns) close();
  }
  void end_step() {
    if (block.nominal_ns() >= limit_ns) close();
  }
  /// Before what may not be in one block with the rest.
  void close_if_any() {
    if (!block.empty()) close();
  }

  void close() {
    Block closed = block.describe(timed);
    operations.describe(closed);
    append(closed);
    pattern.keep(closed);
    block.clear();
    operations.clear();
  }

  void append(const Block& closed) {
    writer->write(closed);
    total_ns += closed.nominal_ns;
    if (closed.timed) timed_ns += closed.nominal_ns;
  }

  // ------------------------------------------------------------------------------------ patterns

  void begin_pattern() {
    if (pattern.open() || in_operation)
      throw std::logic_error("recorder: a pattern inside another");
    close_if_any();
    pattern.begin(space, filter.seen());
  }

  void end_pattern() {
    if (!pattern.open() || in_operation) throw std::logic_error("recorder: no pattern to end");
    close_if_any();
    pattern.end(space, filter.seen());
  }

  void check_pattern(bool usable) {
    if (pattern.open() || in_operation || !usable)
      throw std::logic_error("recorder: no pattern that could be repeated");
    close_if_any();
  }

  void repeat_pattern(std::uint64_t times) {
    check_pattern(pattern.repeatable(timed));
    for (std::uint64_t i = 0; i < times; ++i)
      pattern.repeat(space, [&](const Block& again) { append(again); });
    filter.resize(space.frames());
    // So that a class's shares are those of everything written.
    filter.add_seen(pattern.seen(), static_cast<double>(times));
  }

  void draw_pattern(double times) {
    check_pattern(pattern.drawable(timed));
    pattern.draw(times, rng, [&](const Block& drawn) { append(drawn); });
    filter.add_seen(pattern.seen(), times);
  }

  StreamInfo finish() {
    if (in_operation) throw std::logic_error("recorder: finish() inside an operation");
    close_if_any();
    info.pages = space.pages();
    info.objects = space.objects();
    info.nominal_seconds = timed_ns * 1e-9;
    for (std::size_t c = 0; c < info.classes.size(); ++c)
      filter.seen()[c].describe(info.classes[c]);
    return writer->finish(info);
  }

  RecorderOptions options;
  StreamInfo info;
  NominalTime nominal;
  Rng rng;
  RecordedSpace space;
  LineFilter filter;
  OpenBlock block;
  SampledOperations operations;
  RecordedPattern pattern;
  std::optional<Writer> writer;

  double limit_ns;
  double total_ns = 0;
  double timed_ns = 0;
  bool timed = true;
  bool in_operation = false;
};

Recorder::Recorder(std::filesystem::path file, StreamInfo info, RecorderOptions options)
    : impl_(std::make_unique<Impl>(std::move(file), std::move(info), options)) {}
Recorder::~Recorder() = default;

Address Recorder::map(std::string_view site, std::uint64_t bytes) {
  return impl_->map(site, bytes);
}
void Recorder::unmap(Address start) { impl_->unmap(impl_->space.unmapping(start)); }
void Recorder::unmap(Address start, std::uint64_t pages) {
  impl_->unmap(impl_->space.unmapping(start, pages));
}

void Recorder::set_timed(bool timed) {
  if (impl_->in_operation) throw std::logic_error("recorder: set_timed() inside an operation");
  if (timed != impl_->timed && impl_->block.busy()) impl_->close();
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
  if (impl_->block.busy()) impl_->close();
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
  return (impl_->timed_ns + (impl_->timed ? impl_->block.nominal_ns() : 0)) * 1e-9;
}
double Recorder::total_seconds() const {
  return (impl_->total_ns + impl_->block.nominal_ns()) * 1e-9;
}

StreamInfo Recorder::finish() { return impl_->finish(); }

}  // namespace tt::trace
