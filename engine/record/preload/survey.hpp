// SPDX-License-Identifier: MIT

// Survey: what is mapped, by which caller, and which pages are present.
//
// Changes that the program's threads report come with call sites and are taken in every tick. Now
// and then the sampler looks at everything (/proc/self/maps, PAGEMAP_SCAN), finds what it missed,
// and counts threads. Mappings, unmappings and first touches go to the spool.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "record/preload/address_map.hpp"
#include "record/preload/budget.hpp"
#include "record/preload/changes.hpp"
#include "record/preload/evidence.hpp"
#include "record/preload/kernel.hpp"
#include "record/preload/recording.hpp"

namespace tt::record {

class Survey {
 public:
  /// Share of the budget that looking may cost.
  static constexpr double budget_share = 0.2;

  Survey(kernel::OwnMemory& own, Evidence& evidence, Budget& budget, Recording& recording)
      : own_(own),
        evidence_(evidence),
        budget_(budget),
        recording_(recording),
        areas_(own),
        modules_(own),
        threads_(own) {}

  bool open() {
    maps_ = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    pagemap_ = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    status_ = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    text_ = static_cast<char*>(own_.take(text_bytes));
    return maps_ >= 0 && pagemap_ >= 0 && status_ >= 0 && text_ != nullptr;
  }
  void close() {
    for (const int file : {maps_, pagemap_, status_})
      if (file >= 0) ::close(file);
  }
  /// An address in the loader (AT_BASE), whose data is left alone.
  void set_loader(std::uint64_t address) { loader_ = address; }
  [[nodiscard]] int pagemap() const { return pagemap_; }

  /// Takes in what the program's threads have reported. `pause()` is called between reads.
  template <typename Pause>
  void learn(Changes& changes, Pause pause) {
    Change change;
    bool timed = false;
    while (changes.pop(change)) {
      if (change.kind == Change::Kind::thread) {
        protect(change.address);
        continue;
      }
      const std::uint64_t start = change.address & ~(kernel::page_bytes - 1);
      std::uint64_t end =
          (change.address + change.bytes + kernel::page_bytes - 1) & ~(kernel::page_bytes - 1);
      if (!timed) recording_.stamp();
      timed = true;
      switch (change.kind) {
        case Change::Kind::map:
        case Change::Kind::allocated:
          begin_region(start, end, site(change.caller, pause),
                       change.kind == Change::Kind::allocated);
          break;
        case Change::Kind::freed: {
          const Region* const region = evidence_.regions().find(start);
          if (region == nullptr || region->start != start || !region->allocation) break;
          end = region->end;
          [[fallthrough]];
        }
        case Change::Kind::unmap:
          end_region(start, end);
          break;
        case Change::Kind::discard:
          recording_.spool.discard(start, end - start);
          evidence_.leaves().forget(start, end);
          break;
        case Change::Kind::thread:
          break;
      }
    }
  }

  /// Whether the budget allows another look.
  [[nodiscard]] bool due() const {
    return monotonic_ns() >= next_ns_ && budget_.program_s() >= next_s_;
  }
  /// Looks at everything; `pause()` is called between parts.
  template <typename Pause>
  void look(Changes& changes, Pause pause) {
    const double began = own_seconds();
    count_threads();
    learn(changes, pause);
    read_maps(pause);
    recording_.stamp();
    settle_regions();
    find_pages(pause);
    const double cost = own_seconds() - began;
    next_s_ = budget_.program_s() + cost / (budget_share * budget_.overhead());
    next_ns_ = monotonic_ns() + look_ns;
  }

  void count_threads() {
    char text[2048];
    const ssize_t got = ::pread(status_, text, sizeof text - 1, 0);
    if (got <= 0) return;
    text[got] = 0;
    const char* at = std::strstr(text, "\nThreads:");
    if (at == nullptr) return;
    at += 9;
    while (*at == ' ' || *at == '\t') ++at;
    std::uint32_t threads = 0;
    while (*at >= '0' && *at <= '9') threads = threads * 10 + static_cast<unsigned>(*at++ - '0');
    budget_.set_threads(threads - 1);  // one of them is the sampler
  }

  /// Whether pages of [start, end) may be taken: known, not the sampler's own, and without a
  /// thread's descriptor.
  [[nodiscard]] bool may_take(std::uint64_t start, std::uint64_t end) {
    if (evidence_.regions().find(start) == nullptr || own_.overlaps(start, end)) return false;
    for (const std::uint64_t page : threads_)
      if (page + kernel::page_bytes > start && page < end + kernel::page_bytes) return false;
    return true;
  }

 private:
  static constexpr std::uint64_t look_ns = 100'000'000;  // at least, between two looks
  static constexpr std::size_t text_bytes = 64 << 10;
  static constexpr std::uint64_t scan_bytes = 256ull << 20;

  void begin_region(std::uint64_t start, std::uint64_t end, const char* name, bool allocation) {
    if (end <= start) return;
    // It may be the allocator's own mapping of what it hands out: the same range, a better name.
    evidence_.regions().add(start, end, allocation);
    evidence_.leaves().forget(start, end);
    recording_.spool.map(start, end - start, name);
  }
  void end_region(std::uint64_t start, std::uint64_t end) {
    evidence_.regions().remove(start, end);
    evidence_.leaves().forget(start, end);
    recording_.spool.unmap(start, end - start);
  }
  /// The descriptor of a thread, just above its thread pointer: the kernel itself clears a word
  /// there when the thread ends, and does not wait for a page that is away.
  void protect(std::uint64_t thread) {
    const std::uint64_t page = thread & ~(kernel::page_bytes - 1);
    for (const std::uint64_t known : threads_)
      if (known == page) return;
    threads_.push(page);
  }
  /// "library+0x1234" of a return address.
  template <typename Pause>
  const char* site(std::uint64_t caller, Pause pause) {
    const Module* found = nullptr;
    for (unsigned attempt = 0; attempt < 2 && found == nullptr; ++attempt) {
      if (attempt == 1) read_maps(pause);  // a library that was loaded since
      for (const Module& module : modules_)
        if (caller >= module.start && caller < module.end) found = &module;
    }
    if (found == nullptr) return "unknown";
    char* at = site_;
    for (const char* from = found->name; *from != 0;) *at++ = *from++;
    *at++ = '+';
    *at++ = '0';
    *at++ = 'x';
    at = append_number(at, caller - found->base, 16);
    *at = 0;
    return site_;
  }

  template <typename Pause>
  void read_maps(Pause pause) {
    areas_.clear();
    modules_.clear();
    const std::uint64_t avoid[3] = {reinterpret_cast<std::uint64_t>(&kernel::probe),
                                    reinterpret_cast<std::uint64_t>(&::getpid), loader_};
    Selection selection{own_, avoid};
    std::uint64_t file = 0;
    std::uint64_t base = 0;
    Mapping last;
    char last_name[40] = {};
    each_mapping(
        maps_, text_, text_bytes,
        [&](const Mapping& m) {
          std::size_t slash = m.name_length;
          while (slash > 0 && m.name[slash - 1] != '/') --slash;
          const char* const short_name = m.name + slash;
          const std::size_t short_length = m.name_length - slash;
          if (m.file != 0 && m.file != file) base = m.start;
          if (m.file != 0) {
            file = m.file;
            copy_name(last_name, short_name, short_length);
          }
          if (m.file != 0 && m.access[2] == 'x') {
            Module module{.start = m.start, .end = m.end, .base = base};
            copy_name(module.name, short_name, short_length);
            modules_.push(module);
          }
          if (selection.take(m)) {
            Area area{.start = m.start, .end = m.end};
            if (m.name_length != 0)
              copy_name(area.name, m.name, m.name_length);
            else if (m.start == last.end && last.file != 0)
              copy_name(area.name, last_name, std::strlen(last_name));
            else
              copy_name(area.name, "anonymous", 9);
            areas_.push(area);
          }
          last = m;
        },
        pause);
  }

  /// Brings the known regions into line with what is really mapped.
  void settle_regions() {
    Regions& regions = evidence_.regions();
    std::size_t i = 0;
    std::uint64_t gap = 0;  // everything below is settled
    for (std::size_t a = 0; a <= areas_.size(); ++a) {
      const bool last = a == areas_.size();
      const std::uint64_t start = last ? ~std::uint64_t{0} : areas_[a].start;
      // Regions in the gap before this area are gone.
      while (i < regions.size() && regions[i].start < start) {
        if (regions[i].end <= gap) {
          ++i;
          continue;
        }
        const std::uint64_t from = std::max(regions[i].start, gap);
        const std::uint64_t to = std::min(regions[i].end, start);
        if (from >= to) break;
        end_region(from, to);
        i = regions.at(gap);
      }
      if (last) break;
      // What the area has beyond the regions in it.
      const std::uint64_t end = areas_[a].end;
      std::uint64_t from = start;
      while (from < end) {
        i = regions.at(from);
        const std::uint64_t to = i < regions.size() ? std::min(end, regions[i].start) : end;
        if (from < to) begin_region(from, to, areas_[a].name, false);
        i = regions.at(from);
        from = regions[i].end;
      }
      gap = end;
      i = regions.at(gap);
    }
  }

  template <typename Pause>
  void find_pages(Pause pause) {
    evidence_.leaves().begin();
    kernel::PageRange ranges[128];
    for (const Area& area : areas_) {
      for (std::uint64_t at = area.start; at < area.end;) {
        const std::uint64_t stop = std::min(area.end, at + scan_bytes);
        std::uint64_t seen = at;  // all pages below are noted
        const int found = kernel::scan(pagemap_, at, stop, ranges, std::size(ranges));
        for (int i = 0; i < found; ++i) {
          note_pages(seen, ranges[i].start, false, false);
          note_pages(ranges[i].start, ranges[i].end, true,
                     (ranges[i].categories & kernel::page_is_huge) != 0);
          seen = ranges[i].end;
        }
        note_pages(seen, at, false, false);
        pause();
      }
    }
    evidence_.leaves().end();
  }
  void note_pages(std::uint64_t start, std::uint64_t end, bool present, bool huge) {
    Leaves& leaves = evidence_.leaves();
    each_leaf(start, end, [&](std::uint64_t at, std::uint64_t stop) {
      if (!present && leaves.find(at) == nullptr) return;
      bool made = false;
      Leaf* const leaf = leaves.visit(at >> leaf_shift, made);
      if (leaf == nullptr) return;
      const std::uint64_t bits = page_bits(at, stop);
      if (made) leaf->counted = budget_.program_s();
      leaf->huge = huge ? leaf->huge | bits : leaf->huge & ~bits;
      if (present) {
        // A page is first present because it was touched: its first access.
        for (std::uint64_t rest = bits & ~leaf->present; rest != 0; rest &= rest - 1)
          recording_.spool.access(
              (leaf->key << leaf_shift) +
                  static_cast<std::uint64_t>(std::countr_zero(rest)) * kernel::page_bytes,
              true, 0, 1);
        leaf->present |= bits;
      } else {
        leaf->present &= ~bits | leaf->away;
      }
    });
  }

  kernel::OwnMemory& own_;
  Evidence& evidence_;
  Budget& budget_;
  Recording& recording_;
  int maps_ = -1;
  int pagemap_ = -1;
  int status_ = -1;
  std::uint64_t loader_ = 0;
  char* text_ = nullptr;  // of /proc/self/maps
  char site_[64] = {};
  kernel::Array<Area> areas_;
  kernel::Array<Module> modules_;
  kernel::Array<std::uint64_t> threads_;  // pages of their descriptors
  std::uint64_t next_ns_ = 0;             // earliest time of the next look
  double next_s_ = 0;                     // the same, in the program's processor time
};

}  // namespace tt::record
