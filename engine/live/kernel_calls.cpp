// SPDX-License-Identifier: MIT

#include "live/kernel_calls.hpp"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/assert.hpp"
#include "perf/ring.hpp"

namespace tt::live {
namespace {

/// As linux/fs.h has them since 6.7 (Documentation/admin-guide/mm/pagemap.rst).
struct PageRegion {
  std::uint64_t begin, end, categories;
};
struct PageScan {
  std::uint64_t size, flags, begin, end, walk_end, regions, regions_size, max_pages, inverted, all,
      any, told;
};
constexpr unsigned long pagemap_scan = _IOWR('f', 16, PageScan);
constexpr std::uint64_t page_present = 1 << 3, page_zero = 1 << 5, page_huge = 1 << 6,
                        page_soft_dirty = 1 << 7;

/// Which pages are wanted: what all of them have, by PAGEMAP_SCAN and in their entries of pagemap.
struct Wanted {
  std::uint64_t categories, entry;
};
constexpr std::uint64_t entry_present = 1ULL << 63, entry_soft_dirty = 1ULL << 55;
constexpr Wanted present{page_present, entry_present};
constexpr Wanted dirty{page_present | page_soft_dirty, entry_present | entry_soft_dirty};

Nanos time_of(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return std::chrono::seconds{now.tv_sec} + Nanos{now.tv_nsec};
}

perf::File open(const std::string& path, int flags) {
  return perf::File{::open(path.c_str(), flags | O_CLOEXEC)};
}

class PerfTrace final : public TraceRing {
 public:
  explicit PerfTrace(perf::File file) : file_(std::move(file)), ring_(file_.get()) {}
  void read(std::vector<std::byte>& out) override { ring_.read(out); }
  void take(std::size_t bytes) override { ring_.take(bytes); }

 private:
  perf::File file_;
  perf::Ring ring_;
};

class PerfSampling final : public SampleRing {
 public:
  PerfSampling(std::vector<perf::File> files, std::vector<int> events, std::size_t area_bytes)
      : files_(std::move(files)),
        events_(std::move(events)),
        ring_(events_.front(), area_bytes > 0 ? ring_beside_area : perf::Ring::default_bytes) {
    if (area_bytes > 0) area_.emplace(ring_, events_.front(), area_bytes);
  }
  void read(std::vector<std::byte>& out) override { ring_.read(out); }
  void take(std::size_t bytes) override { ring_.take(bytes); }
  int set_period(std::size_t event, std::uint64_t period) override {
    return ::ioctl(events_[event], PERF_EVENT_IOC_PERIOD, &period) == 0 ? 0 : errno;
  }
  std::uint64_t area_written() override { return area_ ? area_->written() : 0; }
  bool read_area(std::uint64_t begin, std::uint64_t bytes, std::vector<std::byte>& out) override {
    return area_ && area_->read(begin, bytes, out);
  }
  void take_area(std::uint64_t end) override {
    if (area_) area_->take(end);
  }
  int resume() override {
    return ::ioctl(events_.front(), PERF_EVENT_IOC_ENABLE, 0) == 0 ? 0 : errno;
  }
  /// The others' records join those of the first.
  int join() {
    for (std::size_t i = 1; i < events_.size(); ++i)
      if (::ioctl(events_[i], PERF_EVENT_IOC_SET_OUTPUT, events_[0]) != 0) return errno;
    return 0;
  }

 private:
  std::vector<perf::File> files_;
  /// Room for a record of 32 bytes for each page of the area, and more.
  static constexpr std::size_t ring_beside_area = 1 << 14;

  std::vector<int> events_;
  perf::Ring ring_;
  std::optional<perf::Area> area_;  // goes before the ring
};

class MappedDevice final : public DeviceMemory {
 public:
  explicit MappedDevice(std::span<std::byte> bytes) : bytes_(bytes) {}
  ~MappedDevice() override { ::munmap(bytes_.data(), bytes_.size()); }
  MappedDevice(const MappedDevice&) = delete;
  MappedDevice& operator=(const MappedDevice&) = delete;
  std::span<std::byte> bytes() override { return bytes_; }

 private:
  const std::span<std::byte> bytes_;
};

/// Joins pages that follow each other and are alike.
void add(std::vector<Populated>& out, std::size_t from, const Populated& run) {
  if (out.size() > from && out.back().end == run.begin && out.back().huge == run.huge) {
    out.back().end = run.end;
  } else {
    out.push_back(run);
  }
}

int scan(int pagemap, std::uint64_t begin, std::uint64_t end, const Wanted& wanted,
         std::vector<Populated>& out) {
  std::array<PageRegion, 512> regions{};
  const std::size_t from = out.size();
  while (begin < end) {
    PageScan question{};
    question.size = sizeof question;
    question.begin = begin;
    question.end = end;
    question.regions = reinterpret_cast<std::uintptr_t>(regions.data());
    question.regions_size = regions.size();
    question.inverted = page_zero;
    question.all = wanted.categories | page_zero;
    question.told = page_present | page_huge;
    const int found = ::ioctl(pagemap, pagemap_scan, &question);
    if (found < 0) return errno;
    for (const PageRegion& region : std::span{regions}.first(static_cast<std::size_t>(found)))
      add(out, from, {region.begin, region.end, (region.categories & page_huge) != 0});
    if (question.walk_end <= begin) return EIO;
    begin = question.walk_end;
  }
  return 0;
}

/// For kernels without that call: does not tell zeros and huge pages apart.
int read_entries(int pagemap, std::uint64_t begin, std::uint64_t end, const Wanted& wanted,
                 std::vector<Populated>& out) {
  std::array<std::uint64_t, 4096> entries{};
  const std::size_t from = out.size();
  while (begin < end) {
    const std::uint64_t pages = std::min<std::uint64_t>((end - begin) / base_page_bytes, 4096);
    const ssize_t got = ::pread(pagemap, entries.data(), pages * sizeof entries[0],
                                static_cast<off_t>(begin / base_page_bytes * sizeof entries[0]));
    if (got < 0) return errno;
    const auto read = static_cast<std::size_t>(got) / sizeof entries[0];
    if (read == 0) return 0;  // the process ends here, or has ended
    for (std::size_t i = 0; i < read; ++i) {
      const std::uint64_t at = begin + i * base_page_bytes;
      if ((entries[i] & wanted.entry) == wanted.entry)
        add(out, from, {at, at + base_page_bytes, false});
    }
    begin += read * base_page_bytes;
  }
  return 0;
}

int pages_of(int pid, std::uint64_t begin, std::uint64_t end, const Wanted& wanted,
             std::vector<Populated>& out) {
  const perf::File pagemap = open("/proc/" + std::to_string(pid) + "/pagemap", O_RDONLY);
  if (!pagemap.is_open()) return errno;
  const std::size_t before = out.size();
  const int error = scan(pagemap.get(), begin, end, wanted, out);
  if (error != ENOTTY) return error;
  out.resize(before);
  return read_entries(pagemap.get(), begin, end, wanted, out);
}

}  // namespace

Nanos Linux::now() { return time_of(CLOCK_MONOTONIC); }

Nanos Linux::processor_time() { return time_of(CLOCK_PROCESS_CPUTIME_ID); }

int Linux::read(const std::string& path, std::string& text) {
  text.clear();
  const perf::File file = open(path, O_RDONLY);
  if (!file.is_open()) return errno;
  std::array<char, 65536> part{};
  while (true) {
    const ssize_t got = ::read(file.get(), part.data(), part.size());
    if (got == 0) return 0;
    if (got > 0) {
      text.append(part.data(), static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      return errno;
    }
  }
}

int Linux::folders(const std::string& path, std::vector<std::string>& names) {
  names.clear();
  std::error_code error;
  for (std::filesystem::directory_iterator each{path, error}, end; !error && each != end;
       each.increment(error)) {
    std::error_code unknown;
    if (each->is_directory(unknown)) names.push_back(each->path().filename().string());
  }
  return error.value();
}

int Linux::write(const std::string& path, const std::string& text) {
  const perf::File file = open(path, O_WRONLY);
  if (!file.is_open()) return errno;
  const ssize_t written = ::write(file.get(), text.data(), text.size());
  if (written < 0) return errno;
  return static_cast<std::size_t>(written) == text.size() ? 0 : EIO;
}

int Linux::trace(std::uint64_t tracepoint, int thread, std::uint64_t sample_type,
                 std::unique_ptr<TraceRing>& out) {
  perf_event_attr attributes{};
  attributes.type = PERF_TYPE_TRACEPOINT;
  attributes.config = tracepoint;
  attributes.sample_type = sample_type;
  attributes.sample_period = 1;
  attributes.use_clockid = 1;
  attributes.clockid = CLOCK_MONOTONIC;
  perf::File file;
  if (const int error = perf::open_event(attributes, thread, -1, -1, file); error != 0)
    return error;
  try {
    out = std::make_unique<PerfTrace>(std::move(file));
  } catch (const std::system_error& error) {
    return error.code().value();
  }
  return 0;
}

int Linux::sample(std::span<const SampledEvent> events, int processor,
                  std::unique_ptr<SampleRing>& out) {
  constexpr int every_process = -1;
  std::vector<perf::File> files;
  std::vector<int> numbers;
  std::size_t area_bytes = 0;
  for (const SampledEvent& event : events) {
    perf_event_attr attributes = event.attributes;
    if (event.area_bytes > 0) {
      area_bytes = event.area_bytes;
      attributes.disabled = 1;  // until there is an area to write to
      attributes.aux_watermark = static_cast<std::uint32_t>(::sysconf(_SC_PAGESIZE));
    }
    const int error =
        perf::open_led_event(attributes, event.leader, every_process, processor, files);
    if (error != 0) return error;
    numbers.push_back(files.back().get());
  }
  try {
    auto ring = std::make_unique<PerfSampling>(std::move(files), std::move(numbers), area_bytes);
    if (const int error = ring->join(); error != 0) return error;
    if (const int error = area_bytes > 0 ? ring->resume() : 0; error != 0) return error;
    out = std::move(ring);
  } catch (const std::system_error& error) {
    return error.code().value();
  }
  return 0;
}

int Linux::map_device(const std::string& path, std::unique_ptr<DeviceMemory>& out) {
  const perf::File file = open(path, O_RDWR);
  if (!file.is_open()) return errno;
  struct stat found{};  // the kernel tells the memory's size as the file's
  if (::fstat(file.get(), &found) != 0) return errno;
  const auto size = static_cast<std::size_t>(found.st_size);
  void* const at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) return errno;
  out = std::make_unique<MappedDevice>(std::span{static_cast<std::byte*>(at), size});
  return 0;
}

int Linux::hint(std::span<const int> nodes) {
  constexpr int bits = 64;
  const auto set = [](const MemoryPolicy& policy) {
    // One bit more than it has: what the call takes for the number of the last one (its BUGS).
    const auto most = policy.nodes.size() * bits + 1;
    return ::syscall(SYS_set_mempolicy, policy.mode, policy.nodes.data(), most) == 0 ? 0 : errno;
  };
  if (nodes.empty()) {
    if (!before_) return 0;
    const int error = set(*before_);
    if (error == 0) before_.reset();
    return error;
  }
  MemoryPolicy before, hinted;
  if (::syscall(SYS_get_mempolicy, &before.mode, before.nodes.data(), before.nodes.size() * bits,
                nullptr, 0) != 0)
    return errno;
  hinted.mode = MPOL_PREFERRED_MANY | MPOL_F_NUMA_BALANCING;
  for (const int node : nodes) {
    const auto number = static_cast<std::size_t>(node);
    if (node < 0 || number / bits >= hinted.nodes.size()) return EINVAL;
    hinted.nodes[number / bits] |= 1UL << (number % bits);
  }
  const int error = set(hinted);
  if (error == 0 && !before_) before_ = before;
  return error;
}

int Linux::populated(int pid, std::uint64_t begin, std::uint64_t end, std::vector<Populated>& out) {
  return pages_of(pid, begin, end, present, out);
}

int Linux::soft_dirty(int pid, std::uint64_t begin, std::uint64_t end,
                      std::vector<Populated>& out) {
  return pages_of(pid, begin, end, dirty, out);
}

long Linux::move_pages(int pid, std::span<const std::uint64_t> addresses,
                       std::span<const int> nodes, std::span<int> statuses) {
  TT_ASSERT(statuses.size() == addresses.size());
  TT_ASSERT(nodes.empty() || nodes.size() == addresses.size());
  const long result =
      ::syscall(SYS_move_pages, pid, addresses.size(), addresses.data(),
                nodes.empty() ? nullptr : nodes.data(), statuses.data(), MPOL_MF_MOVE);
  return result < 0 ? -errno : result;
}

}  // namespace tt::live
