// SPDX-License-Identifier: MIT

// Gauges: what a policy shows of itself: figures, tables, what it thinks of a page.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace tt {

/// What a policy thinks of a page, for the occupancy report.
enum class Heat : std::uint8_t { cold = 0, warm = 1, hot = 2 };

/// Figures a policy shows once a second: thresholds, sampling level, and the like. Names become
/// time-series columns: lower case, underscores, unit as suffix where it has one.
using Gauges = std::map<std::string, double, std::less<>>;

/// A row of a table that a policy reports at the end of a run; cells by column.
struct Row {
  std::string table;
  std::map<std::string, std::variant<double, std::string>, std::less<>> cells;
  friend bool operator==(const Row&, const Row&) = default;
};
using Rows = std::vector<Row>;

}  // namespace tt
