// Reader of access streams. Offsets, lengths and indices that the file gives are checked before
// they are used; page numbers are checked by verify() alone.
#include "trace/reader.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "trace/checksum.hpp"
#include "trace/layout.hpp"

namespace tt::trace {
namespace {

using namespace layout;

[[noreturn]] void corrupt(const std::filesystem::path& file, std::string_view what) {
  throw std::runtime_error(file.string() + ": corrupt stream: " + std::string(what));
}

/// Hands out consecutive arrays of a byte range; refuses to go beyond its end, whatever count the
/// file gives.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::filesystem::path& file)
      : bytes_(bytes), file_(file) {}

  template <typename T>
  std::span<const T> take(std::uint64_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (count > (bytes_.size() - at_) / sizeof(T)) corrupt(file_, "an array exceeds its part");
    const auto* first = reinterpret_cast<const T*>(bytes_.data() + at_);
    at_ += count * sizeof(T);
    return {first, static_cast<std::size_t>(count)};
  }
  template <typename T>
  T value() {  // may be unaligned
    T result;
    std::memcpy(&result, take<std::byte>(sizeof(T)).data(), sizeof(T));
    return result;
  }
  std::string text() {
    const auto chars = take<char>(value<std::uint32_t>());
    return {chars.begin(), chars.end()};
  }
  void align() {
    if (aligned(at_) > bytes_.size()) corrupt(file_, "an array exceeds its part");
    at_ = aligned(at_);
  }
  [[nodiscard]] std::size_t left() const { return bytes_.size() - at_; }

 private:
  std::span<const std::byte> bytes_;
  const std::filesystem::path& file_;
  std::size_t at_ = 0;
};

}  // namespace

struct Reader::Impl {
  explicit Impl(const std::filesystem::path& path) : file(path) {
    // Without O_NONBLOCK, opening a pipe would wait for a writer.
    const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
      throw std::system_error(errno, std::generic_category(), file.string() + ": cannot open");
    struct stat status{};
    if (::fstat(descriptor, &status) != 0) {
      const int error = errno;
      ::close(descriptor);
      throw std::system_error(error, std::generic_category(), file.string() + ": cannot stat");
    }
    if (!S_ISREG(status.st_mode)) {
      ::close(descriptor);
      throw std::runtime_error(file.string() + ": not an access stream (no regular file)");
    }
    const auto size = static_cast<std::size_t>(status.st_size);
    if (size == 0) {
      ::close(descriptor);
      throw std::runtime_error(file.string() + ": not an access stream (empty file)");
    }
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
    const int error = errno;
    ::close(descriptor);
    if (mapped == MAP_FAILED)
      throw std::system_error(error, std::generic_category(), file.string() + ": cannot map");
    bytes = {static_cast<const std::byte*>(mapped), size};
    try {
      open();
    } catch (...) {
      unmap();
      throw;
    }
  }
  ~Impl() { unmap(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void unmap() {
    ::munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
    bytes = {};
  }

  void open() {
    if (std::memcmp(bytes.data(), magic, std::min(bytes.size(), sizeof magic)) != 0)
      throw std::runtime_error(file.string() + ": not an access stream");
    if (bytes.size() < sizeof(FileHeader)) throw std::runtime_error(truncated());
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.version < oldest_version || header.version > format_version ||
        header.header_bytes != sizeof(FileHeader))
      throw std::runtime_error(file.string() + ": stream format version " +
                               std::to_string(header.version) + ", this program reads versions " +
                               std::to_string(oldest_version) + " to " +
                               std::to_string(format_version));
    if (header.checksum != checksum(bytes.first(offsetof(FileHeader, checksum))))
      corrupt(file, "checksum of the header");
    if (bytes.size() < header.file_bytes) throw std::runtime_error(truncated());
    if (bytes.size() != header.file_bytes) corrupt(file, "longer than its header says");

    const auto index_bytes =
        part(header.index_offset, header.blocks, sizeof(IndexEntry), header.totals_offset);
    const auto totals_bytes =
        part(header.totals_offset, header.pages, sizeof(std::uint64_t), header.tables_offset);
    const auto table_bytes = part(header.tables_offset, header.tables_bytes, 1, bytes.size());
    if (header.index_checksum != checksum(index_bytes)) corrupt(file, "checksum of the index");
    if (header.tables_checksum != checksum(table_bytes)) corrupt(file, "checksum of the tables");

    index = {reinterpret_cast<const IndexEntry*>(index_bytes.data()),
             static_cast<std::size_t>(header.blocks)};
    totals = {reinterpret_cast<const std::uint64_t*>(totals_bytes.data()),
              static_cast<std::size_t>(header.pages)};
    std::uint64_t expected = sizeof(FileHeader);
    for (const IndexEntry& entry : index) {
      if (entry.offset != expected || entry.bytes < sizeof(BlockHeader) ||
          entry.bytes % alignment != 0 || entry.bytes > header.index_offset - entry.offset)
        corrupt(file, "a block lies outside its place");
      expected += entry.bytes;
    }
    if (expected != header.index_offset) corrupt(file, "bytes between blocks and index");
    decode({table_bytes, file});
  }

  /// The bytes of a part that must fill the file up to `end`.
  std::span<const std::byte> part(std::uint64_t offset, std::uint64_t count, std::size_t size,
                                  std::uint64_t end) const {
    if (offset % alignment != 0 || offset < sizeof(FileHeader) || end > bytes.size() ||
        offset > end || count > (end - offset) / size || offset + aligned(count * size) != end)
      corrupt(file, "a part lies outside the file");
    return bytes.subspan(offset, end - offset);
  }

  void decode(Cursor in) {
    info.workload = in.text();
    info.input = in.text();
    info.parameters = in.text();
    // A list's length is believed only as far as the bytes that follow it.
    const auto length = [&](std::size_t least_bytes) {
      const auto count = in.value<std::uint32_t>();
      if (count > in.left() / least_bytes) corrupt(file, "a table exceeds its part");
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
    if (const auto what = defect(info); !what.empty()) corrupt(file, what);
  }

  [[nodiscard]] std::string truncated() const {
    return file.string() + ": truncated stream (" + std::to_string(bytes.size()) + " bytes" +
           (bytes.size() < sizeof(FileHeader) ? std::string(")")
                                              : " of " + std::to_string(header.file_bytes) + ")");
  }

  void read(std::uint64_t i, Block& out) const {
    if (i >= index.size())
      throw std::out_of_range(file.string() + ": no block " + std::to_string(i));
    const IndexEntry& place = index[i];
    Cursor in{bytes.subspan(place.offset, place.bytes), file};
    const BlockHeader& block = in.take<BlockHeader>(1)[0];
    out.timed = block.timed != 0;
    out.nominal_ns = block.nominal_ns;
    out.compute_ns = in.take<double>(info.lanes.size());
    const auto no_time = [](double ns) { return !(std::isfinite(ns) && ns >= 0); };
    if (no_time(out.nominal_ns) || std::ranges::any_of(out.compute_ns, no_time))
      corrupt(file, "a block's time is negative");
    out.operations = in.take<std::uint64_t>(info.op_kinds.size());
    out.events = in.take<Event>(block.events);
    for (const Event& event : out.events)
      if (event.type > EventType::unmap || event.object >= info.objects.size() ||
          event.first > info.pages || event.count > info.pages - event.first)
        corrupt(file, "an event lies outside the address space");
    const auto segments = in.take<SegmentHeader>(block.segments);
    const auto operations = in.take<OperationHeader>(block.sampled);
    auto accesses = in.take<OpAccess>(block.op_accesses);
    out.sampled.resize(operations.size());
    for (std::size_t o = 0; o < operations.size(); ++o) {
      const OperationHeader& from = operations[o];
      if (from.kind >= info.op_kinds.size() || from.accesses > accesses.size())
        corrupt(file, "a sampled operation exceeds its block");
      if (no_time(from.compute_ns)) corrupt(file, "a sampled operation's time is negative");
      out.sampled[o] = {from.kind, from.compute_ns, accesses.first(from.accesses)};
      accesses = accesses.subspan(from.accesses);
    }
    out.segments.resize(segments.size());
    for (std::size_t s = 0; s < segments.size(); ++s) {
      const SegmentHeader& from = segments[s];
      if (from.stream_class >= info.classes.size() || from.kind > 1)
        corrupt(file, "a segment names an unknown class");
      Segment& to = out.segments[s];
      to.stream_class = from.stream_class;
      to.kind = static_cast<AccessKind>(from.kind);
      to.sum = from.sum;
      if (from.repeats != 0) {
        if (s == 0 || from.size != segments[s - 1].size)
          corrupt(file, "a segment repeats none or another");
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

  void verify() const {
    const auto totals_bytes =
        bytes.subspan(header.totals_offset, header.tables_offset - header.totals_offset);
    if (header.totals_checksum != checksum(totals_bytes))
      corrupt(file, "checksum of the page totals");
    Block block;
    std::uint64_t accesses = 0;
    std::uint64_t entries = 0;
    std::uint64_t operations = 0;
    std::vector<std::uint64_t> sums(totals.size());
    for (std::uint64_t i = 0; i < index.size(); ++i) {
      const std::string name = "block " + std::to_string(i);
      if (index[i].checksum != checksum(bytes.subspan(index[i].offset, index[i].bytes)))
        corrupt(file, "checksum of " + name);
      read(i, block);
      for (const Segment& segment : block.segments) {
        std::uint64_t sum = 0;
        for (std::size_t e = 0; e < segment.pages.size(); ++e) {
          if (segment.pages[e] >= info.pages) corrupt(file, "a page number in " + name);
          sum += segment.counts[e];
          if (block.timed) sums[segment.pages[e]] += segment.counts[e];
        }
        for (std::size_t c = 0; c < segment.chunk_sums.size(); ++c) {
          std::uint32_t chunk_sum = 0;
          for (const std::uint16_t count : segment.counts.subspan(
                   c * chunk, std::min(chunk, segment.counts.size() - c * chunk)))
            chunk_sum += count;
          if (chunk_sum != segment.chunk_sums[c]) corrupt(file, "a chunk sum in " + name);
        }
        if (sum != segment.sum) corrupt(file, "a sum of counts in " + name);
        accesses += sum;
        entries += segment.pages.size();
      }
      for (const Operation& operation : block.sampled)
        for (const OpAccess& access : operation.accesses)
          if (access.page >= info.pages || access.stream_class >= info.classes.size() ||
              access.kind > AccessKind::store)
            corrupt(file, "a sampled operation in " + name);
      if (block.timed)
        for (const std::uint64_t count : block.operations) operations += count;
    }
    if (accesses != info.accesses || entries != info.entries || operations != info.operations)
      corrupt(file, "the blocks do not add up to the header's totals");
    if (!std::ranges::equal(sums, totals)) corrupt(file, "page totals");
  }

  std::filesystem::path file;
  std::span<const std::byte> bytes;
  FileHeader header{};
  std::span<const IndexEntry> index;
  std::span<const std::uint64_t> totals;
  StreamInfo info;
};

Reader::Reader(const std::filesystem::path& file) : impl_(std::make_unique<Impl>(file)) {}
Reader::~Reader() = default;
const StreamInfo& Reader::info() const { return impl_->info; }
std::span<const std::uint64_t> Reader::page_totals() const { return impl_->totals; }
void Reader::read(std::uint64_t i, Block& out) const { impl_->read(i, out); }
void Reader::verify() const { impl_->verify(); }

}  // namespace tt::trace
