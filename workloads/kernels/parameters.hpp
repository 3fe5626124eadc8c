// SPDX-License-Identifier: MIT

// What every kernel needs of its request: checked parameter values, recorder options, progress.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernel.hpp"

namespace tt::kernels {

/// Reads a complete set of parameters; every complaint (std::invalid_argument) names the workload,
/// the parameter, what was found and what is allowed.
class ParameterReader {
 public:
  explicit ParameterReader(const RecordRequest& request) : request_(request) {}

  /// A number in [min, max].
  [[nodiscard]] double number(std::string_view name, double min = 0,
                              double max = std::numeric_limits<double>::max()) const {
    const Value& value = at(name);
    const auto* whole = std::get_if<std::int64_t>(&value);
    const double number = whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value);
    require(number >= min && number <= max, name,
            "found " + text(number) + ", allowed " + text(min) + " to " +
                (max == std::numeric_limits<double>::max() ? "any" : text(max)));
    return number;
  }
  /// A number above 0.
  [[nodiscard]] double positive(std::string_view name) const {
    const double value = number(name);
    require(value > 0, name, "found 0, allowed are numbers above it");
    return value;
  }
  [[nodiscard]] const std::vector<double>& list(std::string_view name) const {
    return std::get<std::vector<double>>(at(name));
  }
  [[nodiscard]] bool flag(std::string_view name) const { return std::get<bool>(at(name)); }
  [[nodiscard]] const std::string& text_value(std::string_view name) const {
    return std::get<std::string>(at(name));
  }
  void require(bool holds, std::string_view name, const std::string& complaint) const {
    if (!holds)
      throw std::invalid_argument(request_.workload + ": parameter " + std::string(name) + ": " +
                                  complaint);
  }

  /// The shortest usual rendering: 5, 0.25, 1e-06.
  [[nodiscard]] static std::string text(double value);

 private:
  [[nodiscard]] const Value& at(std::string_view name) const {
    return request_.parameters.find(name)->second;
  }
  const RecordRequest& request_;
};

inline ParameterDecl block_ms_parameter(double initial) {
  return {"block_ms", initial, "ms", "nominal length of a block; results hardly depend on it"};
}

/// Description and recorder options that follow from the request.
[[nodiscard]] trace::StreamInfo describe(const RecordRequest& request);
[[nodiscard]] trace::RecorderOptions recorder_options(const RecordRequest& request);

/// Reports the fraction done now and then; throws StreamInterrupted when asked to stop.
class Progress {
 public:
  explicit Progress(const RecordRequest& request) : report_(request.progress) {}
  void at(double fraction) {
    if (fraction < next_) return;
    next_ = fraction + 0.005;
    if (report_ && !report_(std::min(fraction, 1.0))) throw StreamInterrupted{};
  }

 private:
  const std::function<bool(double)>& report_;
  double next_ = 0;
};

}  // namespace tt::kernels
