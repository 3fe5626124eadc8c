// SPDX-License-Identifier: MIT

// The reader of the stream that a process replays again and again.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>

#include "trace/reader.hpp"

namespace tt::trace {

/// A reader that the process keeps until it is asked for another file, or this one has changed: the
/// next trial of a worker mostly replays the same stream, whose blocks then are mapped and checked.
[[nodiscard]] std::shared_ptr<const Reader> kept_reader(
    const std::filesystem::path& file,
    std::chrono::system_clock::time_point now = std::chrono::system_clock::now());

}  // namespace tt::trace
