// SPDX-License-Identifier: MIT

// OneThread: the seam's rule that one thread makes all calls, in debug builds.
#pragma once

#include <thread>

#include "core/assert.hpp"

namespace tt {

/// Belongs to the thread that makes it.
class OneThread {
 public:
  [[nodiscard]] bool here() const { return std::this_thread::get_id() == thread_; }
  void check() const { TT_ASSERT(here()); }

 private:
  std::thread::id thread_ = std::this_thread::get_id();
};

}  // namespace tt
