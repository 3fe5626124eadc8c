// A minimal test harness, so that the engine's tests need nothing but a C++ compiler.
//
//   TEST("cooling halves every counter") { CHECK_EQ(filter.get(page), 4u); }
//
// Each test runs in a fresh call; a failed check is reported with its place and the test goes on;
// an exception fails the test. How to run some of them: main.cpp.
#pragma once

#include <cmath>
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
