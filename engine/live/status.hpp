// SPDX-License-Identifier: MIT

// Status: what a live engine shows of itself, as text, JSON, for Prometheus, and as a time series.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "core/types.hpp"

namespace tt::live {

/// A figure with its name, as Prometheus has them (units as suffix; "_total" if it only grows).
struct Figure {
  std::string name;
  std::string help;
  double value = 0;
  std::string label = {};  // KEY="VALUE"; empty for none
};

struct Status {
  std::string policy, target, source;
  std::vector<Figure> figures;
};

/// A line for each figure.
[[nodiscard]] std::string text_of(const Status& status);
/// {"policy": ..., "target": ..., "source": ..., "figures": {"NAME": value, "NAME{LABEL}": ...}}
[[nodiscard]] std::string json_of(const Status& status);
/// The text format (prometheus.io/docs/instrumenting/exposition_formats), names after "tierd_".
[[nodiscard]] std::string prometheus_of(const Status& status);

/// Writes rows of figures as CSV, whose columns are those of the first row. The file is whole after
/// each row.
class SeriesFile {
 public:
  explicit SeriesFile(std::ostream& out) : out_(out) {}
  void row(const std::map<std::string, double>& cells);

 private:
  std::ostream& out_;
  std::vector<std::string> columns_;
};

}  // namespace tt::live
