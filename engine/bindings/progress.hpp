// SPDX-License-Identifier: MIT

// Progress callbacks: how long runs of the engine tell Python how far they are, and stop when it
// asks to, on Ctrl-C or on an exception of the callback.
#pragma once

#include <nanobind/nanobind.h>

#include <functional>

namespace tt::bindings {

/// Calls `callback(fraction)` (None: nothing). It runs while the GIL is released, and takes it to
/// answer signals and for the call. It returns false to stop the engine; `failed` then says that a
/// Python exception is pending, which raise_stopped() raises. Both arguments must outlive it.
[[nodiscard]] std::function<bool(double)> progress_function(const nanobind::object& callback,
                                                            bool& failed);

/// What a stopped run raises: the pending Python exception, or KeyboardInterrupt where the callback
/// itself asked to stop.
[[noreturn]] void raise_stopped(bool failed);

}  // namespace tt::bindings
