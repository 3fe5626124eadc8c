// SPDX-License-Identifier: MIT

// Soar: Liu, Hadian, Xu, Li, "Tiered Memory Management Beyond Hotness", OSDI'25, §4: static
// placement of whole objects, ranked in one profiling run on fast memory.
//
// Paper: https://www.usenix.org/conference/osdi25/presentation/liu;
// artifact: https://github.com/MoatLab/SoarAlto
//
// Profiling (§4.1, §4.2) is regulate/profiling_run.hpp, placing (§4.3) is
// migrate/placement_plan.hpp and policy/placing.hpp. Nothing is ever promoted.
//
// Published: both algorithms, the period of a second, the sampling rate, L0, R_min and R_max (§6.8
// varies them), and a and b (the artifact). Inferred, and so noted where it stands: the paper's
// steps of F; what an object is, and which of them share a slot. Different: the paper demotes pages
// of the object that is split when a better one arrives. Here it never gets more than what is left
// for it, which the profile knows: no page moves at all.
#include "policy/placing.hpp"
#include "regulate/profiling_run.hpp"

namespace tt {
namespace {

constexpr auto sampling = "sampling_period";

std::unique_ptr<Policy> make_soar(const PolicyContext& context) {
  if (context.placement != nullptr) return std::make_unique<Placing>(context);
  return regulate::make_profiling_run(context.memory, context.knobs, sampling);
}

const RegisterPolicy soar_policy{{
    .name = "soar",
    .family = "static",
    .summary =
        "objects that hurt most in slow memory placed fast, by a profiling run; no migration",
    .citation = "Liu, Hadian, Xu, Li, Tiered Memory Management Beyond Hotness, OSDI 2025",
    .addresses = {"https://www.usenix.org/conference/osdi25/presentation/liu"},
    .knobs = regulate::profiling_knobs(sampling),
    .traits = {.migrates = false,
               .profiled = true,
               .needs = Need::samples | Need::sites | Need::placement,
               .placement = Granularity::page},
    .make = make_soar,
}};

}  // namespace
}  // namespace tt
