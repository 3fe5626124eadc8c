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

/// How addresses without 0x are written; not known while none has said so.
enum class Base { open, decimal, hexadecimal };
/// Rows that wait for it at most; then they are decimal.
constexpr std::size_t most_waiting = 1 << 16;

struct Row {
  std::uint64_t time = 0;
  std::uint64_t address = 0;
  std::optional<std::uint64_t> bare;  // the address, if it turns out to be hexadecimal without 0x
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
    while (lines_.next(line)) {
      if (trimmed(line).empty()) continue;
      Row row;
      Text rest = line;
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const std::size_t comma = rest.find(separator_);
        if ((comma == Text::npos) != (i + 1 == columns.size()))
          lines_.bad(shown(line), std::to_string(columns.size()) + " values, as the heading has");
        field(columns[i], unquoted(rest.substr(0, comma)), row);
        rest.remove_prefix(comma == Text::npos ? rest.size() : comma + 1);
      }
      if (row.size > address_limit - std::max(row.address, row.bare.value_or(0)))
        lines_.bad(shown(line), "addresses below 2^48");
      if (base_ == Base::open && (row.bare || !waiting_.empty())) {
        waiting_.push_back(row);
        if (waiting_.size() == most_waiting) base_ = Base::decimal;
        continue;
      }
      observe_waiting();
      observe(row);
    }
    observe_waiting();
    to_.summarise(true);
  }

 private:
  void observe_waiting() {
    for (const Row& row : waiting_) observe(row);
    waiting_.clear();
  }

  void observe(const Row& row) {
    if (!first_) first_ = row.time;
    to_.summary.late += row.time < latest_ ? 1 : 0;
    latest_ = std::max(latest_, row.time);
    to_.stream().time(row.time - std::min(row.time, *first_));
    const std::uint32_t process = to_.processes[row.process];
    to_.stream().process(process);
    to_.summary.samples += row.count > 0;
    const double period = to_.options.period > 0 ? to_.options.period : 1;
    const std::uint64_t first = base_ == Base::hexadecimal && row.bare ? *row.bare : row.address;
    for (std::uint64_t at = first; at < first + row.size;) {
      const std::uint64_t end = std::min(first + row.size, (at / page_bytes + 1) * page_bytes);
      const std::uint64_t lines_touched =
          (end - 1) / trace::line_bytes - at / trace::line_bytes + 1;
      const double observed = row.count * static_cast<double>(lines_touched);
      if (observed > 0) to_.observe(process, at, row.kind, observed, observed * period);
      at = end;
    }
  }

  std::vector<Column> heading(Text line) {
    static constexpr const char* expected =
        "a heading with time,address,kind and optionally count,size,process";
    std::vector<Column> columns;
    separator_ = separator(line);
    for (Text rest = line;;) {
      const std::size_t comma = rest.find(separator_);
      const auto* const at =
          std::ranges::find(column_names, lower(unquoted(rest.substr(0, comma))));
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
        // Times since 1970 have more digits than a double: whole ns are read exactly.
        const auto whole = number<std::uint64_t>(text.substr(0, text.find('.')));
        const auto time = real(text);
        if (!time || *time < 0 || *time > 9e18) lines_.bad(shown(text), "a time in ns, 0 to 9e18");
        const bool plain = text.find_first_not_of("0123456789.") == Text::npos;
        row.time = whole && plain ? *whole : static_cast<std::uint64_t>(*time);
        break;
      }
      case Column::address:
        address(text, row);
        break;
      case Column::kind: {
        const std::string kind = lower(text);
        if (kind == "load" || kind == "read" || kind == "r")
          row.kind = AccessKind::load;
        else if (kind == "store" || kind == "write" || kind == "w")
          row.kind = AccessKind::store;
        else
          lines_.bad(shown(text), "load or store (or r, w, read, write)");
        break;
      }
      case Column::count: {
        const auto count = real(text);
        if (!count || *count < 0 || *count > 1e12)
          lines_.bad(shown(text), "a number of accesses, 0 to 1e12");
        row.count = *count;
        break;
      }
      case Column::size: {
        drop_zeros(text);
        const auto size = number<std::uint64_t>(text);
        if (!size || *size == 0 ||
            *size > std::min(std::uint64_t{1} << 30, to_.options.most_pages * page_bytes))
          lines_.bad(shown(text), "a size in bytes, 1 to 2^30");
        row.size = *size;
        break;
      }
      case Column::process: {
        drop_zeros(text);
        const auto process = number<std::uint32_t>(text);
        if (!process) lines_.bad(shown(text), "a process number");
        row.process = *process;
        break;
      }
    }
  }

  /// Decimal, or hexadecimal: with 0x, or in a file where others have letters in them. Digits alone
  /// are both until another row tells.
  void address(Text text, Row& row) {
    Text digits = text;
    const bool prefixed = take(digits, "0x") || take(digits, "0X");
    if (!prefixed) drop_zeros(digits);
    const auto below = [](std::optional<std::uint64_t> value) {
      return value && *value < address_limit ? value : std::nullopt;
    };
    const auto hexadecimal = below(number<std::uint64_t>(digits, 16));
    const auto decimal = below(number<std::uint64_t>(digits));
    if (prefixed ? !hexadecimal : !hexadecimal && !decimal)
      lines_.bad(shown(text), "an address below 2^48: hexadecimal or decimal");
    row.address = prefixed || !decimal ? *hexadecimal : *decimal;
    if (prefixed) return;
    if (!decimal || !hexadecimal) {
      const Base found = decimal ? Base::decimal : Base::hexadecimal;
      if (base_ != Base::open && base_ != found)
        lines_.bad(shown(text), base_ == Base::decimal
                                    ? "a decimal address, as those above, or 0x before it"
                                    : "a hexadecimal address, as those above");
      base_ = found;
    }
    row.bare = hexadecimal;
  }

  Importer& to_;
  Lines& lines_;
  char separator_ = ',';
  Base base_ = Base::open;
  std::vector<Row> waiting_;  // until base_ is known
  std::optional<std::uint64_t> first_;
  std::uint64_t latest_ = 0;
};

}  // namespace

void import_csv(Importer& to) { Csv{to}.run(); }

}  // namespace tt::record
