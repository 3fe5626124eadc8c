// SPDX-License-Identifier: MIT

// What each part of the Python module adds to it: a file per subject, and convert.hpp for what they
// share.
#pragma once

#include <nanobind/nanobind.h>

namespace tt {
void bind_policies(nanobind::module_& m);    // declarations of policies and their knobs
void bind_kernels(nanobind::module_& m);     // workload kernels and the streams that they make
void bind_streams(nanobind::module_& m);     // what is in a stream
void bind_recordings(nanobind::module_& m);  // streams of real programs: spools and imported traces
void bind_perf(nanobind::module_& m);        // recording by perf events
void bind_simulation(nanobind::module_& m);  // replaying a stream on a simulated machine
}  // namespace tt
