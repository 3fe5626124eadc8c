// SPDX-License-Identifier: MIT

#include "record/requests.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "core/types.hpp"
#include "record/import/text.hpp"

namespace tt::record {
namespace {

constexpr std::uint64_t longest_key = 65'535;
constexpr std::uint32_t most_alike = 1'000'000;
constexpr double longest_trace_s = 4e9;  // a hundred years: nothing that is in seconds lasts longer
constexpr std::uint16_t number_bytes = 8;  // of a key of which only a number is known

enum class Field { unused, time, key, size, key_size, op, ttl, count };

/// What headings call them; the first name of each is that of `columns`.
constexpr std::array<std::pair<Text, Field>, 26> field_names = {{
    {"-", Field::unused},         {"time", Field::time},          {"key", Field::key},
    {"size", Field::size},        {"key_size", Field::key_size},  {"op", Field::op},
    {"ttl", Field::ttl},          {"count", Field::count},        {"timestamp", Field::time},
    {"op_time", Field::time},     {"real_time", Field::time},     {"clock_time", Field::time},
    {"obj_id", Field::key},       {"object_id", Field::key},      {"id", Field::key},
    {"cachekey", Field::key},     {"anonymized key", Field::key}, {"obj_size", Field::size},
    {"object_size", Field::size}, {"objectsize", Field::size},    {"value_size", Field::size},
    {"value size", Field::size},  {"key size", Field::key_size},  {"operation", Field::op},
    {"op_count", Field::count},   {"req_count", Field::count},
}};
constexpr std::size_t own_names = 8;

constexpr std::array<std::pair<Text, CacheOperation>, 24> operation_names = {{
    {"get", CacheOperation::get},
    {"gets", CacheOperation::get},
    {"get_lease", CacheOperation::get},
    {"read", CacheOperation::get},
    {"r", CacheOperation::get},
    {"set", CacheOperation::set},
    {"set_lease", CacheOperation::set},
    {"put", CacheOperation::set},
    {"write", CacheOperation::set},
    {"w", CacheOperation::set},
    {"add", CacheOperation::add},
    {"replace", CacheOperation::update},
    {"cas", CacheOperation::update},
    {"update", CacheOperation::update},
    {"append", CacheOperation::update},
    {"prepend", CacheOperation::update},
    {"incr", CacheOperation::update},
    {"decr", CacheOperation::update},
    {"increment", CacheOperation::update},
    {"decrement", CacheOperation::update},
    {"delete", CacheOperation::remove},
    {"del", CacheOperation::remove},
    {"remove", CacheOperation::remove},
    {"d", CacheOperation::remove},
}};

std::optional<CacheOperation> operation_of(Text text) {
  const std::string name = lower(text);
  for (const auto& [known, operation] : operation_names)
    if (name == known) return operation;
  return std::nullopt;
}

std::optional<Field> field_of(Text text) {
  const std::string name = lower(text);
  for (const auto& [known, field] : field_names)
    if (name == known) return field;
  return std::nullopt;
}

/// FNV-1a, mixed: equal keys are equal, others practically never.
std::uint64_t identity(Text key) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix64(hash);
}

/// Times as they come, as seconds since the first.
class Clock {
 public:
  explicit Clock(RequestSummary& summary) : summary_(summary) {}
  /// False: too far from the first to be in seconds.
  bool at(double seconds) {
    if (!begun_) first_ = seconds;
    begun_ = summary_.times = true;
    if (!(seconds - first_ <= longest_trace_s)) return false;
    const auto now = static_cast<std::uint32_t>(std::max(0.0, seconds - first_));
    summary_.late += now < summary_.seconds || seconds < first_ ? 1 : 0;
    summary_.seconds = std::max(summary_.seconds, now);
    return true;
  }

 private:
  RequestSummary& summary_;
  double first_ = 0;
  bool begun_ = false;
};

class Table {
 public:
  Table(Lines& lines, RequestSummary& summary, const std::function<void(const CacheRequest&)>& to)
      : lines_(lines), summary_(summary), to_(to), clock_(summary) {}

  void run(const std::string& columns) {
    Text line;
    bool row = lines_.next(line);
    if (!row) throw ImportError(lines_.name() + ": empty; expected requests");
    separator_ = separator(line);
    if (!columns.empty()) {
      named(columns);
      summary_.layout = "a table, its columns given";
    } else if (heading(line)) {
      summary_.layout = "a table with a heading";
      row = lines_.next(line);
    } else if (twitters(line)) {
      columns_ = {Field::time,   Field::key, Field::key_size, Field::size,
                  Field::unused, Field::op,  Field::ttl};
      summary_.layout = "Twitter's columns";
      summary_.unused = {"client id"};
    } else {
      lines_.bad(
          shown(line),
          "a heading that names key and size (and time, key_size, op, ttl, op_count), "
          "Twitter's seven columns, or oracleGeneral's binary records; --columns names those "
          "of another table");
    }
    const auto has = [&](Field field) { return std::ranges::count(columns_, field) > 0; };
    summary_.key_sizes = has(Field::key_size);
    summary_.operations = has(Field::op);
    for (; row; row = lines_.next(line))
      if (!trimmed(line).empty()) request(line);
    summary_.lines = lines_.number();
  }

 private:
  std::vector<Text> values(Text line) const {
    std::vector<Text> out;
    for (;;) {
      const std::size_t end = line.find(separator_);
      out.push_back(unquoted(line.substr(0, end)));
      if (end == Text::npos) return out;
      line.remove_prefix(end + 1);
    }
  }

  void require(const std::string& found) const {
    for (const Field field : {Field::time, Field::key, Field::size, Field::key_size, Field::op,
                              Field::ttl, Field::count})
      if (std::ranges::count(columns_, field) > 1)
        throw ImportError(lines_.name() + ": two columns for '" +
                          std::string(field_names[static_cast<std::size_t>(field)].first) +
                          "' in " + shown(found));
    for (const Field field : {Field::key, Field::size})
      if (std::ranges::count(columns_, field) == 0)
        throw ImportError(lines_.name() + ": no column for '" +
                          std::string(field_names[static_cast<std::size_t>(field)].first) +
                          "' in " + shown(found));
  }

  void named(const std::string& columns) {
    Text rest = columns;
    for (;;) {
      const std::size_t comma = rest.find(',');
      const Text name = trimmed(rest.substr(0, comma));
      const auto* const known = std::find_if(field_names.begin(), field_names.begin() + own_names,
                                             [&](const auto& own) { return own.first == name; });
      if (known == field_names.begin() + own_names)
        throw ImportError("--columns: found " + shown(name) +
                          ", expected time, key, size, key_size, op, ttl, count or - (unused)");
      columns_.push_back(known->second);
      if (comma == Text::npos) break;
      rest.remove_prefix(comma + 1);
    }
    require(columns);
  }

  bool heading(Text line) {
    std::vector<Field> found;
    std::vector<std::string> unused;
    for (const Text name : values(line)) {
      found.push_back(field_of(name).value_or(Field::unused));
      if (found.back() == Field::unused) unused.emplace_back(name.substr(0, 40));
    }
    if (std::ranges::count(found, Field::key) == 0 || std::ranges::count(found, Field::size) == 0)
      return false;
    columns_ = std::move(found);
    summary_.unused = std::move(unused);
    require(std::string(line));
    return true;
  }

  /// Keys may have commas in them, so the columns behind the key count from the end.
  bool twitters(Text line) const {
    const std::vector<Text> row = values(line);
    return separator_ == ',' && row.size() >= 7 && real(row[0]) &&
           operation_of(row[row.size() - 2]) && number<std::uint32_t>(row[row.size() - 4]) &&
           number<std::uint32_t>(row[row.size() - 5]);
  }

  void request(Text line) {
    std::vector<Text> row = values(line);
    if (summary_.layout == "Twitter's columns" && row.size() > columns_.size()) {
      const std::size_t more = row.size() - columns_.size();
      const char* const end = row[1 + more].data() + row[1 + more].size();
      row[1] = Text{row[1].data(), static_cast<std::size_t>(end - row[1].data())};
      row.erase(row.begin() + 2, row.begin() + 2 + static_cast<std::ptrdiff_t>(more));
    }
    if (row.size() != columns_.size())
      lines_.bad(shown(line), std::to_string(columns_.size()) + " values");
    CacheRequest out;
    bool known = true;
    for (std::size_t i = 0; i < row.size(); ++i) known &= value(columns_[i], row[i], out);
    if (!known) return;
    out.seconds = summary_.seconds;
    if (out.count == 0) {
      ++summary_.empty;
      return;
    }
    summary_.requests += out.count;
    summary_.with_ttl += out.ttl > 0 ? out.count : 0;
    to_(out);
  }

  /// False: an operation that no store has.
  bool value(Field field, Text text, CacheRequest& out) {
    switch (field) {
      case Field::unused:
        break;
      case Field::time: {
        const auto seconds = real(text);
        if (!seconds || *seconds < 0) lines_.bad(shown(text), "a time in s");
        if (!clock_.at(*seconds))
          lines_.bad(shown(text), "a time in s, at most a hundred years after the first");
        break;
      }
      case Field::key:
        if (text.empty()) lines_.bad("no key", "one in each row");
        out.key = identity(text);
        if (!summary_.key_sizes)
          out.key_bytes =
              static_cast<std::uint16_t>(std::min<std::uint64_t>(text.size(), longest_key));
        break;
      case Field::size:
        out.value_bytes =
            bytes(text, std::numeric_limits<std::uint32_t>::max(), "an object's size");
        break;
      case Field::key_size:
        out.key_bytes = static_cast<std::uint16_t>(bytes(text, longest_key, "a key's size"));
        break;
      case Field::op:
        if (const auto operation = operation_of(text)) {
          out.operation = *operation;
          break;
        }
        if (summary_.unknown++ == 0) summary_.unknown_name = text.substr(0, 40);
        return false;
      case Field::ttl:
        out.ttl = text.empty() ? 0
                               : bytes(text, std::numeric_limits<std::uint32_t>::max(),
                                       "a time to live in s");
        break;
      case Field::count:
        out.count = bytes(text, most_alike, "a number of requests");
        break;
    }
    return true;
  }

  std::uint32_t bytes(Text text, std::uint64_t most, const std::string& what) const {
    drop_zeros(text);
    const auto found = number<std::uint64_t>(text);
    if (!found || *found > most) lines_.bad(shown(text), what + ", 0 to " + std::to_string(most));
    return static_cast<std::uint32_t>(*found);
  }

  Lines& lines_;
  RequestSummary& summary_;
  const std::function<void(const CacheRequest&)>& to_;
  Clock clock_;
  std::vector<Field> columns_;
  char separator_ = ',';
};

constexpr std::size_t record_bytes = 24;

template <typename T>
T at(const char* record, std::size_t offset) {
  T value{};
  std::memcpy(&value, record + offset, sizeof value);
  return value;
}

void oracle_general(const ImportSource& source, const std::string& name, RequestSummary& summary,
                    const std::function<void(const CacheRequest&)>& to) {
  summary.layout = "oracleGeneral";
  Clock clock{summary};
  std::vector<char> buffer(record_bytes * 4096);
  std::size_t held = 0;
  for (;;) {
    const std::size_t got = source(buffer.data() + held, buffer.size() - held);
    held += got;
    const std::size_t whole = held / record_bytes * record_bytes;
    for (std::size_t i = 0; i < whole; i += record_bytes) {
      const char* const record = buffer.data() + i;
      ++summary.lines;
      const auto next = at<std::int64_t>(record, 16);
      constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
      if (next != -1 && next != none && (next < 0 || next >= std::int64_t{1} << 48))
        throw ImportError(name + ": record " + std::to_string(summary.lines) + ": found " +
                          std::to_string(next) +
                          " as the number of the object's next request, expected -1 or one below "
                          "2^48: this is no oracleGeneral trace");
      (void)clock.at(at<std::uint32_t>(record, 0));  // 32 bits are within a hundred years or so
      CacheRequest out;
      out.key = mix64(at<std::uint64_t>(record, 4));
      out.seconds = summary.seconds;
      out.value_bytes = at<std::uint32_t>(record, 12);
      out.key_bytes = number_bytes;
      ++summary.requests;
      to(out);
    }
    std::memmove(buffer.data(), buffer.data() + whole, held - whole);
    held -= whole;
    if (got > 0) continue;
    if (held > 0)
      throw ImportError(name + ": " + std::to_string(held) + " bytes after record " +
                        std::to_string(summary.lines) + ", expected 24: the file is cut off");
    return;
  }
}

}  // namespace

void read_requests(const ImportSource& source, const std::string& name, const std::string& columns,
                   RequestSummary& summary, const std::function<void(const CacheRequest&)>& to) {
  summary = {};
  // Text has no zero bytes; a binary record has some: sizes and times do not fill their 32 bits.
  std::array<char, record_bytes> head{};
  std::size_t held = 0;
  while (held < head.size()) {
    const std::size_t got = source(head.data() + held, head.size() - held);
    if (got == 0) break;
    held += got;
  }
  std::size_t given = 0;
  const ImportSource whole = [&](char* buffer, std::size_t size) {
    if (given == held) return source(buffer, size);
    const std::size_t count = std::min(size, held - given);
    std::memcpy(buffer, head.data() + given, count);
    given += count;
    return count;
  };
  if (std::memchr(head.data(), 0, held) != nullptr) {
    if (!columns.empty())
      throw ImportError(name + ": binary records, which have no columns; leave out --columns");
    oracle_general(whole, name, summary, to);
  } else {
    Lines lines{whole, name};
    Table{lines, summary, to}.run(columns);
  }
  if (summary.requests == 0)
    throw ImportError(name + ": no request in " + std::to_string(summary.lines) + " lines" +
                      (summary.unknown > 0 ? ", of which " + std::to_string(summary.unknown) +
                                                 " have an operation that no store has, such as " +
                                                 shown(summary.unknown_name) +
                                                 " (--columns without op takes all for look-ups)"
                                           : ""));
}

}  // namespace tt::record
