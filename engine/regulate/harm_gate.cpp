// SPDX-License-Identifier: MIT

#include "regulate/harm_gate.hpp"

#include <string>

namespace tt::regulate {

HarmGate::HarmGate(const Knobs& knobs, double fast_pages)
    : HarmGate({.window = from_millis(knobs.real("gate_window")),
                .band = knobs.real("gate_band"),
                .patience = static_cast<unsigned>(knobs.integer("gate_patience")),
                .promotions = knobs.real("gate_promotions") * fast_pages,
                .pause = from_millis(knobs.real("gate_pause"))}) {}

std::vector<KnobDecl> gate_knobs(const std::string& parent) {
  using namespace knob;
  return list(
      real("gate_window", 5000, {100, 600000, log}, milliseconds, "ours",
           "time over which the fast tier's share of loads is taken")
          .when(parent),
      real("gate_band", 0.005, {0, 0.5}, ratio, "ours", "change of this share that counts")
          .when(parent),
      integer("gate_patience", 3, {1, 1000}, none, "ours",
              "windows with promotions but without a rise of the share until promotion stops")
          .when(parent),
      real("gate_promotions", 0.02, {0, 1}, ratio, "ours",
           "promotions in a window that do no harm, as a share of the fast tier's pages")
          .when(parent),
      real("gate_pause", 30000, {100, 3.6e6, log}, milliseconds, "ours",
           "time until promotion is tried again; doubled after each try in vain")
          .when(parent));
}

}  // namespace tt::regulate
