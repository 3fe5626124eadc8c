// SPDX-License-Identifier: MIT

#include "kernels/silo_arena.hpp"

#include <string>

namespace tt::kernels {
namespace {

constexpr trace::Address none = TracedMemory::none;
constexpr std::uint64_t chunk_bytes = 2 << 20;

}  // namespace

trace::Address SiloArena::allocate(std::uint64_t bytes) {
  const std::uint64_t size = rounded(bytes);
  auto [entry, added] = free_.try_emplace(size, none);
  trace::Address& first = entry->second;
  if (first == none) {
    const trace::Address chunk = memory_.map("silo.arena." + std::to_string(size), chunk_bytes);
    for (std::uint64_t i = chunk_bytes / size; i-- > 0;) {
      memory_.poke<trace::Address>(chunk + i * size) = first;
      first = chunk + i * size;
    }
    for (std::uint64_t at = 0; at + size <= chunk_bytes; at += size)
      memory_.stores(stream_.update, chunk + at, sizeof(trace::Address));
  }
  const trace::Address piece = first;
  first = memory_.load<trace::Address>(stream_.record, piece);
  return piece;
}

void SiloArena::reclaim() {
  for (const auto& [piece, bytes] : retired_) {
    trace::Address& first = free_[rounded(bytes)];
    memory_.store<trace::Address>(stream_.update, piece, first);
    first = piece;
  }
  retired_.clear();
}

}  // namespace tt::kernels
