// SPDX-License-Identifier: MIT

// JSON that is read as it comes: the caller takes the values that it knows, and skips the rest.
#pragma once

#include <cstddef>
#include <string>

#include "record/import/text.hpp"

namespace tt::record {

/// Every function reads one value. ImportError for what is no JSON, or another kind of value.
class Json {
 public:
  explicit Json(Lines& lines) : lines_(lines) {}

  /// Calls `member(key)` for each member of an object; it reads the member's value.
  template <typename Member>
  void object(Member member) {
    open('{', "an object");
    while (!closed('}')) {
      const std::string key{scalar()};
      if (peek() != ':') unexpected("':'");
      lines_.pass();
      member(Text{key});
    }
  }
  /// Calls `element()` for each element of an array; it reads the element.
  template <typename Element>
  void array(Element element) {
    open('[', "an array");
    while (!closed(']')) element();
  }
  /// A string's content, or the text of a number, true, false or null; valid until the next call.
  Text scalar();
  void skip();
  /// ImportError unless nothing follows.
  void end();
  /// The first byte of the next value; -1 at the end.
  int peek();

 private:
  void open(char bracket, const char* expected);
  /// True: the bracket closes what was opened; else the next member or element begins.
  bool closed(char bracket);
  [[noreturn]] void unexpected(const std::string& expected);

  Lines& lines_;
  std::string text_;
  std::size_t depth_ = 0;
  bool first_ = false;  // nothing came since the last bracket was opened
};

}  // namespace tt::record
