// SPDX-License-Identifier: MIT

// System calls of the program: what they map, free and discard, the buffers that the kernel fills
// or reads for them, where threads wait, and programs that they execute.
#pragma once

#include <cstdint>

#include "record/plugin/qemu.hpp"

namespace tt::record {

// Callbacks of the emulator, before and after a system call.
void on_syscall(qemu_plugin_id_t id, unsigned vcpu, std::int64_t number, std::uint64_t a,
                std::uint64_t b, std::uint64_t c, std::uint64_t d, std::uint64_t e, std::uint64_t f,
                std::uint64_t g, std::uint64_t h);
void on_return(qemu_plugin_id_t id, unsigned vcpu, std::int64_t number, std::int64_t result);

}  // namespace tt::record
