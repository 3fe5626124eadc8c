// SPDX-License-Identifier: MIT

#include "live/damon_trace.hpp"

#include <linux/perf_event.h>

#include <charconv>
#include <stdexcept>
#include <utility>

#include "perf/records.hpp"

namespace tt::live {
namespace {

/// The number behind `name` up to the semicolon.
bool attribute(std::string_view line, std::string_view name, std::size_t& out) {
  const std::size_t at = line.find(name);
  if (at == std::string_view::npos) return false;
  const char* const begin = line.data() + at + name.size();
  const char* const end = line.data() + line.size();
  const auto [behind, error] = std::from_chars(begin, end, out);
  return error == std::errc{} && behind != end && *behind == ';';
}

using perf::get;

std::uint64_t field_value(std::span<const std::byte> raw, TraceFormat::Field field) {
  switch (field.size) {
    case 1:
      return get<std::uint8_t>(raw, field.offset);
    case 2:
      return get<std::uint16_t>(raw, field.offset);
    case 4:
      return get<std::uint32_t>(raw, field.offset);
    default:
      return get<std::uint64_t>(raw, field.offset);
  }
}

}  // namespace

TraceFormat::TraceFormat(std::string_view text) {
  bool has_id = false;
  for (std::size_t line_number = 1; !text.empty(); ++line_number) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    const auto wrong = [&] {
      return std::runtime_error("the format of a tracepoint: line " + std::to_string(line_number) +
                                ": found " + std::string(line.substr(0, 100)));
    };
    if (line.starts_with("ID: ")) {
      const char* const end = line.data() + line.size();
      const auto [at, error] = std::from_chars(line.data() + 4, end, id_);
      has_id = error == std::errc{} && at == end;
      if (!has_id) throw wrong();
      continue;
    }
    const std::size_t field = line.find("field:");
    if (field == std::string_view::npos) continue;
    const std::size_t end = line.find(';', field);
    if (end == std::string_view::npos) throw wrong();
    const std::string_view declared = line.substr(field, end - field);
    const std::string name{declared.substr(declared.find_last_of(" :") + 1)};
    Field found;
    if (!attribute(line, "offset:", found.offset) || !attribute(line, "size:", found.size))
      throw wrong();
    fields_[name] = found;
  }
  if (!has_id) throw std::runtime_error("the format of a tracepoint has no ID");
}

TraceFormat::Field TraceFormat::number(const std::string& name) const {
  const auto field = fields_.find(name);
  if (field == fields_.end())
    throw std::runtime_error("the tracepoint has no field " + name + " in this kernel");
  const std::size_t size = field->second.size;
  if (size != 1 && size != 2 && size != 4 && size != 8)
    throw std::runtime_error("the tracepoint's field " + name + " has " + std::to_string(size) +
                             " bytes in this kernel");
  return field->second;
}

const std::uint64_t DamonDecoder::sample_type = PERF_SAMPLE_TIME | PERF_SAMPLE_RAW;

DamonDecoder::DamonDecoder(const TraceFormat& format)
    : target_(format.number("target_id")),
      count_(format.number("nr_regions")),
      begin_(format.number("start")),
      end_(format.number("end")),
      accesses_(format.number("nr_accesses")),
      age_(format.number("age")) {}

std::size_t DamonDecoder::feed(std::span<const std::byte> bytes) {
  return perf::each_record(bytes, [this](const auto& header, auto body) {
    if (header.type == PERF_RECORD_SAMPLE) {
      const auto time = get<std::uint64_t>(body);
      const auto size = get<std::uint32_t>(body, 8);
      if (size > body.size() - 12)
        throw std::runtime_error("a tracepoint's record of " + std::to_string(size) +
                                 " bytes in a perf record of " + std::to_string(body.size()));
      region(time, body.subspan(12, size));
    } else if (header.type == PERF_RECORD_LOST) {
      lost_ += get<std::uint64_t>(body, 8);  // behind the event's number
      close();
    }
  });
}

/// Regions come in order of addresses, target by target.
void DamonDecoder::region(std::uint64_t time, std::span<const std::byte> raw) {
  const std::uint64_t target = field_value(raw, target_), count = field_value(raw, count_);
  const DamonRegion region{field_value(raw, begin_), field_value(raw, end_),
                           field_value(raw, accesses_), field_value(raw, age_)};
  if (region.begin >= region.end)
    throw std::runtime_error("a region of DAMON ends before it begins");
  const bool goes_on = !open_.regions.empty() && open_.target == target && expected_ == count &&
                       open_.regions.back().end <= region.begin;
  if (!goes_on) {
    close();
    open_.target = target;
    open_.time = time;
    expected_ = count;
  }
  open_.regions.push_back(region);
  if (open_.regions.size() == expected_) close();
}

void DamonDecoder::close() {
  if (open_.regions.empty()) return;
  open_.whole = open_.regions.size() == expected_;
  over_.push_back(std::exchange(open_, {}));
}

void DamonDecoder::forget() {
  over_.clear();
  open_ = {};
}

std::vector<DamonAggregation> DamonDecoder::take() { return std::exchange(over_, {}); }

}  // namespace tt::live
