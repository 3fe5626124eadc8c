// SPDX-License-Identifier: MIT

#include "live/access_source.hpp"

#include <optional>
#include <stdexcept>
#include <utility>

#include "live/damon_source.hpp"
#include "live/emulated_samples.hpp"
#include "live/mover.hpp"
#include "live/perf_samples.hpp"
#include "live/pmu.hpp"

namespace tt::live {

namespace {

std::unique_ptr<AccessSource> sampling(std::string_view name, KernelCalls& kernel) {
  std::optional<Pmu> pmu = name == "pebs"  ? find_pebs(kernel, memory_cycles)
                           : name == "ibs" ? find_ibs(kernel, true)
                           : name == "spe" ? find_spe(kernel, true)
                                           : find_hints(kernel);
  return std::make_unique<PerfSamples>(kernel, std::move(pmu.value()), PerfSamples::Options{});
}

}  // namespace

std::unique_ptr<AccessSource> make_source(std::string_view name, KernelCalls& kernel,
                                          Changes& changes, const Damon::Options& damon,
                                          std::uint64_t seed) {
  if (name == "auto" || name == "emulated") {
    FoundRing found = find_emulated_ring(kernel, changes);
    if (found.ring)
      return std::make_unique<EmulatedSamples>(std::move(found.ring), EmulatedSamples::Options{});
    if (name == "emulated") throw NotAllowed("emulated: " + found.missing);
  }
  for (const std::string_view each : {"pebs", "ibs", "spe", "hints"}) {
    if (name != each && (name != "auto" || each == "hints")) continue;
    const std::string missing = lacking(kernel, each);
    if (missing.empty()) return sampling(each, kernel);
    if (name == each) throw NotAllowed(std::string{each} + ": " + missing);
  }
  if (name == "auto" || name == "damon")
    return std::make_unique<DamonSource>(kernel, changes, damon, seed);
  std::string known;
  for (const std::string_view each : source_names)
    known += (known.empty() ? "" : ", ") + std::string{each};
  throw std::invalid_argument("unknown source " + std::string{name} + "; known: " + known);
}

}  // namespace tt::live
