// SPDX-License-Identifier: MIT

// Runs a test's body once under each instruction set that the processor has.
#pragma once

#include <string>

#include "check.hpp"
#include "core/isa.hpp"

namespace check {

template <typename Body>
void on_each_isa(Body body) {
  for (const tt::Isa isa : tt::supported_isas()) {
    const tt::IsaScope scope(isa);
    const int before = failures();
    body();
    if (failures() != before)
      fail(__FILE__, __LINE__, "under instruction set " + std::string(tt::name(isa)));
  }
}

}  // namespace check
