// SPDX-License-Identifier: MIT

// Conversions between Python's plain data and the engine's types, for several parts of the module.
#pragma once

#include <nanobind/nanobind.h>

#include "core/knob.hpp"
#include "trace/stream.hpp"

namespace tt::bindings {

[[nodiscard]] nanobind::object to_python(const KnobValue& value);
[[nodiscard]] nanobind::dict to_python(const trace::StreamInfo& info);
/// ValueError for a value that no knob can have.
[[nodiscard]] KnobMap to_knobs(const nanobind::dict& given);

}  // namespace tt::bindings
