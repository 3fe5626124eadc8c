// SPDX-License-Identifier: MIT

// Writer of access streams. The same blocks give the same bytes.
#include "trace/writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "core/assert.hpp"
#include "trace/checksum.hpp"
#include "trace/layout.hpp"

namespace tt::trace {
namespace {

using namespace layout;

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

/// Names and tables.
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
    out.value(entry.prefetched);
    out.value(entry.translation);
    out.value(entry.store_events);
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

}  // namespace

struct Writer::Impl {
  Impl(std::filesystem::path path, StreamInfo description)
      : file(std::move(path)), info(std::move(description)) {
    create();
    try {
      append(std::vector<std::byte>(sizeof(FileHeader)));  // its place; filled by finish()
    } catch (...) {
      discard();
      throw;
    }
  }
  ~Impl() { discard(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// A name of its own, so that two makers of the same stream do not disturb each other; the mode
  /// is the umask's business.
  void create() {
    const std::string process = std::to_string(::getpid());
    for (unsigned other = 0; descriptor < 0; ++other) {
      partial = file.string();
      if (other != 0) partial.append(1, '.').append(std::to_string(other));
      partial.append(1, '.').append(process).append(".partial");
      descriptor = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (descriptor < 0 && errno != EEXIST) fail("cannot create");
    }
  }

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
    TT_ASSERT(index.empty() || index.back().offset + index.back().bytes == offset);
    index.push_back({offset, buffer.bytes().size(), checksum(buffer.bytes()), 0});
    append(buffer.bytes());
    if (block.timed)
      for (const std::uint64_t count : block.operations) operations += count;
  }

  /// On the disk under its name: the content first, so that no power loss leaves the name without
  /// it, and then the name.
  void complete() {
    if (::fsync(descriptor) != 0) fail("cannot write");
    const int closing = std::exchange(descriptor, -1);
    if (::close(closing) != 0 || ::rename(partial.c_str(), file.c_str()) != 0) {
      const int error = errno;
      ::unlink(partial.c_str());
      errno = error;
      fail("cannot complete");
    }
    const auto folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path{"."};
    const int directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) fail("cannot open its folder");
    const int synced = ::fsync(directory);
    const int error = errno;
    ::close(directory);
    errno = error;
    if (synced != 0) fail("cannot complete");
  }

  StreamInfo finish(const StreamInfo& last) {
    if (descriptor < 0) throw std::logic_error(file.string() + ": already finished");
    info.pages = last.pages;
    info.objects = last.objects;
    info.nominal_seconds = last.nominal_seconds;
    for (std::size_t c = 0; c < std::min(info.classes.size(), last.classes.size()); ++c)
      info.classes[c] = last.classes[c];
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
    header.page_bytes = info.page_bytes;
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
    complete();
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
