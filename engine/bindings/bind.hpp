// What the parts of the Python module add to it.
#pragma once

#include <nanobind/nanobind.h>

namespace tt {
void bind_perf(nanobind::module_& m);
}  // namespace tt
