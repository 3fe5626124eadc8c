// SPDX-License-Identifier: MIT

// Text of traces: lines with their numbers, and the words in them.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/import.hpp"

namespace tt::record {

using Text = std::string_view;

/// A line's content for a message: short, and printable.
[[nodiscard]] std::string shown(Text text);

/// The whole text as a number, or none.
template <typename T>
[[nodiscard]] std::optional<T> number(Text text, int base = 10) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc{} || at != end || text.empty()) return std::nullopt;
  return value;
}
[[nodiscard]] std::optional<double> real(Text text);
/// "12345.678901:", as perf prints times, in ns; none if it is something else.
[[nodiscard]] std::optional<std::uint64_t> perf_time(Text token);

/// The next word of a line, between spaces and tabs; empty at the end.
Text word(Text& rest);
[[nodiscard]] Text trimmed(Text text);
/// Without the quotation marks that spreadsheets put around a value.
[[nodiscard]] Text unquoted(Text text);
[[nodiscard]] std::string lower(Text text);
/// Removes ".0", as a table of floats has it.
void drop_zeros(Text& digits);
/// What stands between the values of a table's line: a comma, or where there is none a semicolon or
/// a tab.
[[nodiscard]] char separator(Text line);
/// Removes a prefix. False: the text does not begin with it.
bool take(Text& rest, Text prefix);
/// The number after `name`, wherever that is in the line, or none.
[[nodiscard]] std::optional<std::uint64_t> number_after(Text line, Text name);

/// Lines of perf, trace-cmd and tracefs that are no event: call chains, side-band records,
/// headings, and what says that events were lost.
class Asides {
 public:
  explicit Asides(ImportSummary& summary) : summary_(summary) {}
  /// True: the line is one of them, and was counted.
  bool skip(Text line);

 private:
  ImportSummary& summary_;
  bool after_event_ = false;  // where a call chain may stand
};

/// Reads a source line by line and counts the lines; a byte-order mark before them is left out.
class Lines {
 public:
  Lines(const ImportSource& source, const std::string& name)
      : source_(source), name_(name), buffer_(std::size_t{1} << 20) {}

  /// False at the end. The line is valid until the next call.
  bool next(Text& line);

  // The same source byte by byte.
  /// The next byte, which stays; -1 at the end.
  [[nodiscard]] int peek() {
    return at_ < end_ || more() ? static_cast<unsigned char>(buffer_[at_]) : -1;
  }
  /// Goes over the byte that peek() gave.
  void pass() { number_ += buffer_[at_++] == '\n' ? 1 : 0; }
  /// Counts the line that peek() is in, as next() does.
  void in_line() { ++number_; }

  /// ImportError: the current line has `found` where `expected` should be.
  [[noreturn]] void bad(const std::string& found, const std::string& expected) const;
  /// ImportError about the current line.
  [[noreturn]] void fail(const std::string& what) const;
  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  /// Reads on behind what is left. False at the end.
  bool more();

  const ImportSource& source_;
  const std::string& name_;
  std::vector<char> buffer_;
  std::size_t at_ = 0, end_ = 0;
  bool over_ = false, begun_ = false;
  std::uint64_t number_ = 0;
};

}  // namespace tt::record
