// SPDX-License-Identifier: MIT

// The exact tracker: one counter per page that was sampled, in an open-addressing hash table.
#pragma once

#include <cstdint>
#include <memory>

#include "track/tracker.hpp"

namespace tt::track {

/// A table that holds `expected_pages` without growing, and grows when it has to. Pages whose count
/// cooling brings to zero are dropped, so that it holds the pages sampled lately, not all ever
/// sampled. Counts saturate at 2^32 - 1.
[[nodiscard]] std::unique_ptr<Tracker> make_exact(std::uint64_t expected_pages);

}  // namespace tt::track
