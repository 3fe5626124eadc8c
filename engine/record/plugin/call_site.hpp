// SPDX-License-Identifier: MIT

// Call sites: which part of the program asked for memory.
//
// The emulator's interface shows no registers, but the return address that a `call` pushes is a
// store, and a `ret` loads it: so the calls that have not returned are known (CallStack), and the
// innermost that was made outside of the C and C++ libraries is the site. The stack's own words do
// not tell: old return addresses lie in what a function has reserved and not written.
#pragma once

#include <string>

#include "record/plugin/guest.hpp"

namespace tt::record {

/// "libx.so+0x1234", or "anonymous" where the stack tells nothing.
std::string call_site(const GuestThread& thread);

}  // namespace tt::record
