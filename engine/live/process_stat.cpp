// SPDX-License-Identifier: MIT

#include "live/process_stat.hpp"

#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

#include "live/words.hpp"

namespace tt::live {

std::optional<ProcessStat> process_stat(KernelCalls& kernel, int pid) {
  std::string text;
  if (kernel.read("/proc/" + std::to_string(pid) + "/stat", text) != 0) return {};
  const std::size_t name_end = text.rfind(')');  // a name may hold anything
  if (name_end == std::string::npos) return {};
  std::vector<std::string_view> fields;  // from the third on
  each_part(std::string_view{text}.substr(name_end + 1), ' ',
            [&](std::string_view field) { fields.push_back(field); });
  if (fields.size() < 20 || fields[0] == "Z" || fields[0] == "X") return {};
  const auto parent = number<int>(fields[1]);
  const auto user = number<std::uint64_t>(fields[11]), system = number<std::uint64_t>(fields[12]);
  const auto started = number<std::uint64_t>(fields[19]);
  if (!parent || !user || !system || !started) return {};
  const auto hertz = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return ProcessStat{*parent, *started, from_seconds(static_cast<double>(*user + *system) / hertz)};
}

}  // namespace tt::live
