// SPDX-License-Identifier: MIT

// Figures that no machine has are refused before anything runs, by their names.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "check.hpp"
#include "scripted.hpp"
#include "sim/estimates.hpp"
#include "sim/limits.hpp"
#include "sim_streams.hpp"

namespace {

using namespace tt::sim;

std::vector<std::string> names(const MachineProfile& machine) {
  std::vector<std::string> found;
  for (const Problem& problem : problems(machine)) found.push_back(problem.name);
  return found;
}

TEST("sim: every estimate is bounded on both sides") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(names(simtest::full_machine()).empty());
  for (const Estimate& estimate : estimates())
    for (const double value : {-1.0, 1e300, infinity, -infinity, nan}) {
      MachineProfile machine = simtest::full_machine();
      estimate.field(machine) = value;
      CHECK(names(machine) == std::vector<std::string>{std::string(estimate.name)});
    }
}

TEST("sim: a figure outside its limits is named with them") {
  MachineProfile machine = simtest::full_machine();
  machine.huge_page_gain = 1;
  machine.tiers[1].latency_ns = 0;
  const auto found = problems(machine);
  CHECK(found.size() == 2);
  CHECK(found[0].name == "slow.latency_ns" && found[0].wanted == "must be from 0.001 to 1e+09");
  CHECK(found[1].name == "tiering.huge_page_gain");
  CHECK(found[1].wanted == "must be at least 0 and below 1");
}

}  // namespace
