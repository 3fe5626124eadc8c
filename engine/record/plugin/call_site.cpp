// SPDX-License-Identifier: MIT

#include "record/plugin/call_site.hpp"

#include <algorithm>
#include <array>
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

/// What looks like a return address: an instruction that calls ends right before it.
bool follows_call(std::uint64_t address) {
  std::uint8_t code[7];
  if (peek(address - sizeof(code), code, sizeof(code)) != sizeof(code)) return false;
  const std::uint8_t* const end = code + sizeof(code);
  if (end[-5] == 0xe8) return true;
  for (int length = 2; length <= 7; ++length)
    if (end[-length] == 0xff && (end[-length + 1] >> 3 & 7) == 2) return true;
  return false;
}

}  // namespace

std::string call_site(const GuestThread& thread) {
  std::array<std::uint64_t, 512> words;
  const std::uint64_t top = thread.stack & ~std::uint64_t{7};
  const std::uint64_t end = guest->observer->mapping_end(top);
  const std::size_t bytes = peek(top, words.data(), std::min(sizeof(words), end - top));
  std::string runtime;
  for (std::size_t i = 0; end > top && i < bytes / sizeof(words[0]); ++i) {
    const std::uint64_t address = words[i];
    if (address < 4096 || address >> 47 != 0) continue;
    const auto [name, offset, code, shared] = guest->observer->place(address);
    if (!code || !follows_call(address)) continue;
    char text[32];
    std::snprintf(text, sizeof(text), "+0x%llx", static_cast<unsigned long long>(offset));
    if (!is_runtime(name)) return name + text;
    if (runtime.empty()) runtime = name;
  }
  return runtime.empty() ? "anonymous" : runtime;
}

}  // namespace tt::record
