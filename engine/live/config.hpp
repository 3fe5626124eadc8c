// SPDX-License-Identifier: MIT

// Config: what a live engine takes from a study's best.yaml: the policy, its knobs, and the build
// that measured them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/knob.hpp"
#include "core/registry.hpp"

namespace tt::live {

struct Config {
  std::string policy;
  KnobMap knobs;
  std::uint64_t page_bytes = 0;  // of a managed page, as it was tuned; 0: not said
  std::string engine_build;      // "POLICIES-SIMULATOR"; empty: not said
};

/// The text of a best.yaml as the tuner writes it: mappings in block style, scalars on one line.
/// What is not needed is passed over. std::runtime_error "line N: KEY: found ..., allowed ..." for
/// anything else, and for an unknown policy or knob, or a value that its knob may not have.
[[nodiscard]] Config read_config(std::string_view text);

/// A value as it is written in YAML or on a command line. std::runtime_error telling what was found
/// and what is allowed.
[[nodiscard]] KnobValue read_knob(const KnobDecl& knob, std::string_view text);

}  // namespace tt::live
