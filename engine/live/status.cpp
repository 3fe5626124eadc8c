// SPDX-License-Identifier: MIT

#include "live/status.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <ostream>
#include <set>

#include "live/json_text.hpp"

namespace tt::live {
namespace {

/// As short as it can be read back from.
std::string number(double value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} ? std::string{text.data(), end} : "0";
}

std::string name_of(const Figure& figure) {
  return figure.label.empty() ? figure.name : figure.name + "{" + figure.label + "}";
}

}  // namespace

std::string text_of(const Status& status) {
  std::string out = status.policy + " on " + status.target + "\n" + status.source + "\n";
  for (const Figure& each : status.figures) out += name_of(each) + " " + number(each.value) + "\n";
  return out;
}

std::string json_of(const Status& status) {
  std::string out = "{\"policy\": " + json_text(status.policy) +
                    ", \"target\": " + json_text(status.target) +
                    ", \"source\": " + json_text(status.source) + ", \"figures\": {";
  const char* before = "\n  ";
  for (const Figure& each : status.figures) {
    // JSON has no infinity.
    const std::string value = std::isfinite(each.value) ? number(each.value) : "null";
    out += before + json_text(name_of(each)) + ": " + value;
    before = ",\n  ";
  }
  return out + "}}\n";
}

std::string prometheus_of(const Status& status) {
  std::string out = "# TYPE tierd_info gauge\ntierd_info{policy=" + json_text(status.policy) +
                    ",target=" + json_text(status.target) + "} 1\n";
  std::set<std::string> told;
  for (const Figure& each : status.figures) {
    if (told.insert(each.name).second) {
      const bool grows = each.name.ends_with("_total");
      out += "# HELP tierd_" + each.name + " " + each.help + "\n# TYPE tierd_" + each.name +
             (grows ? " counter\n" : " gauge\n");
    }
    const std::string value = std::isfinite(each.value) ? number(each.value)
                              : std::isnan(each.value)  ? "NaN"
                              : each.value > 0          ? "+Inf"
                                                        : "-Inf";
    out += "tierd_" + name_of(each) + " " + value + "\n";
  }
  return out;
}

void SeriesFile::row(const std::map<std::string, double>& cells) {
  if (columns_.empty()) {
    for (const auto& [name, value] : cells) {
      out_ << (columns_.empty() ? "" : ",") << name;
      columns_.push_back(name);
    }
    out_ << '\n';
  }
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const auto cell = cells.find(columns_[i]);
    out_ << (i == 0 ? "" : ",") << number(cell == cells.end() ? 0 : cell->second);
  }
  out_ << '\n' << std::flush;
}

}  // namespace tt::live
