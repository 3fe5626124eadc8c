// SPDX-License-Identifier: MIT

#include "core/isa.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace tt {
namespace {

constexpr std::array all = {Isa::portable, Isa::avx2, Isa::avx512};

bool runs(Isa isa) {
#if defined(TT_X86_VARIANTS)
  switch (isa) {
    case Isa::portable:
      return true;
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") != 0;
    case Isa::avx512:
      return runs(Isa::avx2) && __builtin_cpu_supports("avx512f") != 0 &&
             __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512cd") != 0 &&
             __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  }
  return false;
#else
  return isa == Isa::portable;
#endif
}

std::string names(std::span<const Isa> isas) {
  std::string text;
  for (const Isa isa : isas) text += (text.empty() ? "" : ", ") + std::string(name(isa));
  return text;
}

}  // namespace

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return "portable";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  return "unknown";
}

std::span<const Isa> supported_isas() {
  // Each includes those before it, so the supported ones come first.
  static const auto count =
      static_cast<std::size_t>(std::ranges::find_if_not(all, runs) - all.begin());
  return std::span(all).first(count);
}

namespace detail {

std::atomic<Isa> isa_in_use{isa_unset};

Isa choose_isa() {
  const std::span<const Isa> supported = supported_isas();
  Isa chosen = supported.back();
  if (const char* wanted = std::getenv("TIERTUNE_ISA"); wanted != nullptr && *wanted != '\0') {
    const auto found = std::ranges::find(supported, std::string_view(wanted), name);
    if (found == supported.end())
      throw std::invalid_argument("TIERTUNE_ISA: found '" + std::string(wanted) +
                                  "', this processor runs " + names(supported));
    chosen = *found;
  }
  isa_in_use = chosen;
  return chosen;
}

}  // namespace detail

IsaScope::IsaScope(Isa isa) : before_(tt::isa()) {
  if (std::ranges::find(supported_isas(), isa) == supported_isas().end())
    throw std::invalid_argument("this processor does not run " + std::string(name(isa)));
  detail::isa_in_use = isa;
}

}  // namespace tt
