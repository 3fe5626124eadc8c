// SPDX-License-Identifier: MIT

// Where the pages of whole objects belong when they are first touched, by a profile.
//
// Soar: Liu et al., "Tiered Memory Management Beyond Hotness", OSDI'25, §4.3. The objects with the
// highest score per page that fit the fast tier together go there, the next one in part, the others
// to the slow tier. Objects that take turns share the room of the largest.
//
// Inferred, and so noted where it stands: that an object is all that a site allocates; that two
// objects may share a slot whenever they were never there together. Of the object that is split,
// the first pages by address go to the fast tier, which is the order of first touches. What the
// profile has not seen gets what is left over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/seam.hpp"

namespace tt::migrate {

class PlacementPlan {
 public:
  PlacementPlan(const Memory& memory, const Placement& placement);
  /// Divides the fast tier, whose capacity has changed, among the objects. What is placed stays.
  void divide();

  struct Object {
    std::string site;
    double score, pages;
    double fast;             // pages that belong in the fast tier
    std::uint64_t live = 0;  // mapped now
  };

  void map(PageRange range, std::uint32_t site);
  void unmap(PageRange range);
  [[nodiscard]] bool fast(PageId page) const;
  /// By rank; without those that the profile has not seen.
  [[nodiscard]] std::span<const Object> objects() const {
    return std::span{objects_}.first(objects_.size() - 1);
  }
  [[nodiscard]] std::uint64_t bytes() const { return objects_.size() * sizeof(Object); }

 private:
  struct Live {
    PageRange range;
    std::size_t object;
    std::uint64_t before;  // pages of the object that were there when it was mapped
  };
  [[nodiscard]] std::size_t object_of(std::uint32_t site) const;
  /// Place of the first of live_ that begins behind this page.
  [[nodiscard]] std::ptrdiff_t after(PageId page) const;

  const Memory& memory_;
  const Placement placement_;
  std::vector<Object> objects_;  // and one more for unknown sites
  std::vector<Live> live_;       // by address
};

}  // namespace tt::migrate
