// SPDX-License-Identifier: MIT

// Invariants: what holds whatever a policy, a stream or a user does. One that is broken is a
// mistake in the engine, so that the program ends at once and says which and where. What somebody
// outside of the engine can get wrong is an exception with a message instead, in every build.
//
// Levels, by what a check costs (the build's is TIERTUNE_ASSERTS; default 1 in Debug and sanitizer
// builds, and 0 in all others, which have neither a check nor its cost):
//
//   TT_ASSERT(condition)        level 1: constant time, beside a function that does more than that.
//                               In loops per access or per page, too, if it is a comparison.
//   TT_ASSERT_FULL(condition)   level 2: looks through a whole structure, such as
//                               TT_ASSERT_FULL(consistent()) at the end of a step. Not per page.
//
// A condition has no effects, and is compiled in every build, so that it cannot rot. Assert what
// other code relies on (used and free slots make up the capacity, a page is in one list), not what
// the line above has just set. A test that breaks one expects CHECK_BREAKS
// (tests/engine/check.hpp).
#pragma once

#include <cstdio>
#include <cstdlib>

#ifndef TT_ASSERT_LEVEL
#define TT_ASSERT_LEVEL 0
#endif

namespace tt {

inline constexpr int assert_level = TT_ASSERT_LEVEL;

[[noreturn]] inline void invariant_broken(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace tt

// Macros, because a message needs the condition's text and its place. Variadic, because a condition
// may have commas.
#define TT_ASSERT_AT(level, ...)                              \
  do {                                                        \
    if (tt::assert_level >= (level) && !(__VA_ARGS__))        \
      tt::invariant_broken(#__VA_ARGS__, __FILE__, __LINE__); \
  } while (false)
#define TT_ASSERT(...) TT_ASSERT_AT(1, __VA_ARGS__)
#define TT_ASSERT_FULL(...) TT_ASSERT_AT(2, __VA_ARGS__)
