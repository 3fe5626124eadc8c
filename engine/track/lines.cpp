// SPDX-License-Identifier: MIT

#include "track/lines.hpp"

#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tt::track {

void LineArray::Free::operator()(std::uint8_t* memory) const { std::free(memory); }

LineArray::LineArray(std::uint64_t lines) : lines_(lines) {
  constexpr std::size_t huge_page = std::size_t{2} << 20;
  const std::size_t bytes = lines * line_bytes;
  const bool huge = bytes >= huge_page;
  const std::size_t alignment = huge ? huge_page : line_bytes;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  memory_.reset(static_cast<std::uint8_t*>(std::aligned_alloc(alignment, rounded)));
  if (!memory_) throw std::bad_alloc();
#if defined(__linux__)
  // Advice only: without it the filter is slower, not wrong.
  if (huge) (void)madvise(memory_.get(), rounded, MADV_HUGEPAGE);
#endif
  std::memset(memory_.get(), 0, rounded);
}

}  // namespace tt::track
