// SPDX-License-Identifier: MIT

// Kernel: a workload's real algorithm, reporting its loads and stores to a recorder.
//
// One file per family; each announces itself. Kernels know nothing of tiers and policies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trace/recorder.hpp"

namespace tt::kernels {

using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<double>>;
using Parameters = std::map<std::string, Value, std::less<>>;

/// A parameter of a kernel: full-scale values; the kernel divides populations by `scale` itself.
struct ParameterDecl {
  std::string name;
  Value initial;
  std::string unit;
  std::string meaning;
};

struct RecordRequest {
  std::string workload;
  std::string input;
  Parameters parameters;  // complete and checked
  double scale = 1;
  std::uint64_t page_bytes = trace::base_page_bytes;  // of the stream; or trace::huge_page_bytes
  double threads = 16;
  double llc_bytes = 24.0 * (1 << 20);
  std::uint64_t seed = 0;
  std::filesystem::path file;
  std::function<bool(double)>
      progress;  // fraction done; false asks to stop (StreamInterrupted is thrown)
};

struct KernelInfo {
  std::string name;
  std::string summary;
  std::vector<ParameterDecl> parameters;
  trace::StreamInfo (*record)(const RecordRequest&) = nullptr;
  std::string file;  // where it is registered, without folder and ending; filled in there
};

struct StreamInterrupted {};

[[nodiscard]] std::span<const KernelInfo> kernels();
/// Fills in defaults, checks names and types (std::invalid_argument), and records.
trace::StreamInfo record(std::string_view kernel, RecordRequest request);

class RegisterKernel {
 public:
  explicit RegisterKernel(KernelInfo info,
                          std::source_location here = std::source_location::current());
};

}  // namespace tt::kernels
