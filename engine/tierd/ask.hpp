// SPDX-License-Identifier: MIT

// What is asked of engines that run: they answer on sockets in the folder of changes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tt::live {

/// Of the process with this number.
[[nodiscard]] std::filesystem::path socket_of(const std::filesystem::path& folder, int pid);
/// Processes that have such a socket, whether they live or not.
[[nodiscard]] std::vector<int> engines(const std::filesystem::path& folder);

/// Prints what the engines say of themselves: all, or the one with this number. `form`: "text",
/// "json" or "prometheus". Returns the exit status: 1 if none answers.
int print_status(const std::filesystem::path& folder, int pid, std::string_view form);
/// Tells the engine with this number, or the only one, by a path such as "/stop". Returns the exit
/// status.
int tell(const std::filesystem::path& folder, int pid, const std::string& path);

}  // namespace tt::live
