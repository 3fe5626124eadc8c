// Reader and writer of the access-stream format, and the one description of its layout on disk.
//
// Every part starts at a multiple of 64 bytes and is padded with zeros to the next one; checksums
// cover the padding, so that any changed bit of a file is found by the constructor or by verify().
#include "trace/stream.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "trace/checksum.hpp"

namespace tt::trace {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is mapped, not decoded");

constexpr char magic[8] = {'t', 't', 's', 't', 'r', 'e', 'a', 'm'};
constexpr std::size_t alignment = 64;

struct FileHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t file_bytes;
  std::uint64_t blocks;
  std::uint64_t index_offset;   // IndexEntry[blocks]
  std::uint64_t totals_offset;  // std::uint64_t[pages]
  std::uint64_t tables_offset;  // see encode()
  std::uint64_t tables_bytes;
  std::uint64_t index_checksum;
  std::uint64_t totals_checksum;
  std::uint64_t tables_checksum;
  std::uint64_t pages;
  std::uint64_t accesses;
  std::uint64_t entries;
  std::uint64_t operations;
  std::uint64_t seed;
  double scale;
  double nominal_seconds;
  std::uint64_t reserved[5];
  std::uint64_t checksum;  // of everything above
};
static_assert(sizeof(FileHeader) == 192);

struct IndexEntry {
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t checksum;
  std::uint64_t reserved;
};
static_assert(sizeof(IndexEntry) == 32);

// A block: header, double compute_ns[lanes], std::uint64_t operations[op kinds], Event[events],
// SegmentHeader[segments], OperationHeader[sampled], OpAccess[op_accesses]; then per segment, each
// at a multiple of 64 bytes: std::uint32_t pages[], std::uint32_t chunk_sums[],
// std::uint16_t counts[]. A segment that repeats the pages and counts of the one before it (the
// loads and the stores of read-modify-writes) has no arrays of its own.
struct BlockHeader {
  std::uint32_t timed;
  std::uint32_t segments;
  std::uint32_t events;
  std::uint32_t sampled;
  std::uint64_t op_accesses;
  double nominal_ns;
  std::uint64_t reserved[4];
};
static_assert(sizeof(BlockHeader) == 64);

struct SegmentHeader {
  std::uint32_t stream_class;
  std::uint16_t kind;
  std::uint16_t repeats;  // 1: the arrays are those of the segment before
  std::uint64_t size;
  std::uint64_t sum;
};
static_assert(sizeof(SegmentHeader) == 24);

struct OperationHeader {
  std::uint32_t kind;
  std::uint32_t accesses;
  double compute_ns;
};
static_assert(sizeof(OperationHeader) == 16);
static_assert(sizeof(Event) == 16 && sizeof(OpAccess) == 8);

constexpr std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}
constexpr std::uint64_t chunks(std::uint64_t entries) { return (entries + chunk - 1) / chunk; }

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

/// Appends values to a byte buffer.
class Buffer {
 public:
  template <typename T>
  void value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    raw(&value, sizeof(T));
  }
  template <typename T>
  void array(std::span<const T> values) {
    raw(values.data(), values.size_bytes());
  }
  void text(std::string_view text) {
    value(static_cast<std::uint32_t>(text.size()));
    raw(text.data(), text.size());
  }
  void align() { bytes_.resize(aligned(bytes_.size())); }
  void clear() { bytes_.clear(); }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  void raw(const void* from, std::size_t size) {
    if (size == 0) return;
    const std::size_t at = bytes_.size();
    bytes_.resize(at + size);
    std::memcpy(bytes_.data() + at, from, size);
  }
  std::vector<std::byte> bytes_;
};

/// Names and tables: texts as length and bytes, lists as length and elements.
void encode(const StreamInfo& info, Buffer& out) {
  out.text(info.workload);
  out.text(info.input);
  out.text(info.parameters);
  out.value(static_cast<std::uint32_t>(info.lanes.size()));
  for (const Lane& lane : info.lanes) {
    out.text(lane.name);
    out.value(lane.thread_share);
  }
  out.value(static_cast<std::uint32_t>(info.classes.size()));
  for (const StreamClass& entry : info.classes) {
    out.text(entry.name);
    out.value(entry.mlp);
    out.value(entry.issue_ns);
    out.value(entry.lane);
    out.value(entry.store_fill);
  }
  out.value(static_cast<std::uint32_t>(info.op_kinds.size()));
  for (const OpKind& kind : info.op_kinds) out.text(kind.name);
  out.value(static_cast<std::uint32_t>(info.objects.size()));
  for (const Object& object : info.objects) {
    out.text(object.site);
    out.value(object.first_page);
    out.value(object.pages);
  }
}

/// What makes a description usable; the same rules for writing and for reading. Empty: all right.
std::string_view defect(const StreamInfo& info) {
  if (!(std::isfinite(info.scale) && info.scale >= 1)) return "scale is below 1";
  if (!(std::isfinite(info.nominal_seconds) && info.nominal_seconds >= 0))
    return "nominal time is negative";
  if (info.pages > std::uint64_t{std::numeric_limits<std::uint32_t>::max()} + 1)
    return "more pages than 32-bit numbers";
  if (info.lanes.empty()) return "no lane";
  if (info.classes.size() > 255) return "more than 255 stream classes";
  for (const Lane& lane : info.lanes)
    if (!(std::isfinite(lane.thread_share) && lane.thread_share >= 0))
      return "a lane's thread share is negative";
  for (const StreamClass& entry : info.classes) {
    if (!(std::isfinite(entry.mlp) && entry.mlp > 0)) return "a stream class's MLP is not positive";
    if (!(std::isfinite(entry.issue_ns) && entry.issue_ns >= 0))
      return "a stream class's issue time is negative";
    if (!(entry.store_fill >= 0 && entry.store_fill <= 1))
      return "a stream class's share of fetching stores is not 0 to 1";
    if (entry.lane >= info.lanes.size()) return "a stream class names an unknown lane";
  }
  for (const Object& object : info.objects)
    if (object.first_page > info.pages || object.pages > info.pages - object.first_page)
      return "an object lies outside the address space";
  return {};
}

}  // namespace

// ---------------------------------------------------------------------------------------- Reader

struct Reader::Impl {
  explicit Impl(const std::filesystem::path& path) : file(path) {
    // Without O_NONBLOCK, opening a pipe would wait for somebody to write into it.
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
    if (header.version != format_version || header.header_bytes != sizeof(FileHeader))
      throw std::runtime_error(file.string() + ": stream format version " +
                               std::to_string(header.version) + ", this program reads version " +
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
    info.classes.resize(length(32));
    for (StreamClass& entry : info.classes) {
      entry.name = in.text();
      entry.mlp = in.value<double>();
      entry.issue_ns = in.value<double>();
      entry.lane = in.value<std::uint32_t>();
      entry.store_fill = in.value<double>();
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

// ---------------------------------------------------------------------------------------- Writer

struct Writer::Impl {
  Impl(std::filesystem::path path, StreamInfo description)
      : file(std::move(path)), info(std::move(description)) {
    // A name of its own, so that two processes that make the same stream do not disturb each other.
    partial = file.string() + ".XXXXXX.partial";
    descriptor = ::mkostemps(partial.data(), 8, O_CLOEXEC);
    if (descriptor < 0) fail("cannot create");
    try {
      if (::fchmod(descriptor, 0644) != 0) fail("cannot set permissions");
      append(std::vector<std::byte>(sizeof(FileHeader)));  // its place; filled by finish()
    } catch (...) {
      discard();
      throw;
    }
  }
  ~Impl() { discard(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void discard() {
    if (descriptor < 0) return;
    ::close(descriptor);
    ::unlink(partial.c_str());
    descriptor = -1;
  }

  [[noreturn]] void fail(const char* what) const {
    throw std::system_error(errno, std::generic_category(), file.string() + ": " + what);
  }

  void append(std::span<const std::byte> bytes) {
    offset += bytes.size();
    while (!bytes.empty()) {
      const ssize_t done = ::write(descriptor, bytes.data(), bytes.size());
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) {
        if (done == 0) errno = ENOSPC;
        fail("cannot write");
      }
      bytes = bytes.subspan(static_cast<std::size_t>(done));
    }
  }

  void write(const Block& block) {
    if (descriptor < 0) throw std::logic_error(file.string() + ": already finished");
    if (block.compute_ns.size() != info.lanes.size() ||
        block.operations.size() != info.op_kinds.size())
      throw std::invalid_argument(file.string() +
                                  ": a block needs compute time per lane, operations per kind");
    BlockHeader header{};
    header.timed = block.timed ? 1 : 0;
    header.segments = static_cast<std::uint32_t>(block.segments.size());
    header.events = static_cast<std::uint32_t>(block.events.size());
    header.sampled = static_cast<std::uint32_t>(block.sampled.size());
    header.nominal_ns = block.nominal_ns;
    for (const Operation& operation : block.sampled)
      header.op_accesses += operation.accesses.size();

    buffer.clear();
    buffer.value(header);
    buffer.array(block.compute_ns);
    buffer.array(block.operations);
    // Structs with padding are copied field by field into zeroed memory: the same stream has the
    // same bytes.
    for (const Event& event : block.events) {
      const std::uint32_t words[4] = {static_cast<std::uint32_t>(event.type), event.object,
                                      event.first, event.count};
      buffer.value(words);
      if (event.count != 0)
        last_page = std::max(last_page, std::uint64_t{event.first} + event.count);
    }
    const auto repeats = [&block](std::size_t s) {
      if (s == 0) return false;
      const Segment& before = block.segments[s - 1];
      return std::ranges::equal(before.pages, block.segments[s].pages) &&
             std::ranges::equal(before.counts, block.segments[s].counts);
    };
    for (std::size_t s = 0; s < block.segments.size(); ++s) {
      const Segment& segment = block.segments[s];
      if (segment.stream_class >= info.classes.size() ||
          segment.pages.size() != segment.counts.size())
        throw std::invalid_argument(file.string() + ": a segment is malformed");
      std::uint64_t sum = 0;
      for (const std::uint16_t count : segment.counts) sum += count;
      buffer.value(SegmentHeader{segment.stream_class, static_cast<std::uint16_t>(segment.kind),
                                 static_cast<std::uint16_t>(repeats(s)), segment.pages.size(),
                                 sum});
      accesses += sum;
      entries += segment.pages.size();
    }
    for (const Operation& operation : block.sampled) {
      if (operation.kind >= info.op_kinds.size())
        throw std::invalid_argument(file.string() + ": an operation is of an unknown kind");
      buffer.value(OperationHeader{operation.kind,
                                   static_cast<std::uint32_t>(operation.accesses.size()),
                                   operation.compute_ns});
    }
    for (const Operation& operation : block.sampled) {
      buffer.array(operation.accesses);
      for (const OpAccess& access : operation.accesses)
        last_page = std::max(last_page, std::uint64_t{access.page} + 1);
    }
    for (std::size_t s = 0; s < block.segments.size(); ++s) {
      const Segment& segment = block.segments[s];
      for (const std::uint32_t page : segment.pages)
        last_page = std::max(last_page, std::uint64_t{page} + 1);
      if (block.timed) {
        if (totals.size() < last_page) totals.resize(last_page);
        for (std::size_t e = 0; e < segment.pages.size(); ++e)
          totals[segment.pages[e]] += segment.counts[e];
      }
      if (repeats(s)) continue;
      buffer.align();
      buffer.array(segment.pages);
      buffer.align();
      for (std::size_t at = 0; at < segment.counts.size(); at += chunk) {
        std::uint32_t sum = 0;
        for (const std::uint16_t count :
             segment.counts.subspan(at, std::min(chunk, segment.counts.size() - at)))
          sum += count;
        buffer.value(sum);
      }
      buffer.align();
      buffer.array(segment.counts);
    }
    buffer.align();
    index.push_back({offset, buffer.bytes().size(), checksum(buffer.bytes()), 0});
    append(buffer.bytes());
    if (block.timed)
      for (const std::uint64_t count : block.operations) operations += count;
  }

  StreamInfo finish(const StreamInfo& last) {
    if (descriptor < 0) throw std::logic_error(file.string() + ": already finished");
    info.pages = last.pages;
    info.objects = last.objects;
    info.nominal_seconds = last.nominal_seconds;
    for (std::size_t c = 0; c < std::min(info.classes.size(), last.classes.size()); ++c)
      info.classes[c].store_fill = last.classes[c].store_fill;
    if (const auto what = defect(info); !what.empty())
      throw std::invalid_argument(file.string() + ": " + std::string(what));
    if (last_page > info.pages)
      throw std::invalid_argument(file.string() + ": a block names page " +
                                  std::to_string(last_page - 1) + " of " +
                                  std::to_string(info.pages));
    totals.resize(info.pages);

    FileHeader header{};
    std::memcpy(header.magic, magic, sizeof magic);
    header.version = format_version;
    header.header_bytes = sizeof(FileHeader);
    header.blocks = index.size();
    header.pages = info.pages;
    header.accesses = accesses;
    header.entries = entries;
    header.operations = operations;
    header.seed = info.seed;
    header.scale = info.scale;
    header.nominal_seconds = info.nominal_seconds;
    const auto part = [&](std::uint64_t& at, std::uint64_t& sum) {
      buffer.align();
      at = offset;
      sum = checksum(buffer.bytes());
      append(buffer.bytes());
      buffer.clear();
    };
    buffer.clear();
    buffer.array(std::span<const IndexEntry>{index});
    part(header.index_offset, header.index_checksum);
    buffer.array(std::span<const std::uint64_t>{totals});
    part(header.totals_offset, header.totals_checksum);
    encode(info, buffer);
    header.tables_bytes = buffer.bytes().size();
    part(header.tables_offset, header.tables_checksum);
    header.file_bytes = offset;
    const auto header_bytes = std::as_bytes(std::span{&header, 1});
    header.checksum = checksum(header_bytes.first(offsetof(FileHeader, checksum)));
    if (::lseek(descriptor, 0, SEEK_SET) != 0) fail("cannot seek");
    append(header_bytes);
    const int closing = std::exchange(descriptor, -1);
    if (::close(closing) != 0 || ::rename(partial.c_str(), file.c_str()) != 0) {
      const int error = errno;
      ::unlink(partial.c_str());
      errno = error;
      fail("cannot complete");
    }
    info.blocks = header.blocks;
    info.accesses = accesses;
    info.entries = entries;
    info.operations = operations;
    info.identity = header.checksum;
    return info;
  }

  std::filesystem::path file;
  std::string partial;
  StreamInfo info;
  int descriptor = -1;
  std::uint64_t offset = 0;
  std::uint64_t accesses = 0;
  std::uint64_t entries = 0;
  std::uint64_t operations = 0;
  std::uint64_t last_page = 0;  // one past the highest page named so far
  std::vector<IndexEntry> index;
  std::vector<std::uint64_t> totals;
  Buffer buffer;
};

Writer::Writer(std::filesystem::path file, StreamInfo info)
    : impl_(std::make_unique<Impl>(std::move(file), std::move(info))) {}
Writer::~Writer() = default;
void Writer::write(const Block& block) { impl_->write(block); }
StreamInfo Writer::finish(const StreamInfo& last) { return impl_->finish(last); }

}  // namespace tt::trace
