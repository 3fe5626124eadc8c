// SPDX-License-Identifier: MIT

#include "trace/kept_reader.hpp"

#include <mutex>

#include "trace/mapping.hpp"

namespace tt::trace {

std::shared_ptr<const Reader> kept_reader(const std::filesystem::path& file,
                                          std::chrono::system_clock::time_point now) {
  // A change within the clock tick of the last one would leave the same stamp.
  constexpr std::chrono::seconds longest_tick{1};
  static std::mutex mutex;
  static std::shared_ptr<const Reader> kept;
  const std::scoped_lock lock{mutex};
  if (kept) {
    const Mapping& mapping = kept->mapping();
    if (mapping.file() == file && mapping.stamp() == stamp_of(file) && !mapping.lost()) return kept;
    kept.reset();
  }
  auto reader = std::make_shared<const Reader>(file);
  const std::chrono::nanoseconds changed{reader->mapping().stamp().changed_ns};
  if (now.time_since_epoch() - changed > longest_tick) kept = reader;
  return reader;
}

}  // namespace tt::trace
