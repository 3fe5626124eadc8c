// SPDX-License-Identifier: MIT

#include "live/config.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <stdexcept>
#include <utility>

#include "live/words.hpp"

namespace tt::live {
namespace {

std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text.substr(0, 60)) out += c >= ' ' && c != 127 ? c : '?';
  return out + "'";
}

/// Without quotes, or what stands in them; std::runtime_error for anything but one scalar.
std::string scalar(std::string_view text) {
  if (text.empty()) throw std::runtime_error("found nothing, allowed is a value on this line");
  const char first = text.front();
  if (first == '\'' || first == '"') {
    if (text.size() < 2 || text.back() != first)
      throw std::runtime_error("found " + in_quotes(text) +
                               ", allowed is a text with both its quotes");
    const std::string inside{text.substr(1, text.size() - 2)};
    if (inside.find_first_of(first == '"' ? "\"\\" : "'") != std::string::npos)
      throw std::runtime_error("found " + in_quotes(text) +
                               ", allowed is a text without quotes inside");
    return inside;
  }
  if (std::string_view{"[{&*!|>%@`#-?,"}.find(first) != std::string_view::npos &&
      !(first == '-' && text.size() > 1 && text[1] != ' '))
    throw std::runtime_error("found " + in_quotes(text) + ", allowed is a plain value");
  // What stands behind it is a comment.
  const std::size_t comment = text.find(" #");
  return std::string{trimmed(text.substr(0, comment))};
}

/// YAML's and C's ways of writing a number.
bool parse_number(const std::string& text, double& out) {
  const char* begin = text.data();
  const char* const end = begin + text.size();
  if (begin != end && *begin == '+') ++begin;
  const auto [at, error] = std::from_chars(begin, end, out);
  return error == std::errc{} && at == end && std::isfinite(out);
}

/// A line of a mapping: "  key: value".
struct Line {
  std::size_t number = 0, indent = 0;
  std::string key;
  std::string_view value;
};

std::runtime_error wrong(const Line& line, const std::string& what) {
  return std::runtime_error("line " + std::to_string(line.number) + ": " +
                            (line.key.empty() ? "" : line.key + ": ") + what);
}

}  // namespace

KnobValue read_knob(const KnobDecl& knob, std::string_view text) {
  std::string found = scalar(text);
  const auto refuse = [&](const std::string& allowed) {
    return std::runtime_error("found " + in_quotes(found) + ", allowed is " + allowed);
  };
  switch (knob.type) {
    case KnobType::boolean:
      if (found != "true" && found != "false") throw refuse("true or false");
      return found == "true";
    case KnobType::choice: {
      std::string names;
      for (const std::string& choice : knob.choices) {
        if (found == choice) return found;
        names += (names.empty() ? "" : " or ") + choice;
      }
      throw refuse(names);
    }
    default:
      break;
  }
  double value = 0;
  const bool whole = knob.type == KnobType::integer;
  if (!parse_number(found, value) || value < knob.min || value > knob.max ||
      (whole && value != std::floor(value)))
    throw refuse((whole ? "a whole number from " : "a number from ") + to_string(knob.min) +
                 " to " + to_string(knob.max));
  if (whole) return static_cast<std::int64_t>(value);
  return value;
}

Config read_config(std::string_view text) {
  Config config;
  std::map<std::string, Line> knobs;  // by name
  std::string section;
  Line policy_line;
  const auto set = [](const Line& line, std::string& out) {
    if (!out.empty()) throw wrong(line, "written twice");
    try {
      out = scalar(line.value);
    } catch (const std::runtime_error& error) {
      throw wrong(line, error.what());
    }
  };
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    const std::string_view whole = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    Line line{number, std::min(whole.find_first_not_of(' '), whole.size()), {}, {}};
    const std::string_view rest = trimmed(whole);
    if (rest.empty() || rest.front() == '#') continue;
    const bool matters = section == "scenario" || section == "knobs" || section == "provenance";
    if (line.indent > 2 || (line.indent > 0 && !matters)) continue;  // of what is not needed
    const std::size_t colon = rest.find(':');
    if (colon == std::string_view::npos || (colon + 1 < rest.size() && rest[colon + 1] != ' ')) {
      if (line.indent > 0 && section != "knobs") continue;  // goes on from the line before
      throw wrong(line, "found " + in_quotes(rest) + ", allowed is KEY: VALUE");
    }
    line.key = std::string{rest.substr(0, colon)};
    line.value = trimmed(rest.substr(colon + 1));
    if (line.indent == 0) {
      section = line.key;
      const bool needed = section == "scenario" || section == "knobs" || section == "provenance";
      if (needed && !line.value.empty() && line.value != "{}")
        throw wrong(line,
                    "found " + in_quotes(line.value) + ", allowed is one key on each line below");
    } else if (section == "knobs") {
      if (!knobs.emplace(line.key, line).second) throw wrong(line, "written twice");
    } else if (section == "scenario" && line.key == "policy") {
      set(line, config.policy);
      policy_line = line;
    } else if (section == "scenario" && line.key == "page_bytes") {
      std::string bytes;
      set(line, bytes);
      const auto [at, error] =
          std::from_chars(bytes.data(), bytes.data() + bytes.size(), config.page_bytes);
      if (error != std::errc{} || at != bytes.data() + bytes.size())
        throw wrong(line, "found " + in_quotes(bytes) + ", allowed is a number of bytes");
    } else if (section == "provenance" && line.key == "engine_build") {
      set(line, config.engine_build);
    }
  }
  if (config.policy.empty()) throw std::runtime_error("found no scenario with a policy");
  const PolicyInfo* info = nullptr;
  try {
    info = &policy(config.policy);
  } catch (const std::invalid_argument& error) {
    throw wrong(policy_line, error.what());
  }
  for (const auto& [name, line] : knobs) {
    const auto knob = std::ranges::find(info->knobs, name, &KnobDecl::name);
    if (knob == info->knobs.end())
      throw wrong(line, "policy " + config.policy + " has no such knob");
    try {
      config.knobs[name] = read_knob(*knob, line.value);
    } catch (const std::runtime_error& error) {
      throw wrong(line, error.what());
    }
  }
  return config;
}

}  // namespace tt::live
