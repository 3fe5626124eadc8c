// SPDX-License-Identifier: MIT

#include "emulate/native/arena.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

extern "C" void* __real_mmap(void*, std::size_t, int, int, int, off_t);

namespace tt::emulate {
namespace {

// No std::string here: it would need the arena.
constexpr char devices[] = "/sys/bus/pci/devices";
constexpr std::size_t header = 64;  // before each piece

struct Header {
  std::size_t length;  // of the piece, with this
  unsigned number;     // of the list that takes it when it is given back
};
static_assert(sizeof(Header) <= header);

/// Memory of an ivshmem device of the arena's size: its BAR 2; -1 if there is none.
int open_device() {
  DIR* const folder = ::opendir(devices);
  if (folder == nullptr) return -1;
  int found = -1;
  while (const dirent* const entry = ::readdir(folder)) {
    char path[512];
    std::snprintf(path, sizeof(path), "%s/%s/resource2", devices, entry->d_name);
    struct stat about{};
    if (::stat(path, &about) != 0 || static_cast<std::size_t>(about.st_size) != Arena::bytes)
      continue;
    std::snprintf(path, sizeof(path), "%s/%s/enable", devices, entry->d_name);
    const int enable = ::open(path, O_WRONLY | O_CLOEXEC);
    if (enable >= 0) {
      if (::write(enable, "1", 1) != 1) std::perror(path);
      ::close(enable);
    }
    std::snprintf(path, sizeof(path), "%s/%s/resource2", devices, entry->d_name);
    found = ::open(path, O_RDWR | O_CLOEXEC);
    break;
  }
  ::closedir(folder);
  return found;
}

}  // namespace

Arena::Arena() {
  const int file = open_device();
  device_ = file >= 0;
  void* const at =
      __real_mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  device_ ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, file, 0);
  if (at == MAP_FAILED) {
    std::perror("tiertune_workload: no memory for its own data");
    std::exit(2);
  }
  if (file >= 0) ::close(file);
  base_ = static_cast<std::byte*>(at);
}

void* Arena::reserve() noexcept {
  return std::exchange(reserved_, true) ? nullptr : base_ + bytes / 2;
}

bool Arena::has(const void* at, std::size_t length) const noexcept {
  const auto* const first = static_cast<const std::byte*>(at);
  return first >= base_ && first <= base_ + bytes &&
         length <= static_cast<std::size_t>(base_ + bytes - first);
}

void* Arena::take(std::size_t size) noexcept {
  const std::size_t whole = std::bit_ceil(size + header);
  const auto number = static_cast<unsigned>(std::bit_width(whole) - 1);
  if (number >= classes) return nullptr;
  // What is new and large is not rounded up: arrays stay as large as they are. A piece that is
  // shorter than its class is in the list below.
  const std::size_t exact = (size + header + 63) / 64 * 64;
  const std::size_t length = whole > (std::size_t{1} << 20) ? exact : whole;
  if (length < whole)
    if (void* const known = take_known(number - 1, length); known != nullptr) return known;
  if (void* const known = take_known(number, length); known != nullptr) return known;
  if (length > bytes / 2 - used_) return nullptr;
  std::byte* const piece = base_ + used_;
  used_ += length;
  const Header about{length, length < whole ? number - 1 : number};
  std::memcpy(piece, &about, sizeof(about));
  return piece + header;
}

void* Arena::take_known(unsigned number, std::size_t length) noexcept {
  for (Free** link = &free_[number]; *link != nullptr; link = &(*link)->next) {
    Free* const known = *link;
    Header about{};
    std::memcpy(&about, reinterpret_cast<std::byte*>(known) - header, sizeof(about));
    if (about.length < length) continue;
    *link = known->next;
    return known;
  }
  return nullptr;
}

void Arena::give(void* at) noexcept {
  if (at == nullptr) return;
  Header about{};
  std::memcpy(&about, static_cast<std::byte*>(at) - header, sizeof(about));
  auto* const free = static_cast<Free*>(at);
  free->next = free_[about.number];
  free_[about.number] = free;
}

Arena& arena() {
  static Arena only;
  return only;
}

}  // namespace tt::emulate

// What kernels reserve and then make accessible part by part (kernels/traced_memory.hpp): the
// linker brings their calls here (--wrap), and nobody else's.
extern "C" {

void* __real_mmap(void*, std::size_t, int, int, int, off_t);
int __real_mprotect(void*, std::size_t, int);
int __real_madvise(void*, std::size_t, int);
int __real_munmap(void*, std::size_t);

void* __wrap_mmap(void* at, std::size_t length, int protection, int flags, int file, off_t offset) {
  if (file < 0 && protection == PROT_NONE && (flags & MAP_NORESERVE) != 0)
    if (void* const own = tt::emulate::arena().reserve(); own != nullptr) return own;
  return __real_mmap(at, length, protection, flags, file, offset);
}

int __wrap_mprotect(void* at, std::size_t length, int protection) {
  const bool own = tt::emulate::arena().has(at, length);
  return own ? 0 : __real_mprotect(at, length, protection);
}

int __wrap_madvise(void* at, std::size_t length, int advice) {
  return tt::emulate::arena().has(at, length) ? 0 : __real_madvise(at, length, advice);
}

int __wrap_munmap(void* at, std::size_t length) {
  return tt::emulate::arena().has(at, 1) ? 0 : __real_munmap(at, length);
}
}

void* operator new(std::size_t size) {
  void* const at = tt::emulate::arena().take(size);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  if (static_cast<std::size_t>(alignment) > 64) throw std::bad_alloc();
  return operator new(size);
}
void operator delete(void* at) noexcept { tt::emulate::arena().give(at); }
void operator delete(void* at, std::size_t) noexcept { tt::emulate::arena().give(at); }
void operator delete(void* at, std::align_val_t) noexcept { tt::emulate::arena().give(at); }
void operator delete(void* at, std::size_t, std::align_val_t) noexcept {
  tt::emulate::arena().give(at);
}
