// SPDX-License-Identifier: MIT

// Address map: what of the program's memory can be sampled, and whose it is.
//
// Two sources: the calls that the program makes, with their call sites, and /proc/self/maps, which
// lists everything without call sites and is read now and then (survey.hpp). Only private anonymous
// memory can be moved by userfaultfd: heaps, arenas, large allocations, uninitialised data. Thread
// stacks are left alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "record/preload/heat.hpp"
#include "record/preload/kernel.hpp"

namespace tt::record {

/// One line of /proc/self/maps.
struct Mapping {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  char access[4] = {};     // "rw-p"
  std::uint64_t file = 0;  // inode and device, mixed; 0: none
  const char* name = "";
  std::size_t name_length = 0;
  [[nodiscard]] bool named(const char* text) const {
    return name_length == std::strlen(text) && std::memcmp(name, text, name_length) == 0;
  }
};

/// Parses a line (without its end). False: not one.
inline bool parse_mapping(const char* at, const char* end, Mapping& out) {
  const auto number = [&](std::uint64_t& value, unsigned base, char until) {
    value = 0;
    const char* const from = at;
    while (at != end && *at != until) {
      const char c = *at++;
      const unsigned digit = c >= '0' && c <= '9'   ? static_cast<unsigned>(c - '0')
                             : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a' + 10)
                                                    : 16U;
      if (digit >= base) return false;
      value = value * base + digit;
    }
    if (at == end || at == from) return false;
    ++at;
    return true;
  };
  std::uint64_t offset = 0;
  std::uint64_t major = 0;
  std::uint64_t minor = 0;
  std::uint64_t inode = 0;
  if (!number(out.start, 16, '-') || !number(out.end, 16, ' ') || end - at < 5) return false;
  std::memcpy(out.access, at, 4);
  at += 5;
  if (!number(offset, 16, ' ') || !number(major, 16, ':') || !number(minor, 16, ' ')) return false;
  const char* const digits = at;
  while (at != end && *at >= '0' && *at <= '9')
    inode = inode * 10 + static_cast<std::uint64_t>(*at++ - '0');
  if (at == digits) return false;
  while (at != end && *at == ' ') ++at;
  out.file = inode == 0 ? 0 : inode * 0x9e3779b97f4a7c15ULL + major * 4096 + minor;
  out.name = at;
  out.name_length = static_cast<std::size_t>(end - at);
  return true;
}

/// Calls `each(mapping)` for all mappings and `pause()` between reads.
template <typename Each, typename Pause>
void each_mapping(int maps, char* buffer, std::size_t size, Each each, Pause pause) {
  ::lseek(maps, 0, SEEK_SET);
  std::size_t held = 0;
  while (true) {
    const ssize_t got = ::read(maps, buffer + held, size - held);
    if (got <= 0) return;
    const char* const end = buffer + held + got;
    const char* line = buffer;
    while (const void* const stop = std::memchr(line, '\n', static_cast<std::size_t>(end - line))) {
      Mapping mapping;
      if (parse_mapping(line, static_cast<const char*>(stop), mapping)) each(mapping);
      line = static_cast<const char*>(stop) + 1;
    }
    held = static_cast<std::size_t>(end - line);
    std::memmove(buffer, line, held);
    pause();
  }
}

/// Decides which mappings can be sampled, fed in ascending order.
class Selection {
 public:
  /// `avoid`: addresses in objects whose own data the sampler itself uses (its library, the C
  /// library, the loader).
  Selection(const kernel::OwnMemory& own, const std::uint64_t (&avoid)[3])
      : own_(own), avoid_(avoid) {}

  bool take(const Mapping& m) {
    const bool plain = std::memcmp(m.access, "rw-p", 4) == 0 && m.file == 0 &&
                       (m.name_length == 0 || m.named("[heap]") ||
                        (m.name_length > 6 && std::memcmp(m.name, "[anon:", 6) == 0));
    const bool follows = m.start == end_;
    // Data of the loader and of libraries: files first, then their uninitialised data.
    if (m.file != 0) {
      if (m.file != file_) avoided_ = false;
      file_ = m.file;
      for (const std::uint64_t address : avoid_) avoided_ |= address >= m.start && address < m.end;
    } else if (!follows) {
      file_ = 0;
      avoided_ = false;
    }
    // A stack: a small guard right below. (An arena of glibc's malloc may follow the reserve of
    // another; those begin at multiples of 64 MiB.)
    const bool stack = guard_ && follows && m.start % (64ull << 20) != 0;
    guard_ = std::memcmp(m.access, "---p", 4) == 0 && m.file == 0 && m.end - m.start <= 64u << 10;
    end_ = m.end;
    return plain && !stack && !avoided_ && !own_.overlaps(m.start, m.end);
  }

 private:
  const kernel::OwnMemory& own_;
  const std::uint64_t (&avoid_)[3];
  std::uint64_t end_ = 0;
  std::uint64_t file_ = 0;
  bool avoided_ = false;
  bool guard_ = false;
};

struct Area {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  char name[40] = {};
};

/// Executable code: a return address becomes "library+0x1234".
struct Module {
  std::uint64_t start = 0;
  std::uint64_t end = 0;
  std::uint64_t base = 0;
  char name[40] = {};
};

/// Writes digits, returns where they end.
inline char* append_number(char* at, std::uint64_t value, unsigned base = 10) {
  char digits[24];
  unsigned count = 0;
  do {
    digits[count++] = "0123456789abcdef"[value % base];
    value /= base;
  } while (value != 0);
  while (count > 0) *at++ = digits[--count];
  return at;
}
inline void copy_name(char (&to)[40], const char* name, std::size_t length) {
  if (length > sizeof to - 1) length = sizeof to - 1;
  std::memcpy(to, name, length);
  to[length] = 0;
}

inline constexpr std::size_t zones_per_region = 64;
/// A mapping or large allocation that the recording knows, with what was learnt about all of it.
struct Region {
  Level& zone(std::uint64_t address) {
    return zones[(address - start) / ((end - start) / zones_per_region + 1)];
  }

  std::uint64_t start = 0;
  std::uint64_t end = 0;
  bool allocation = false;  // of malloc: free ends it
  Level level;
  Level zones[zones_per_region];  // of equal parts
  Share stores;
  Share sweeps;
};

/// Regions, sorted; they never overlap.
class Regions {
 public:
  explicit Regions(kernel::OwnMemory& own) : all_(own) {}

  [[nodiscard]] std::size_t size() const { return all_.size(); }
  Region& operator[](std::size_t i) { return all_[i]; }
  /// The first that ends after the address.
  std::size_t at(std::uint64_t address) {
    std::size_t low = 0;
    std::size_t high = all_.size();
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (all_[middle].end > address)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
  Region* find(std::uint64_t address) {
    const std::size_t i = at(address);
    return i < all_.size() && all_[i].start <= address ? &all_[i] : nullptr;
  }
  void remove(std::uint64_t start, std::uint64_t end) {
    std::size_t from = at(start);
    if (from < all_.size() && all_[from].start < start) {
      Region rest = all_[from];
      all_[from].end = start;
      ++from;
      if (rest.end > end) {
        rest.start = end;
        all_.insert(from, rest);
        return;
      }
    }
    std::size_t to = from;
    while (to < all_.size() && all_[to].end <= end) ++to;
    if (to < all_.size() && all_[to].start < end) all_[to].start = end;
    if (to == from) return;
    for (std::size_t i = to; i < all_.size(); ++i) all_[from + (i - to)] = all_[i];
    all_.truncate(all_.size() - (to - from));
  }
  void add(std::uint64_t start, std::uint64_t end, bool allocation) {
    remove(start, end);
    Region region;
    region.start = start;
    region.end = end;
    region.allocation = allocation;
    all_.insert(at(start), region);
  }

 private:
  kernel::Array<Region> all_;
};

/// Calls `each(from, to)` for the parts of [start, end) that lie in one leaf each.
template <typename Each>
void each_leaf(std::uint64_t start, std::uint64_t end, Each each) {
  for (std::uint64_t at = start; at < end;) {
    const std::uint64_t stop = std::min(end, ((at >> leaf_shift) + 1) << leaf_shift);
    each(at, stop);
    at = stop;
  }
}
/// Bits of a leaf for the pages of [start, end), which lie in it.
inline std::uint64_t page_bits(std::uint64_t start, std::uint64_t end) {
  const auto first = static_cast<unsigned>(start / kernel::page_bytes % leaf_pages);
  const auto count = static_cast<unsigned>((end - start) / kernel::page_bytes);
  return (count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << first;
}

/// Leaves by address, and room for them.
class Leaves {
 public:
  struct Entry {
    std::uint64_t key;
    std::uint32_t id;
  };
  explicit Leaves(kernel::OwnMemory& own) : own_(&own), index_(own), next_(own), free_(own) {}

  [[nodiscard]] std::size_t size() const { return index_.size(); }
  Leaf& operator[](std::size_t i) { return leaf(index_[i].id); }
  [[nodiscard]] std::uint64_t pages() const { return pages_; }

  /// The first leaf of that key or above.
  std::size_t at(std::uint64_t key) {
    std::size_t low = 0;
    std::size_t high = index_.size();
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (index_[middle].key >= key)
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }
  Leaf* find(std::uint64_t address) {
    const std::size_t i = at(address >> leaf_shift);
    return i < index_.size() && index_[i].key == address >> leaf_shift ? &leaf(index_[i].id)
                                                                       : nullptr;
  }

  // A new look at all memory, in ascending order: begin, a leaf's old or new self for each key,
  // end.
  void begin() {
    next_.clear();
    old_ = 0;
  }
  /// Null: no memory left. `fresh`: it was not there before.
  Leaf* visit(std::uint64_t key, bool& fresh) {
    fresh = false;
    if (next_.size() > 0 && next_[next_.size() - 1].key == key)
      return &leaf(next_[next_.size() - 1].id);
    retire(key);
    if (old_ < index_.size() && index_[old_].key == key) {
      next_.push(index_[old_]);
      return &leaf(index_[old_++].id);
    }
    std::uint32_t id = 0;
    if (!allocate(id)) return nullptr;
    fresh = true;
    Leaf& made = leaf(id);
    made = Leaf{};
    made.key = key;
    next_.push({key, id});
    return &made;
  }
  void end() {
    retire(~std::uint64_t{0});
    index_.swap(next_);
    pages_ = 0;
    for (const Entry& entry : index_)
      pages_ += static_cast<std::uint64_t>(std::popcount(leaf(entry.id).present));
  }

  /// Pages of [start, end) are gone, with all that was known of them.
  void forget(std::uint64_t start, std::uint64_t end) {
    for (std::size_t i = at(start >> leaf_shift);
         i < index_.size() && index_[i].key << leaf_shift < end; ++i) {
      Leaf& found = leaf(index_[i].id);
      const std::uint64_t base = found.key << leaf_shift;
      for (unsigned page = 0; page < leaf_pages; ++page) {
        const std::uint64_t address = base + page * kernel::page_bytes;
        if (address < start || address >= end) continue;
        found.present &= ~(std::uint64_t{1} << page);
        found.k[page] = 0;
        found.t[page] = 0;
      }
    }
  }

 private:
  static constexpr std::uint32_t chunk = 512;
  static constexpr std::uint32_t chunks = 7168;  // of 128 MiB of the program each

  Leaf& leaf(std::uint32_t id) { return pool_[id / chunk][id % chunk]; }
  bool allocate(std::uint32_t& id) {
    if (free_.size() > 0) {
      id = free_[free_.size() - 1];
      free_.truncate(free_.size() - 1);
      return true;
    }
    if (used_ % chunk == 0) {
      if (used_ / chunk == chunks) return false;
      auto* const at = static_cast<Leaf*>(own_->take(chunk * sizeof(Leaf)));
      if (at == nullptr) return false;
      pool_[used_ / chunk] = at;
    }
    id = used_++;
    return true;
  }
  void retire(std::uint64_t before) {
    while (old_ < index_.size() && index_[old_].key < before) {
      // One whose pages are away is looked at again when they are back.
      if (leaf(index_[old_].id).away != 0)
        next_.push(index_[old_]);
      else
        free_.push(index_[old_].id);
      ++old_;
    }
  }

  kernel::OwnMemory* own_;
  kernel::Array<Entry> index_;
  kernel::Array<Entry> next_;
  kernel::Array<std::uint32_t> free_;
  Leaf* pool_[chunks] = {};
  std::uint32_t used_ = 0;
  std::size_t old_ = 0;
  std::uint64_t pages_ = 0;
};

}  // namespace tt::record
