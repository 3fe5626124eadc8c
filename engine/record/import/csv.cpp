// SPDX-License-Identifier: MIT

// csv: a heading that names the columns, then one observation per line.
#include <algorithm>
#include <array>
#include <vector>

#include "record/import/importer.hpp"
#include "trace/llc.hpp"

namespace tt::record {
namespace {

enum class Column { time, address, kind, count, size, process };
constexpr std::array<Text, 6> column_names = {"time",  "address", "kind",
                                              "count", "size",    "process"};

struct Row {
  double time = 0;
  std::uint64_t address = 0;
  AccessKind kind = AccessKind::load;
  double count = 1;
  std::uint64_t size = 1;
  std::uint64_t process = 0;
};

class Csv {
 public:
  explicit Csv(Importer& to) : to_(to), lines_(to.lines) {}

  void run() {
    to_.start(true, std::max(1.0, to_.options.threads), to_.one_class());
    Text line;
    if (!lines_.next(line)) throw ImportError(lines_.name() + ": empty; expected a heading");
    const std::vector<Column> columns = heading(line);
    const double period = to_.options.period > 0 ? to_.options.period : 1;
    std::optional<double> first;
    while (lines_.next(line)) {
      if (trimmed(line).empty()) continue;
      Row row;
      Text rest = line;
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const std::size_t comma = rest.find(',');
        if ((comma == Text::npos) != (i + 1 == columns.size()))
          lines_.bad(shown(line), std::to_string(columns.size()) + " values, as the heading has");
        field(columns[i], trimmed(rest.substr(0, comma)), row);
        rest.remove_prefix(comma == Text::npos ? rest.size() : comma + 1);
      }
      if (row.size > address_limit - row.address) lines_.bad(shown(line), "addresses below 2^48");
      if (!first) first = row.time;
      to_.stream().time(static_cast<std::uint64_t>(std::max(0.0, row.time - *first)));
      const std::uint32_t process = to_.processes[row.process];
      to_.stream().process(process);
      to_.summary.samples += row.count > 0;
      for (std::uint64_t at = row.address; at < row.address + row.size;) {
        const std::uint64_t end =
            std::min(row.address + row.size, (at / page_bytes + 1) * page_bytes);
        const std::uint64_t lines_touched =
            (end - 1) / trace::line_bytes - at / trace::line_bytes + 1;
        const double observed = row.count * static_cast<double>(lines_touched);
        if (observed > 0) to_.observe(process, at, row.kind, observed, observed * period);
        at = end;
      }
    }
    to_.summarise(true);
  }

 private:
  std::vector<Column> heading(Text line) {
    constexpr const char* expected =
        "a heading with time,address,kind and optionally count,size,process";
    std::vector<Column> columns;
    for (Text rest = line;;) {
      const std::size_t comma = rest.find(',');
      const auto* const at = std::ranges::find(column_names, trimmed(rest.substr(0, comma)));
      const auto column = static_cast<Column>(at - column_names.begin());
      if (at == column_names.end() || std::ranges::find(columns, column) != columns.end())
        lines_.bad(shown(line), expected);
      columns.push_back(column);
      if (comma == Text::npos) break;
      rest.remove_prefix(comma + 1);
    }
    for (const Column needed : {Column::time, Column::address, Column::kind})
      if (std::ranges::find(columns, needed) == columns.end()) lines_.bad(shown(line), expected);
    return columns;
  }

  void field(Column column, Text text, Row& row) {
    switch (column) {
      case Column::time: {
        const auto time = real(text);
        if (!time || *time < 0 || *time > 1e18) lines_.bad(shown(text), "a time in ns, 0 to 1e18");
        row.time = *time;
        break;
      }
      case Column::address: {
        Text digits = text;
        const bool hex = take(digits, "0x") || take(digits, "0X");
        const auto address = number<std::uint64_t>(digits, hex ? 16 : 10);
        if (!address || *address >= address_limit)
          lines_.bad(shown(text), "an address below 2^48: 0x and hexadecimal, or decimal");
        row.address = *address;
        break;
      }
      case Column::kind:
        if (text == "load" || text == "r" || text == "R")
          row.kind = AccessKind::load;
        else if (text == "store" || text == "w" || text == "W")
          row.kind = AccessKind::store;
        else
          lines_.bad(shown(text), "load or store (or r, w)");
        break;
      case Column::count: {
        const auto count = real(text);
        if (!count || *count < 0 || *count > 1e12)
          lines_.bad(shown(text), "a number of accesses, 0 to 1e12");
        row.count = *count;
        break;
      }
      case Column::size: {
        const auto size = number<std::uint64_t>(text);
        if (!size || *size == 0 ||
            *size > std::min(std::uint64_t{1} << 30, to_.options.most_pages * page_bytes))
          lines_.bad(shown(text), "a size in bytes, 1 to 2^30");
        row.size = *size;
        break;
      }
      case Column::process: {
        const auto process = number<std::uint32_t>(text);
        if (!process) lines_.bad(shown(text), "a process number");
        row.process = *process;
        break;
      }
    }
  }

  Importer& to_;
  Lines& lines_;
};

}  // namespace

void import_csv(Importer& to) { Csv{to}.run(); }

}  // namespace tt::record
