// SPDX-License-Identifier: MIT

// Placement: where objects belong, and how finely a policy wants to be asked for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tt {

/// Where objects belong, by the site that allocated them: what Soar knows from a profiling run.
/// Best ones first.
struct Placement {
  struct Object {
    std::string site;
    double score = 0;        // per page: why it stands where it does
    double pages = 0;        // managed pages of this run; may be a fraction in a miniature
    std::uint32_t slot = 0;  // objects that are never there at the same time may share one
    friend bool operator==(const Object&, const Object&) = default;
  };
  std::vector<Object> objects;
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// How finely a policy wants to be asked for the placement of first touches.
enum class Granularity : std::uint8_t {
  range,   // a run of pages at a time: nothing sets a page apart from its neighbours
  page,    // each page
  object,  // as much of an allocation as is touched at a time
};

}  // namespace tt
