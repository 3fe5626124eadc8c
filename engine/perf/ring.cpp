// SPDX-License-Identifier: MIT

#include "perf/ring.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace tt::perf {

File::~File() {
  if (number_ >= 0) ::close(number_);
}

int open_event(perf_event_attr& attributes, int pid, int cpu, int group, File& out) {
  attributes.size = sizeof attributes;
  const long file =
      ::syscall(SYS_perf_event_open, &attributes, pid, cpu, group, PERF_FLAG_FD_CLOEXEC);
  if (file < 0) return errno;
  out = File{static_cast<int>(file)};
  return 0;
}

int open_led_event(perf_event_attr& attributes, std::uint64_t leader, int pid, int cpu,
                   std::vector<File>& files) {
  File file;
  int group = -1;
  if (leader != 0) {
    perf_event_attr first = attributes;
    first.config = leader;
    first.config1 = first.sample_period = first.precise_ip = 0;
    first.mmap = first.mmap_data = first.mmap2 = first.comm = first.comm_exec = first.task = 0;
    if (const int error = open_event(first, pid, cpu, -1, file); error != 0) return error;
    files.push_back(std::move(file));
    group = files.back().get();
    attributes.disabled = attributes.enable_on_exec = 0;
    file = File{};
  }
  if (const int error = open_event(attributes, pid, cpu, group, file); error != 0) return error;
  files.push_back(std::move(file));
  return 0;
}

Ring::Ring(int file, std::size_t bytes)
    : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))), bytes_(bytes) {
  void* const at = ::mmap(nullptr, page_ + bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED)
    throw std::system_error(errno, std::generic_category(), "a ring buffer for perf events");
  meta_ = static_cast<perf_event_mmap_page*>(at);
}

Ring::~Ring() {
  if (meta_ != nullptr) ::munmap(meta_, page_ + bytes_);
}

void Ring::read(std::vector<std::byte>& out) const {
  const std::uint64_t head = std::atomic_ref(meta_->data_head).load(std::memory_order_acquire);
  const std::uint64_t tail = meta_->data_tail;
  const auto* const data = reinterpret_cast<const std::byte*>(meta_) + page_;
  out.resize(head - tail);
  if (out.empty()) return;
  const std::size_t from = tail % bytes_;
  const std::size_t first = std::min(out.size(), bytes_ - from);
  std::memcpy(out.data(), data + from, first);
  std::memcpy(out.data() + first, data, out.size() - first);
}

void Ring::take(std::size_t bytes) {
  std::atomic_ref(meta_->data_tail).store(meta_->data_tail + bytes, std::memory_order_release);
}

Area::Area(Ring& ring, int file, std::size_t bytes) : meta_(ring.meta_), bytes_(bytes) {
  const std::size_t behind = ring.page_ + ring.bytes_;
  meta_->aux_offset = behind;
  meta_->aux_size = bytes;
  void* const at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(behind));
  if (at == MAP_FAILED)
    throw std::system_error(errno, std::generic_category(), "an AUX area for perf events");
  data_ = static_cast<std::byte*>(at);
}

Area::~Area() { ::munmap(data_, bytes_); }

std::uint64_t Area::written() const {
  return std::atomic_ref(meta_->aux_head).load(std::memory_order_acquire);
}

bool Area::read(std::uint64_t begin, std::uint64_t bytes, std::vector<std::byte>& out) const {
  const std::uint64_t head = written();
  if (begin > head || bytes > head - begin || head - begin > bytes_) return false;
  out.resize(bytes);
  if (out.empty()) return true;
  const std::size_t from = begin % bytes_;
  const std::size_t first = std::min(out.size(), bytes_ - from);
  std::memcpy(out.data(), data_ + from, first);
  std::memcpy(out.data() + first, data_, out.size() - first);
  return true;
}

void Area::take(std::uint64_t end) {
  std::atomic_ref(meta_->aux_tail).store(std::min(end, written()), std::memory_order_release);
}

}  // namespace tt::perf
