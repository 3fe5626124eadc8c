// SPDX-License-Identifier: MIT

#include "sim/address_space.hpp"

#include <algorithm>

#include "sim/gather.hpp"

namespace tt::sim {

std::uint64_t peak_pages(const trace::Reader& stream, unsigned shift) {
  AddressSpace space{stream.info().pages, shift};
  PageBits present{space.pages()};
  std::uint64_t now = 0;
  std::uint64_t peak = 0;
  for (std::uint64_t b = 0; b < stream.info().blocks; ++b) {
    for (const trace::Event& event : stream.events(b)) {
      switch (event.type) {
        case trace::EventType::map:
          space.map(event);
          break;
        case trace::EventType::touch: {
          const PageRange range = space.cover(event);
          now += range.count - present.count(range.first.value, range.count);
          present.set(range.first.value, range.count);
          peak = std::max(peak, now);
          break;
        }
        case trace::EventType::unmap: {
          const PageRange range = space.unmap(event);
          now -= present.count(range.first.value, range.count);
          present.clear(range.first.value, range.count);
          break;
        }
      }
    }
  }
  return peak;
}

}  // namespace tt::sim
