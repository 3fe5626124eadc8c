// SPDX-License-Identifier: MIT

// Reader of access streams. Offsets, lengths, indices and numbers that the file gives are checked
// before they are used.
#include "trace/reader.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "trace/checksum.hpp"
#include "trace/cursor.hpp"
#include "trace/layout.hpp"
#include "trace/mapping.hpp"

namespace tt::trace {
namespace {

using namespace layout;

bool no_time(double ns) { return !(std::isfinite(ns) && ns >= 0); }

}  // namespace

struct Reader::Impl {
  explicit Impl(const std::filesystem::path& path) : mapping(path), bytes(mapping.bytes()) {
    open();
    checked = std::vector<std::atomic<bool>>(index.size());
    where().confirm();
  }

  [[nodiscard]] Where where() const { return {mapping}; }
  [[noreturn]] void corrupt(std::string_view what) const { where().corrupt(what); }
  [[nodiscard]] std::string file() const { return mapping.file().string(); }

  void open() {
    if (std::memcmp(bytes.data(), magic, std::min(bytes.size(), sizeof magic)) != 0)
      throw std::runtime_error(file() + ": not an access stream");
    if (bytes.size() < sizeof(FileHeader)) throw std::runtime_error(truncated());
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.version < oldest_version || header.version > format_version ||
        header.header_bytes != sizeof(FileHeader))
      throw std::runtime_error(file() + ": stream format version " +
                               std::to_string(header.version) + ", this program reads versions " +
                               std::to_string(oldest_version) + " to " +
                               std::to_string(format_version));
    if (header.checksum != checksum(bytes.first(offsetof(FileHeader, checksum))))
      corrupt("checksum of the header");
    if (bytes.size() < header.file_bytes) throw std::runtime_error(truncated());
    if (bytes.size() != header.file_bytes) corrupt("longer than its header says");

    const auto index_bytes =
        part(header.index_offset, header.blocks, sizeof(IndexEntry), header.totals_offset);
    const auto totals_bytes =
        part(header.totals_offset, header.pages, sizeof(std::uint64_t), header.tables_offset);
    const auto table_bytes = part(header.tables_offset, header.tables_bytes, 1, bytes.size());
    if (header.index_checksum != checksum(index_bytes)) corrupt("checksum of the index");
    if (header.tables_checksum != checksum(table_bytes)) corrupt("checksum of the tables");

    const auto* const first = reinterpret_cast<const IndexEntry*>(index_bytes.data());
    index.assign(first, first + header.blocks);
    totals = {reinterpret_cast<const std::uint64_t*>(totals_bytes.data()),
              static_cast<std::size_t>(header.pages)};
    std::uint64_t expected = sizeof(FileHeader);
    for (const IndexEntry& entry : index) {
      if (entry.offset != expected || entry.bytes < sizeof(BlockHeader) ||
          entry.bytes % alignment != 0 || entry.bytes > header.index_offset - entry.offset)
        corrupt("a block lies outside its place");
      expected += entry.bytes;
    }
    if (expected != header.index_offset) corrupt("bytes between blocks and index");
    decode_tables({table_bytes, where()});
  }

  /// The bytes of a part that must fill the file up to `end`.
  std::span<const std::byte> part(std::uint64_t offset, std::uint64_t count, std::size_t size,
                                  std::uint64_t end) const {
    if (offset % alignment != 0 || offset < sizeof(FileHeader) || end > bytes.size() ||
        offset > end || count > (end - offset) / size || offset + aligned(count * size) != end)
      corrupt("a part lies outside the file");
    return bytes.subspan(offset, end - offset);
  }

  void decode_tables(Cursor in) {
    info.workload = in.text();
    info.input = in.text();
    info.parameters = in.text();
    // A list's length is believed only as far as the bytes that follow it.
    const auto length = [&](std::size_t least_bytes) {
      const auto count = in.value<std::uint32_t>();
      if (count > in.left() / least_bytes) corrupt("a table exceeds its part");
      return count;
    };
    info.lanes.resize(length(12));
    for (Lane& lane : info.lanes) {
      lane.name = in.text();
      lane.thread_share = in.value<double>();
    }
    const bool patterns = header.version >= 3;
    info.classes.resize(length(patterns ? 56 : 32));
    for (StreamClass& entry : info.classes) {
      entry.name = in.text();
      entry.mlp = in.value<double>();
      entry.issue_ns = in.value<double>();
      entry.lane = in.value<std::uint32_t>();
      entry.store_fill = in.value<double>();
      if (!patterns) continue;
      entry.prefetched = in.value<double>();
      entry.translation = in.value<double>();
      entry.store_events = in.value<double>();
    }
    info.op_kinds.resize(length(4));
    for (OpKind& kind : info.op_kinds) kind.name = in.text();
    info.objects.resize(length(20));
    for (Object& object : info.objects) {
      object.site = in.text();
      object.first_page = in.value<std::uint64_t>();
      object.pages = in.value<std::uint64_t>();
    }
    info.seed = header.seed;
    info.scale = header.scale;
    info.page_bytes = header.version < 3 ? base_page_bytes : header.page_bytes;
    info.pages = header.pages;
    info.blocks = header.blocks;
    info.accesses = header.accesses;
    info.entries = header.entries;
    info.operations = header.operations;
    info.nominal_seconds = header.nominal_seconds;
    info.identity = header.checksum;
    if (const auto what = defect(info); !what.empty()) corrupt(what);
  }

  [[nodiscard]] std::string truncated() const {
    return file() + ": truncated stream (" + std::to_string(bytes.size()) + " bytes" +
           (bytes.size() < sizeof(FileHeader) ? std::string(")")
                                              : " of " + std::to_string(header.file_bytes) + ")");
  }

  [[nodiscard]] std::span<const std::byte> block_bytes(std::uint64_t i) const {
    if (i >= index.size()) throw std::out_of_range(file() + ": no block " + std::to_string(i));
    return bytes.subspan(index[i].offset, index[i].bytes);
  }

  /// What precedes a block's accesses, up to its events.
  BlockHeader read_front(Cursor& in, Block& out) const {
    const auto block = in.value<BlockHeader>();
    out.timed = block.timed != 0;
    out.nominal_ns = block.nominal_ns;
    out.compute_ns = in.take<double>(info.lanes.size());
    if (no_time(out.nominal_ns) || std::ranges::any_of(out.compute_ns, no_time))
      in.corrupt("a time is negative");
    out.operations = in.take<std::uint64_t>(info.op_kinds.size());
    out.events = in.take<Event>(block.events);
    for (const Event& event : out.events)
      if (event.type > EventType::unmap || event.object >= info.objects.size() ||
          event.first > info.pages || event.count > info.pages - event.first)
        in.corrupt("an event lies outside the address space");
    return block;
  }

  std::span<const Event> events(std::uint64_t i) const {
    Cursor in{block_bytes(i), {mapping, i}};
    Block front;
    (void)read_front(in, front);
    return front.events;
  }

  void read(std::uint64_t i, Block& out) const {
    const auto block = block_bytes(i);
    const Where where{mapping, i};
    // Another thread that is at the same block checks it, too.
    const bool check = !checked[i].load(std::memory_order_relaxed);
    if (check && index[i].checksum != checksum(block)) where.corrupt("checksum");
    decode({block, where}, out);
    if (check) check_numbers(out, where);
    where.confirm();
    if (check) checked[i].store(true, std::memory_order_relaxed);
  }

  void decode(Cursor in, Block& out) const {
    const BlockHeader block = read_front(in, out);
    const auto segments = in.take<SegmentHeader>(block.segments);
    const auto operations = in.take<OperationHeader>(block.sampled);
    auto accesses = in.take<OpAccess>(block.op_accesses);
    out.sampled.resize(operations.size());
    for (std::size_t o = 0; o < operations.size(); ++o) {
      const OperationHeader from = operations[o];
      if (from.kind >= info.op_kinds.size() || from.accesses > accesses.size())
        in.corrupt("a sampled operation exceeds it");
      if (no_time(from.compute_ns)) in.corrupt("a sampled operation's time is negative");
      out.sampled[o] = {from.kind, from.compute_ns, accesses.first(from.accesses)};
      accesses = accesses.subspan(from.accesses);
    }
    out.segments.resize(segments.size());
    for (std::size_t s = 0; s < segments.size(); ++s) {
      const SegmentHeader from = segments[s];
      if (from.stream_class >= info.classes.size() || from.kind > 1)
        in.corrupt("a segment names an unknown class");
      Segment& to = out.segments[s];
      to.stream_class = from.stream_class;
      to.kind = static_cast<AccessKind>(from.kind);
      to.sum = from.sum;
      if (from.repeats != 0) {
        if (s == 0 || from.size != out.segments[s - 1].pages.size())
          in.corrupt("a segment repeats none or another");
        to.pages = out.segments[s - 1].pages;
        to.chunk_sums = out.segments[s - 1].chunk_sums;
        to.counts = out.segments[s - 1].counts;
        continue;
      }
      in.align();
      to.pages = in.take<std::uint32_t>(from.size);
      in.align();
      to.chunk_sums = in.take<std::uint32_t>(chunks(from.size));
      in.align();
      to.counts = in.take<std::uint16_t>(from.size);
    }
  }

  /// Page numbers and classes of accesses, and that the sums are those of the counts.
  void check_numbers(const Block& block, Where where) const {
    for (std::size_t s = 0; s < block.segments.size(); ++s) {
      const Segment& segment = block.segments[s];
      if (s > 0 && segment.pages.data() == block.segments[s - 1].pages.data() &&
          !segment.pages.empty()) {  // repeats it
        if (segment.sum != block.segments[s - 1].sum) where.corrupt("a sum of counts");
        continue;
      }
      // Without a branch per entry: the compiler makes vectors of it.
      std::uint32_t outside = segment.pages.empty() || info.pages > 0 ? 0 : 1;
      const auto last = static_cast<std::uint32_t>(info.pages - 1);
      for (const std::uint32_t page : segment.pages) outside |= page > last ? 1U : 0U;
      if (outside != 0) where.corrupt("a page number");
      std::uint64_t sum = 0;
      for (std::size_t c = 0; c < segment.chunk_sums.size(); ++c) {
        std::uint32_t chunk_sum = 0;
        for (const std::uint16_t count :
             segment.counts.subspan(c * chunk, std::min(chunk, segment.counts.size() - c * chunk)))
          chunk_sum += count;
        if (chunk_sum != segment.chunk_sums[c]) where.corrupt("a sum of a chunk's counts");
        sum += chunk_sum;
      }
      if (sum != segment.sum) where.corrupt("a sum of counts");
    }
    for (const Operation& operation : block.sampled)
      for (const OpAccess& access : operation.accesses)
        if (access.page >= info.pages || access.stream_class >= info.classes.size() ||
            access.kind > AccessKind::store)
          where.corrupt("a sampled operation's access");
  }

  std::span<const std::uint64_t> page_totals() const {
    if (!totals_checked.load(std::memory_order_relaxed)) {
      const auto place =
          bytes.subspan(header.totals_offset, header.tables_offset - header.totals_offset);
      if (header.totals_checksum != checksum(place)) corrupt("checksum of the page totals");
      totals_checked.store(true, std::memory_order_relaxed);
    }
    where().confirm();
    return totals;
  }

  void verify() const {
    Block block;
    std::uint64_t accesses = 0;
    std::uint64_t entries = 0;
    std::uint64_t operations = 0;
    std::vector<std::uint64_t> sums(totals.size());
    for (std::uint64_t i = 0; i < index.size(); ++i) {
      checked[i] = false;
      read(i, block);
      for (const Segment& segment : block.segments) {
        if (block.timed)
          for (std::size_t e = 0; e < segment.pages.size(); ++e)
            sums[segment.pages[e]] += segment.counts[e];
        accesses += segment.sum;
        entries += segment.pages.size();
      }
      if (block.timed)
        for (const std::uint64_t count : block.operations) operations += count;
    }
    if (accesses != info.accesses || entries != info.entries || operations != info.operations)
      corrupt("the blocks do not add up to the header's totals");
    totals_checked = false;
    if (!std::ranges::equal(sums, page_totals())) corrupt("page totals");
    where().confirm();
  }

  Mapping mapping;
  std::span<const std::byte> bytes;
  FileHeader header{};
  std::vector<IndexEntry> index;
  std::span<const std::uint64_t> totals;
  StreamInfo info;
  mutable std::vector<std::atomic<bool>> checked;  // by block
  mutable std::atomic<bool> totals_checked{false};
};

Reader::Reader(const std::filesystem::path& file) : impl_(std::make_unique<Impl>(file)) {}
Reader::~Reader() = default;
const StreamInfo& Reader::info() const { return impl_->info; }
std::span<const std::uint64_t> Reader::page_totals() const { return impl_->page_totals(); }
void Reader::read(std::uint64_t i, Block& out) const { impl_->read(i, out); }
std::span<const Event> Reader::events(std::uint64_t i) const { return impl_->events(i); }
const Mapping& Reader::mapping() const { return impl_->mapping; }
void Reader::confirm() const { impl_->where().confirm(); }
void Reader::verify() const { impl_->verify(); }

}  // namespace tt::trace
