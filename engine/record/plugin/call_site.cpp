// SPDX-License-Identifier: MIT

#include "record/plugin/call_site.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>

namespace tt::record {
namespace {

/// Libraries through which programs ask for memory: the caller of interest is behind them.
bool is_runtime(std::string_view name) {
  for (const std::string_view prefix : {"libc.so", "libc-", "ld-linux", "libstdc++", "libgcc_s",
                                        "libpthread", "libjemalloc", "libtcmalloc", "libmimalloc"})
    if (name.starts_with(prefix)) return true;
  return false;
}

}  // namespace

std::string call_site(const GuestThread& thread) {
  const auto frames = thread.calls.frames();
  std::string runtime;
  std::uint64_t end = 0;  // of the stack that it runs on: coroutines have others
  for (std::size_t i = frames.size(); i-- > 0;) {
    if (end == 0) end = guest->observer->mapping_end(frames[i].at);
    if (frames[i].at >= end) break;
    const auto [name, offset, code, shared] = guest->observer->place(frames[i].returns);
    if (!code) continue;
    char text[32];
    std::snprintf(text, sizeof(text), "+0x%llx", static_cast<unsigned long long>(offset));
    if (!is_runtime(name)) return name + text;
    if (runtime.empty()) runtime = name;
  }
  return runtime.empty() ? "anonymous" : runtime;
}

}  // namespace tt::record
