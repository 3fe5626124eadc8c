// SPDX-License-Identifier: MIT

#include "record/import/text.hpp"

#include <cstring>

namespace tt::record {
namespace {

constexpr std::size_t longest_line = 64 << 10;

}  // namespace

std::string shown(Text text) {
  constexpr std::size_t most = 80;
  std::string out;
  for (const char c : text.substr(0, most)) out += c >= ' ' && c <= '~' ? c : '?';
  return text.size() > most ? "'" + out + "...'" : "'" + out + "'";
}

std::optional<double> real(Text text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || at != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> perf_time(Text token) {
  if (!token.ends_with(':')) return std::nullopt;
  token.remove_suffix(1);
  const std::size_t dot = token.find('.');
  if (dot == Text::npos) return std::nullopt;
  const Text digits = token.substr(dot + 1);
  const auto whole = number<std::uint32_t>(token.substr(0, dot));
  const auto part = number<std::uint64_t>(digits);
  if (!whole || !part || digits.size() > 9) return std::nullopt;
  std::uint64_t ns = *part;
  for (std::size_t i = digits.size(); i < 9; ++i) ns *= 10;
  return *whole * std::uint64_t{1'000'000'000} + ns;
}

Text word(Text& rest) {
  const std::size_t from = std::min(rest.find_first_not_of(" \t"), rest.size());
  const std::size_t to = std::min(rest.find_first_of(" \t", from), rest.size());
  const Text out = rest.substr(from, to - from);
  rest.remove_prefix(to);
  return out;
}

Text trimmed(Text text) {
  const std::size_t from = std::min(text.find_first_not_of(" \t"), text.size());
  text.remove_prefix(from);
  return text.substr(0, text.find_last_not_of(" \t") + 1);
}

Text unquoted(Text text) {
  text = trimmed(text);
  if (text.size() < 2 || !text.starts_with('"') || !text.ends_with('"')) return text;
  return trimmed(text.substr(1, text.size() - 2));
}

std::string lower(Text text) {
  std::string out{text};
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

void drop_zeros(Text& digits) {
  const std::size_t dot = digits.find('.');
  if (dot != Text::npos && digits.find_first_not_of('0', dot + 1) == Text::npos)
    digits = digits.substr(0, dot);
}

char separator(Text line) {
  for (const char other : {';', '\t'})
    if (line.find(',') == Text::npos && line.find(other) != Text::npos) return other;
  return ',';
}

bool take(Text& rest, Text prefix) {
  if (!rest.starts_with(prefix)) return false;
  rest.remove_prefix(prefix.size());
  return true;
}

std::optional<std::uint64_t> number_after(Text line, Text name) {
  const std::size_t at = line.find(name);
  if (at == Text::npos) return std::nullopt;
  Text rest = line.substr(at + name.size());
  return number<std::uint64_t>(word(rest));
}

bool Asides::skip(Text line) {
  const Text content = trimmed(line);
  if (content.empty()) {  // ends a call chain
    after_event_ = false;
    return true;
  }
  if (content.starts_with('#')) return true;
  const auto is_event = [](Text rest) {
    for (Text token = word(rest); !token.empty(); token = word(rest))
      if (perf_time(token)) return true;
    return false;
  };
  Text rest = line;
  if (after_event_ && (line[0] == ' ' || line[0] == '\t') &&
      number<std::uint64_t>(word(rest), 16) && !is_event(rest)) {
    ++summary_.skipped;
    return true;
  }
  after_event_ = true;
  if (content.find("PERF_RECORD_") != Text::npos || content.find("EVENTS") != Text::npos) {
    const bool dropped = content.find("[EVENTS DROPPED]") != Text::npos;
    const auto lost = content.find("PERF_RECORD_LOST") != Text::npos
                          ? number_after(content, " lost ")
                      : content.starts_with("CPU:") ? number_after(content, "[LOST ")
                                                    : std::nullopt;
    if (!dropped && !lost && content.find(": PERF_RECORD_") == Text::npos) return false;
    summary_.lost += lost.value_or(dropped ? 1 : 0);
    ++summary_.skipped;
    return true;
  }
  if (content.starts_with("Processed ") && content.find(" chunks!") != Text::npos) {
    summary_.lost += number_after(content, " lost ").value_or(1);
  } else if (!content.starts_with("cpus=") && !content.starts_with("version = ") &&
             content != "Warning:" && !content.starts_with("Check IO/CPU overload") &&
             !(content.starts_with("CPU ") && content.ends_with(" is empty"))) {
    return false;
  }
  ++summary_.skipped;
  return true;
}

bool Lines::next(Text& line) {
  for (;;) {
    const char* const from = buffer_.data() + at_;
    if (const void* const end = std::memchr(from, '\n', end_ - at_)) {
      line = {from, static_cast<std::size_t>(static_cast<const char*>(end) - from)};
      at_ += line.size() + 1;
      ++number_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      return true;
    }
    const Text partial{from, end_ - at_};
    if (partial.size() > longest_line) {
      ++number_;
      bad(shown(partial), "a line of at most 65,536 bytes");
    }
    if (more()) continue;
    if (at_ == end_) return false;
    ++number_;
    bad("the end of the file after " + shown({buffer_.data() + at_, end_ - at_}),
        "the end of the line: the file is cut off");
  }
}

bool Lines::more() {
  if (over_) return false;
  constexpr Text mark = "\xEF\xBB\xBF";
  std::memmove(buffer_.data(), buffer_.data() + at_, end_ - at_);
  end_ -= at_;
  at_ = 0;
  const std::size_t before = end_;
  do {
    const std::size_t got = source_(buffer_.data() + end_, buffer_.size() - end_);
    over_ = got == 0;
    end_ += got;
  } while (!over_ && !begun_ && end_ < mark.size());
  if (!begun_ && Text{buffer_.data(), end_}.starts_with(mark)) at_ = mark.size();
  begun_ = true;
  return end_ > before;
}

void Lines::bad(const std::string& found, const std::string& expected) const {
  throw ImportError(name_ + ":" + std::to_string(number_) + ": found " + found + ", expected " +
                    expected);
}

void Lines::fail(const std::string& what) const {
  throw ImportError(name_ + ":" + std::to_string(number_) + ": " + what);
}

}  // namespace tt::record
