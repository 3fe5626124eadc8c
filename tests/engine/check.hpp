// SPDX-License-Identifier: MIT

// A minimal test harness, so that the engine's tests need nothing but a C++ compiler.
//
//   TEST("cooling halves every counter") { CHECK_EQ(filter.get(page), 4u); }
//
// Each test runs in a fresh call; a failed check is reported with its place and the test goes on;
// an exception fails the test. How to run some of them: main.cpp.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace check {

struct Case {
  std::string name;
  void (*body)();
};
inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
inline int& failures() {
  static int count = 0;
  return count;
}
struct Register {
  Register(std::string name, void (*body)()) { cases().push_back({std::move(name), body}); }
};
inline void fail(const char* file, int line, const std::string& what) {
  ++failures();
  std::cerr << file << ":" << line << ": " << what << "\n";
}
template <typename A, typename B>
void equal(const A& a, const B& b, const char* text, const char* file, int line) {
  if (a == b) return;
  std::ostringstream out;
  out << text << ": " << a << " != " << b;
  fail(file, line, out.str());
}
inline void near(double a, double b, double tolerance, const char* text, const char* file,
                 int line) {
  if (std::abs(a - b) <= tolerance) return;
  std::ostringstream out;
  out << text << ": " << a << " is not within " << tolerance << " of " << b;
  fail(file, line, out.str());
}

/// Runs `body` in a child process, which has to end with abort() and to have written `fragment` to
/// its standard error: a broken invariant (core/assert.hpp).
template <typename Body>
void breaks(Body body, std::string_view fragment, const char* text, const char* file, int line) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return fail(file, line, "no pipe");
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    body();
    std::_Exit(0);
  }
  close(ends[1]);
  std::string said;
  std::array<char, 256> part{};
  for (ssize_t n; (n = read(ends[0], part.data(), part.size())) > 0;)
    said.append(part.data(), static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return fail(file, line, "no child process");
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
    return fail(file, line, std::string(text) + " broke no invariant; it said: " + said);
  if (said.find(fragment) == std::string::npos)
    fail(file, line, "message lacks '" + std::string(fragment) + "': " + said);
}

}  // namespace check

#define CHECK_JOIN2(a, b) a##b
#define CHECK_JOIN(a, b) CHECK_JOIN2(a, b)
#define TEST(name)                                                   \
  static void CHECK_JOIN(test_body_, __LINE__)();                    \
  static const check::Register CHECK_JOIN(test_register_, __LINE__){ \
      name, &CHECK_JOIN(test_body_, __LINE__)};                      \
  static void CHECK_JOIN(test_body_, __LINE__)()
#define CHECK(condition)                                           \
  do {                                                             \
    if (!(condition)) check::fail(__FILE__, __LINE__, #condition); \
  } while (false)
#define CHECK_EQ(a, b) check::equal((a), (b), #a " == " #b, __FILE__, __LINE__)
#define CHECK_NEAR(a, b, tolerance) \
  check::near((a), (b), (tolerance), #a " ~ " #b, __FILE__, __LINE__)
/// Only in builds whose level has the assertion: if constexpr (tt::assert_level >= 1).
#define CHECK_BREAKS(statement, fragment) \
  check::breaks([&] { statement; }, fragment, #statement, __FILE__, __LINE__)
#define CHECK_THROWS(expression, fragment)                                                \
  do {                                                                                    \
    bool thrown_ = false;                                                                 \
    try {                                                                                 \
      (void)(expression);                                                                 \
    } catch (const std::exception& error_) {                                              \
      thrown_ = true;                                                                     \
      if (std::string_view{error_.what()}.find(fragment) == std::string_view::npos)       \
        check::fail(__FILE__, __LINE__,                                                   \
                    std::string("message lacks '") + (fragment) + "': " + error_.what()); \
    }                                                                                     \
    if (!thrown_) check::fail(__FILE__, __LINE__, #expression " did not throw");          \
  } while (false)
