// What every kernel has to keep, whatever it computes.
#pragma once

#include <string_view>
#include <utility>

#include "check.hpp"
#include "kernels/kernel.hpp"
#include "scratch.hpp"

namespace check {

/// The same seed gives the same bytes, another seed others. `request.file` is not used.
inline void seed_decides(std::string_view kernel, tt::kernels::RecordRequest request) {
  const Scratch scratch;
  const auto bytes = [&](const char* name, std::uint64_t seed) {
    request.file = scratch.file(name);
    request.seed = seed;
    (void)tt::kernels::record(kernel, request);
    return bytes_of(request.file);
  };
  const std::uint64_t seed = request.seed;
  const auto first = bytes("a.tts", seed);
  CHECK(first == bytes("b.tts", seed));
  CHECK(first != bytes("c.tts", seed + 1));
}

}  // namespace check
