// SPDX-License-Identifier: MIT

#include "trace/mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace tt::trace {

/// The addresses of a mapping. The signal's handler may walk the list at any moment: nodes are used
/// again, but never freed.
struct detail::Region {
  std::atomic<std::uintptr_t> first{0};
  std::atomic<std::size_t> bytes{0};  // 0: the node is free
  std::atomic<bool> lost{false};
  Region* next = nullptr;
};

namespace {

using detail::Region;

std::atomic<Region*> regions{nullptr};
static_assert(std::atomic<Region*>::is_always_lock_free);
struct sigaction before{};  // who had the signal

/// Puts zeros in the place of a mapping whose bytes are gone. The access is then repeated.
bool replace(const siginfo_t& signal) {
  if (signal.si_code <= 0) return false;  // sent by a process
  const auto address = reinterpret_cast<std::uintptr_t>(signal.si_addr);
  for (Region* region = regions; region != nullptr; region = region->next) {
    const std::uintptr_t first = region->first;
    const std::size_t bytes = region->bytes;
    if (address < first || address - first >= bytes) continue;
    region->lost = true;
    return ::mmap(reinterpret_cast<void*>(first), bytes, PROT_READ,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
  }
  return false;
}

void on_bus_error(int number, siginfo_t* signal, void*) {
  const int error = errno;
  if (!replace(*signal)) {
    // No stream's: it goes to who had the signal, now or when the access is repeated.
    ::sigaction(SIGBUS, &before, nullptr);
    if (signal->si_code <= 0) (void)::raise(number);
  }
  errno = error;
}

Region* enter(std::span<const std::byte> bytes) {
  static std::mutex mutex;
  const std::scoped_lock lock{mutex};
  if (regions == nullptr) {
    struct sigaction action{};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(SIGBUS, &action, &before);
  }
  Region* region = regions;
  while (region != nullptr && region->bytes != 0) region = region->next;
  if (region == nullptr) {
    region = new Region;
    region->next = regions;
    regions = region;
  }
  region->lost = false;
  region->first = reinterpret_cast<std::uintptr_t>(bytes.data());
  region->bytes = bytes.size();
  return region;
}

FileStamp stamp_of(const struct stat& status) {
  return {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size),
          status.st_ctim.tv_sec * std::int64_t{1'000'000'000} + status.st_ctim.tv_nsec};
}

[[noreturn]] void fail(const std::filesystem::path& file, const char* what) {
  throw std::system_error(errno, std::generic_category(), file.string() + ": " + what);
}

/// Closes the file when it has been mapped, or could not be.
struct Descriptor {
  explicit Descriptor(int of) : number(of) {}
  ~Descriptor() { ::close(number); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number;
};

}  // namespace

FileStamp stamp_of(const std::filesystem::path& file) {
  struct stat status{};
  if (::stat(file.c_str(), &status) != 0) fail(file, "cannot open");
  return stamp_of(status);
}

Mapping::Mapping(std::filesystem::path file) : file_(std::move(file)) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const int opened = ::open(file_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (opened < 0) fail(file_, "cannot open");
  const Descriptor descriptor{opened};
  struct stat status{};
  if (::fstat(opened, &status) != 0) fail(file_, "cannot stat");
  if (!S_ISREG(status.st_mode))
    throw std::runtime_error(file_.string() + ": not an access stream (no regular file)");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) throw std::runtime_error(file_.string() + ": not an access stream (empty file)");
  void* const mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, opened, 0);
  if (mapped == MAP_FAILED) fail(file_, "cannot map");
  stamp_ = stamp_of(status);
  bytes_ = {static_cast<const std::byte*>(mapped), size};
  region_ = enter(bytes_);
}

Mapping::~Mapping() {
  region_->bytes = 0;
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

bool Mapping::lost() const { return region_->lost; }

}  // namespace tt::trace
