// SPDX-License-Identifier: MIT

// RecordedPattern: the blocks that a recorder keeps to append more like them, what they map, and
// what their accesses said of the classes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/rng.hpp"
#include "trace/pattern.hpp"
#include "trace/recorded_space.hpp"
#include "trace/seen.hpp"
#include "trace/stream.hpp"

namespace tt::trace {

class RecordedPattern {
 public:
  /// Whether blocks are being kept.
  [[nodiscard]] bool open() const { return open_; }

  void begin(const RecordedSpace& space, std::span<const Seen> seen) {
    blocks_ = Pattern{};
    first_page_ = space.pages();
    first_object_ = space.objects().size();
    seen_.assign(seen.begin(), seen.end());
    open_ = true;
  }
  void keep(const Block& block) {
    if (open_) blocks_.keep(block);
  }
  void end(const RecordedSpace& space, std::span<const Seen> seen) {
    open_ = false;
    pages_ = space.pages() - first_page_;
    objects_ = space.objects().size() - first_object_;
    for (std::size_t c = 0; c < seen.size(); ++c) seen_[c] = seen[c].since(seen_[c]);
  }

  [[nodiscard]] bool repeatable(bool timed) const { return blocks_.repeatable(timed, first_page_); }
  [[nodiscard]] bool drawable(bool timed) const { return blocks_.drawable(timed); }

  /// Maps what it has mapped anew, and appends its blocks.
  void repeat(RecordedSpace& space, const Pattern::Append& append) const {
    const Pattern::Shift shift{first_page_, first_object_, space.pages() - first_page_,
                               space.objects().size() - first_object_};
    for (std::size_t object = first_object_; object < first_object_ + objects_; ++object) {
      const Object first = space.objects()[object];
      (void)space.reserve(first.site, first.pages);
    }
    // In the end they are touched, or freed, as the first ones were.
    space.copy_to_end(first_page_, pages_);
    blocks_.repeat(shift, append);
  }
  void draw(double times, Rng& rng, const Pattern::Append& append) const {
    blocks_.draw(times, rng, append);
  }
  /// By class.
  [[nodiscard]] std::span<const Seen> seen() const { return seen_; }

 private:
  Pattern blocks_;
  bool open_ = false;
  std::uint64_t first_page_ = 0;  // that it mapped
  std::uint64_t pages_ = 0;
  std::size_t first_object_ = 0;
  std::size_t objects_ = 0;
  std::vector<Seen> seen_;  // while open: before it
};

}  // namespace tt::trace
