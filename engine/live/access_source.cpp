// SPDX-License-Identifier: MIT

#include "live/access_source.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "live/damon_source.hpp"
#include "live/emulated_samples.hpp"
#include "live/marked_writes.hpp"
#include "live/mover.hpp"
#include "live/perf_samples.hpp"
#include "live/pmu.hpp"
#include "live/written_pages.hpp"

namespace tt::live {

namespace {

std::unique_ptr<AccessSource> sampling(std::string_view name, KernelCalls& kernel) {
  std::optional<Pmu> pmu = name == "pebs"  ? find_pebs(kernel, memory_cycles)
                           : name == "ibs" ? find_ibs(kernel, true)
                           : name == "spe" ? find_spe(kernel, true)
                                           : find_hints(kernel);
  return std::make_unique<PerfSamples>(kernel, std::move(pmu.value()), PerfSamples::Options{});
}

std::invalid_argument unknown(const char* what, std::string_view name,
                              std::span<const std::string_view> known) {
  std::string all;
  for (const std::string_view each : known) all += (all.empty() ? "" : ", ") + std::string{each};
  return std::invalid_argument("unknown " + std::string{what} + " " + std::string{name} +
                               "; known: " + all);
}

std::unique_ptr<AccessSource> source_of(std::string_view name, KernelCalls& kernel,
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
  throw unknown("source", name, source_names);
}

}  // namespace

std::unique_ptr<AccessSource> make_source(std::string_view name, KernelCalls& kernel,
                                          Changes& changes, const Damon::Options& damon,
                                          std::uint64_t seed, std::string_view writes) {
  if (std::ranges::find(writes_names, writes) == writes_names.end())
    throw unknown("help with writes", writes, writes_names);
  std::unique_ptr<AccessSource> source = source_of(name, kernel, changes, damon, seed);
  if (writes == "none") return source;
  if (source->name() != "damon" && source->name() != "hints")
    throw std::invalid_argument("--writes " + std::string{writes} + ": the source " +
                                std::string{source->name()} + " tells of stores itself");
  if (const std::string missing = lacking_written_pages(kernel); !missing.empty())
    throw NotAllowed("--writes " + std::string{writes} + ": " + missing);
  return std::make_unique<MarkedWrites>(kernel, std::move(source));
}

}  // namespace tt::live
