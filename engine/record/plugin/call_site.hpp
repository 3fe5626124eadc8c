// SPDX-License-Identifier: MIT

// Call sites: which part of the program asked for memory.
//
// The emulator's interface shows no registers, but the return address that a `call` pushes is a
// store: so the top of the stack is known, and a walk up the stack finds the first return address
// outside of the C and C++ libraries. A heuristic: a stale word may look like one.
#pragma once

#include <string>

#include "record/plugin/guest.hpp"

namespace tt::record {

/// "libx.so+0x1234", or "anonymous" where the stack tells nothing.
std::string call_site(const GuestThread& thread);

}  // namespace tt::record
