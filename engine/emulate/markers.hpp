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

/// The marker that this code is; 0 for other code.
[[nodiscard]] inline std::uint8_t marker_of(const std::uint8_t* code, unsigned bytes) {
  const bool is = bytes == 7 && code[0] == 0x0f && code[1] == 0x1f && code[2] == 0x80 &&
                  code[4] == 0 && code[5] == 0x54 && code[6] == 0x54;
  return is ? code[3] : 0;
}

}  // namespace tt::emulate
