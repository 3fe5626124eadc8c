#include "sim/address_space.hpp"

#include <algorithm>

#include "sim/gather.hpp"

namespace tt::sim {

std::uint64_t peak_pages(const trace::Reader& stream, unsigned shift) {
  AddressSpace space{stream.info().pages, shift};
  PageBits present{space.pages()};
  std::uint64_t now = 0;
  std::uint64_t peak = 0;
  trace::Block block;
  for (std::uint64_t b = 0; b < stream.info().blocks; ++b) {
    stream.read(b, block);
    for (const trace::Event& event : block.events) {
      switch (event.type) {
        case trace::EventType::map:
          space.map(event);
          break;
        case trace::EventType::touch: {
          const PageRange range = space.cover(event);
          for (std::uint64_t page = range.first.value; page < range.end().value; ++page) {
            now += present.test(page) ? 0 : 1;
            present.set(page);
          }
          peak = std::max(peak, now);
          break;
        }
        case trace::EventType::unmap: {
          const PageRange range = space.unmap(event);
          for (std::uint64_t page = range.first.value; page < range.end().value; ++page) {
            now -= present.test(page) ? 1 : 0;
            present.clear(page);
          }
          break;
        }
      }
    }
  }
  return peak;
}

}  // namespace tt::sim
