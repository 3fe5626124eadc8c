// SPDX-License-Identifier: MIT

// What `tierd apply` would write on another machine. It is not in bind.hpp, which is part of what a
// trial's result depends on.
#pragma once

#include <nanobind/nanobind.h>

namespace tt {
void bind_server(nanobind::module_& m);
}  // namespace tt
