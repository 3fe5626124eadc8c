// SPDX-License-Identifier: MIT

// Which instruction set the hot loops use.
//
// One build runs on every processor: all code is compiled for the architecture's baseline, and the
// few loops that gain from wider instructions have variants of their own, chosen at run time. All
// variants of a loop give the same bytes.
//
// A variant is a function with a target attribute, never a file with its own -m flags: an inline
// function of the standard library compiled there could be the copy that the linker keeps.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>

#if defined(__x86_64__)
#define TT_X86_VARIANTS 1
#endif

namespace tt {

/// From the least to the most capable; each includes what is before it.
enum class Isa : std::uint8_t {
  portable,  // the architecture's baseline
  avx2,      // x86-64-v3
  avx512,    // x86-64-v4: F, BW, CD, DQ and VL
};

[[nodiscard]] std::string_view name(Isa isa);

/// The variants that this processor runs, `portable` first.
[[nodiscard]] std::span<const Isa> supported_isas();

namespace detail {
inline constexpr auto isa_unset = static_cast<Isa>(0xff);
extern std::atomic<Isa> isa_in_use;
Isa choose_isa();
}  // namespace detail

/// The variant in use: what the environment variable TIERTUNE_ISA names, else the most capable one
/// that the processor runs. Throws std::invalid_argument when the variable names none of them.
[[nodiscard]] inline Isa isa() {
  const Isa now = detail::isa_in_use.load(std::memory_order_relaxed);
  return now == detail::isa_unset ? detail::choose_isa() : now;
}

/// Uses another variant while it lives, in all threads: for tests and benchmarks. Throws
/// std::invalid_argument when the processor does not run it.
class IsaScope {
 public:
  explicit IsaScope(Isa isa);
  ~IsaScope() { detail::isa_in_use = before_; }
  IsaScope(const IsaScope&) = delete;
  IsaScope& operator=(const IsaScope&) = delete;

 private:
  Isa before_;
};

}  // namespace tt
