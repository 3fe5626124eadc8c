// SPDX-License-Identifier: MIT

#include <algorithm>

#include "check.hpp"
#include "core/assert.hpp"

namespace {

int asked = 0;
bool holds(bool answer) {
  ++asked;
  return answer;
}

TEST("assert: a broken invariant ends the program and names itself and its place") {
  if constexpr (tt::assert_level >= 1) {
    CHECK_BREAKS(TT_ASSERT(1 + 1 == 3), "test_assert.cpp");
    CHECK_BREAKS(TT_ASSERT(1 + 1 == 3), "invariant broken: 1 + 1 == 3");
  }
  if constexpr (tt::assert_level >= 2) CHECK_BREAKS(TT_ASSERT_FULL(holds(false)), "holds(false)");
}

TEST("assert: one that holds goes on, and one above the build's level is not looked at") {
  asked = 0;
  TT_ASSERT(holds(true));
  CHECK_EQ(asked, tt::assert_level >= 1 ? 1 : 0);
  TT_ASSERT_FULL(holds(true));
  CHECK_EQ(asked, std::min(tt::assert_level, 2));
  TT_ASSERT_AT(3, holds(false));
  CHECK_EQ(asked, std::min(tt::assert_level, 2));
}

}  // namespace
