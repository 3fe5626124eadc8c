// SPDX-License-Identifier: MIT

#include "record/plugin/guest.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace tt::record {

Guest* guest = nullptr;
constinit std::array<GuestThread*, 1 << 16> threads{};
constinit thread_local GuestThread* running = nullptr;

std::size_t peek(std::uint64_t address, void* to, std::size_t bytes) {
  const iovec ours{to, bytes};
  const iovec theirs{reinterpret_cast<void*>(address + guest->base), bytes};
  const ssize_t copied = ::process_vm_readv(::getpid(), &ours, 1, &theirs, 1, 0);
  return copied < 0 ? 0 : static_cast<std::size_t>(copied);
}

bool poke(std::uint64_t address, const void* from, std::size_t bytes) {
  const iovec ours{const_cast<void*>(from), bytes};
  const iovec theirs{reinterpret_cast<void*>(address + guest->base), bytes};
  return ::process_vm_writev(::getpid(), &ours, 1, &theirs, 1, 0) == static_cast<ssize_t>(bytes);
}

std::vector<std::uint64_t> peek_pointers(std::uint64_t address) {
  std::vector<std::uint64_t> out;
  for (std::uint64_t word = 0; peek(address, &word, sizeof(word)) == sizeof(word) && word != 0;
       address += sizeof(word))
    out.push_back(word);
  return out;
}

std::string peek_text(std::uint64_t address) {
  std::string out;
  for (;;) {
    char part[256];
    // Not beyond the page: what follows may not be there.
    const std::size_t want = std::min(sizeof(part), 4096 - address % 4096);
    if (peek(address, part, want) != want) return {};
    const std::size_t length = ::strnlen(part, want);
    out.append(part, length);
    if (length < want) return out;
    address += want;
  }
}

}  // namespace tt::record
