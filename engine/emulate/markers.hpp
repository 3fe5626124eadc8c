// SPDX-License-Identifier: MIT

// Markers: instructions that do nothing, by which a program in the emulated machine tells the
// machine something. On other machines they are nothing.
#pragma once

#include <cstdint>

namespace tt::emulate {

enum class Marker : std::uint8_t {
  instrument = 1,     // from now on memory takes its time
  uninstrument = 2,   // and no longer
  begin = 3,          // of the timed part: counters begin at 0
  end = 4,            // of the timed part: counters are reported
  own_processor = 5,  // this process runs on a processor that is not the workload's
  classes = 6,        // RSI: address of a ToldClass for each of most_classes
  compute = 7,        // RSI: nanoseconds that the processor would have computed
  // From here on: accesses of this program are of class number - first_class.
  first_class = 32,
};
/// Classes of accesses that a program may have.
inline constexpr std::uint32_t most_classes = 16;

/// What a program knows of its accesses of one class (trace/stream.hpp). Its instructions take no time
/// then, but for what it tells of its computation.
struct ToldClass {
  std::uint64_t overlap = 0;   // misses that are outstanding together, in thousandths; 0: unknown
  std::uint64_t issue_ps = 0;  // what a load takes at least
};

/// nopl 0x545400NN(%rax), where NN is the marker.
template <Marker marker>
inline void mark() {
#if defined(__x86_64__)
  __asm__ volatile(".byte 0x0f, 0x1f, 0x80, %c0, 0x00, 0x54, 0x54"
                   :
                   : "i"(static_cast<int>(marker))
                   : "memory");
#endif
}

/// The same, with a number in RSI.
template <Marker marker>
inline void mark_with(std::uint64_t number) {
#if defined(__x86_64__)
  __asm__ volatile(".byte 0x0f, 0x1f, 0x80, %c0, 0x00, 0x54, 0x54"
                   :
                   : "i"(static_cast<int>(marker)), "S"(number)
                   : "memory");
#else
  static_cast<void>(number);
#endif
}

/// Accesses are of this class from now on: of `most_classes`.
inline void mark_class(std::uint32_t number) {
  constexpr auto marker = [](int of) {
    return static_cast<Marker>(static_cast<int>(Marker::first_class) + of);
  };
  switch (number) {
    case 0:
      return mark<marker(0)>();
    case 1:
      return mark<marker(1)>();
    case 2:
      return mark<marker(2)>();
    case 3:
      return mark<marker(3)>();
    case 4:
      return mark<marker(4)>();
    case 5:
      return mark<marker(5)>();
    case 6:
      return mark<marker(6)>();
    case 7:
      return mark<marker(7)>();
    case 8:
      return mark<marker(8)>();
    case 9:
      return mark<marker(9)>();
    case 10:
      return mark<marker(10)>();
    case 11:
      return mark<marker(11)>();
    case 12:
      return mark<marker(12)>();
    case 13:
      return mark<marker(13)>();
    case 14:
      return mark<marker(14)>();
    default:
      return mark<marker(15)>();
  }
}

/// An access of the workload, by a program that tells its classes: the segment prefix, which does
/// nothing in 64-bit code, tells it from the program's own.
inline constexpr std::uint8_t access_prefix = 0x3e;
inline void workload_load(const void* at) {
#if defined(__x86_64__)
  std::uint64_t word;
  __asm__ volatile(".byte %c2\n\tmovq (%1), %0" : "=r"(word) : "r"(at), "i"(int{access_prefix}));
#else
  static_cast<void>(*static_cast<const volatile std::uint64_t*>(at));
#endif
}
inline void workload_store(void* at, std::uint64_t word) {
#if defined(__x86_64__)
  __asm__ volatile(".byte %c2\n\tmovq %1, (%0)"
                   :
                   : "r"(at), "r"(word), "i"(int{access_prefix})
                   : "memory");
#else
  *static_cast<volatile std::uint64_t*>(at) = word;
#endif
}

/// The marker that this code is; 0 for other code.
[[nodiscard]] inline std::uint8_t marker_of(const std::uint8_t* code, unsigned bytes) {
  const bool is = bytes == 7 && code[0] == 0x0f && code[1] == 0x1f && code[2] == 0x80 &&
                  code[4] == 0 && code[5] == 0x54 && code[6] == 0x54;
  return is ? code[3] : 0;
}

}  // namespace tt::emulate
