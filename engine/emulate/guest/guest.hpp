// SPDX-License-Identifier: MIT

// What runs in the emulated machine beside the workload: tools of a few lines each, in one static
// program. Each prints a line of JSON, and throws std::runtime_error naming what is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace tt::emulate {

/// Arguments after the command's name.
using Words = std::vector<std::string>;

/// Where this kernel keeps what the plugin reads: its task switch, and fields of task_struct.
int offsets(const Words& words);
/// NODE MIB: takes and locks memory of a node until so much is free, and keeps it in the
/// background.
int fill(const Words& words);
/// NODE COMMAND...: becomes the command, whose memory comes from that node alone.
int bind(const Words& words);
/// NAME...: tasks of these names run as soon as they have something to do, before any program.
int at_once(const Words& words);
/// What memory and the kernel's own work cost here: see measure.cpp.
int measure(const Words& words);

/// A whole file of the kernel's, also of those whose size it does not tell.
std::string contents(const std::string& path);
/// errno as text, after what was tried.
[[noreturn]] void fail(const std::string& what);
std::uint64_t number(const std::string& text);
/// CLOCK_MONOTONIC, ns.
std::uint64_t now_ns();
/// From now on this process's new pages come from that node alone; below 0: from anywhere.
void bind_to(long node);
/// Zeroed when touched, in pages of 4 KiB.
char* pages(std::size_t bytes);
/// Bytes that are free on a node.
std::uint64_t free_bytes(const std::string& node);

}  // namespace tt::emulate
