// SPDX-License-Identifier: MIT

// Kernels by name, and what is checked before any of them runs.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "kernels/kernel.hpp"
#include "kernels/parameters.hpp"

namespace tt::kernels {
namespace {

// Constructed on first use: registration runs before main, in no order.
std::vector<KernelInfo>& all() {
  static std::vector<KernelInfo> list;
  return list;
}

constexpr std::array<const char*, 5> type_names = {"true or false", "an integer", "a number",
                                                   "text", "a list of numbers"};

std::string text_of(const Value& value) {
  struct Text {
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::int64_t number) const { return std::to_string(number); }
    std::string operator()(double number) const { return ParameterReader::text(number); }
    std::string operator()(const std::string& text) const { return "'" + text + "'"; }
    std::string operator()(const std::vector<double>& list) const {
      std::string out = "[";
      for (const double number : list)
        out += (out.size() > 1 ? ", " : "") + ParameterReader::text(number);
      return out + "]";
    }
  };
  return std::visit(Text{}, value);
}

/// `value` as the type of the declared default; integers and whole reals stand for each other.
Value converted(const std::string& where, const ParameterDecl& declared, Value value) {
  const bool wants_real = std::holds_alternative<double>(declared.initial);
  if (const auto* whole = std::get_if<std::int64_t>(&value); whole != nullptr && wants_real)
    value = static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&value);
      real != nullptr && std::holds_alternative<std::int64_t>(declared.initial) &&
      *real == std::floor(*real) && std::abs(*real) < 0x1p53)
    value = static_cast<std::int64_t>(*real);
  const auto finite = [](double number) { return std::isfinite(number); };
  const auto* real = std::get_if<double>(&value);
  const auto* list = std::get_if<std::vector<double>>(&value);
  if (value.index() != declared.initial.index() || (real != nullptr && !finite(*real)) ||
      (list != nullptr && !std::ranges::all_of(*list, finite)))
    throw std::invalid_argument(where + "parameter " + declared.name + ": found " + text_of(value) +
                                ", expected " + type_names.at(declared.initial.index()));
  return value;
}

}  // namespace

RegisterKernel::RegisterKernel(KernelInfo info, std::source_location here) {
  info.file = std::filesystem::path{here.file_name()}.stem().string();
  auto& list = all();
  const auto at =
      std::ranges::find_if(list, [&](const KernelInfo& other) { return info.name < other.name; });
  list.insert(at, std::move(info));
}

std::span<const KernelInfo> kernels() { return all(); }

trace::StreamInfo record(std::string_view kernel, RecordRequest request) {
  std::string known;
  for (const KernelInfo& info : all()) {
    known += (known.empty() ? "" : ", ") + info.name;
    if (info.name != kernel) continue;
    if (request.workload.empty()) request.workload = info.name;
    const std::string where = request.workload + ": ";
    const auto positive = [&](double value, const char* what) {
      if (!(std::isfinite(value) && value > 0))
        throw std::invalid_argument(where + what + ": found " + ParameterReader::text(value) +
                                    ", expected a number above 0");
    };
    positive(request.scale, "scale");
    positive(request.threads, "threads");
    positive(request.llc_bytes, "cache bytes");
    Parameters complete;
    for (const ParameterDecl& declared : info.parameters) {
      auto given = request.parameters.extract(declared.name);
      complete.emplace(declared.name, given.empty()
                                          ? declared.initial
                                          : converted(where, declared, std::move(given.mapped())));
    }
    if (!request.parameters.empty()) {
      std::string names;
      for (const ParameterDecl& declared : info.parameters)
        names += (names.empty() ? "" : ", ") + declared.name;
      throw std::invalid_argument(where + "kernel " + info.name + " has no parameter " +
                                  request.parameters.begin()->first + "; it has " + names);
    }
    request.parameters = std::move(complete);
    return info.record(request);
  }
  throw std::invalid_argument("unknown kernel " + std::string(kernel) + "; known: " + known);
}

std::string ParameterReader::text(double value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  return {digits.data(), end.ptr};
}

trace::StreamInfo describe(const RecordRequest& request) {
  trace::StreamInfo info;
  info.workload = request.workload;
  info.input = request.input;
  info.seed = request.seed;
  info.scale = request.scale;
  info.page_bytes = request.page_bytes;
  for (const auto& [name, value] : request.parameters)
    info.parameters += name + "=" + text_of(value) + " ";
  info.parameters += "threads=" + ParameterReader::text(request.threads) +
                     " llc_bytes=" + ParameterReader::text(request.llc_bytes);
  return info;
}

trace::RecorderOptions recorder_options(const RecordRequest& request) {
  trace::RecorderOptions options;
  options.scale = request.scale;
  options.llc_bytes = static_cast<std::uint64_t>(request.llc_bytes);
  options.block_ms = ParameterReader{request}.positive("block_ms");
  options.threads = request.threads;
  options.seed = request.seed;
  return options;
}

}  // namespace tt::kernels
