// SPDX-License-Identifier: MIT

#include "record/import/json.hpp"

namespace tt::record {
namespace {

constexpr std::size_t deepest = 64;
constexpr std::size_t longest_text = 4096;

}  // namespace

int Json::peek() {
  for (;;) {
    const int c = lines_.peek();
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return c;
    lines_.pass();
  }
}

void Json::unexpected(const std::string& expected) {
  const int c = peek();
  if (c < 0) lines_.bad("the end of the file", expected + ": the file is cut off");
  const char found = static_cast<char>(c);
  lines_.bad(shown({&found, 1}), expected + " of JSON");
}

void Json::open(char bracket, const char* expected) {
  if (peek() != bracket) unexpected(expected);
  if (++depth_ > deepest) lines_.fail("JSON is nested too deeply");
  lines_.pass();
  first_ = true;
}

bool Json::closed(char bracket) {
  const int c = peek();
  if (c == bracket) {
    lines_.pass();
    --depth_;
    first_ = false;
    return true;
  }
  if (!first_) {
    if (c != ',') unexpected(std::string("',' or '") + bracket + "'");
    lines_.pass();
  }
  first_ = false;
  return false;
}

Text Json::scalar() {
  text_.clear();
  const auto add = [&](int c) {
    if (c < 0) unexpected("the rest of a value");
    if (text_.size() == longest_text) lines_.fail("a value of JSON is too long");
    text_ += static_cast<char>(c);
    lines_.pass();
  };
  if (peek() == '"') {
    lines_.pass();
    while (lines_.peek() != '"') {
      if (lines_.peek() == '\\') lines_.pass();  // nothing that is used here has such characters
      add(lines_.peek());
    }
    lines_.pass();
    return text_;
  }
  for (;;) {
    const int c = lines_.peek();
    const bool part = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '+' ||
                      c == '.' || c == 'E';
    if (!part) break;
    add(c);
  }
  if (text_.empty()) unexpected("a value");
  return text_;
}

void Json::skip() {
  if (peek() == '{')
    object([&](Text) { skip(); });
  else if (peek() == '[')
    array([&] { skip(); });
  else
    (void)scalar();
}

void Json::end() {
  if (peek() >= 0) unexpected("the end");
}

}  // namespace tt::record
