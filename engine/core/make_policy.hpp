// SPDX-License-Identifier: MIT

// What a policy file registers as its `make`, for a class that is constructed from a PolicyContext
// or from nothing.
#pragma once

#include <memory>
#include <type_traits>

#include "core/seam.hpp"

namespace tt {

template <typename P>
[[nodiscard]] std::unique_ptr<Policy> make_policy(const PolicyContext& context) {
  if constexpr (std::is_default_constructible_v<P>) {
    return std::make_unique<P>();
  } else {
    return std::make_unique<P>(context);
  }
}

}  // namespace tt
