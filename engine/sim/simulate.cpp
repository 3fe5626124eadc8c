// SPDX-License-Identifier: MIT

// The entry to the simulator: checks what is asked for, and puts machine, policy and loop together.
#include "sim/simulate.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/forwarding.hpp"
#include "sim/future.hpp"
#include "sim/limits.hpp"
#include "sim/machine.hpp"
#include "sim/pages.hpp"
#include "sim/replay.hpp"
#include "sim/scale.hpp"
#include "sim/watch.hpp"

namespace tt::sim {
namespace {

void check(const MachineProfile& machine, const RunOptions& options) {
  const auto refuse = [&](const std::string& what) {
    throw std::invalid_argument("machine " + machine.name + ": " + what);
  };
  for (const auto& [name, wanted] : problems(machine)) refuse(name + ": " + wanted);
  if (!(options.threads > 0 || machine.threads > 0)) refuse("threads must be positive");
  if (!(options.fast_share >= 0 && options.fast_share <= 1))
    throw std::invalid_argument("fast_share must be between 0 and 1");
  if (!(options.score_after >= 0 && options.score_after < 1))
    throw std::invalid_argument("score_after must be at least 0 and below 1");
  if (!(options.threads >= 0)) throw std::invalid_argument("threads must not be negative");
  if (options.page_bytes != 0 && options.page_bytes != trace::base_page_bytes &&
      options.page_bytes != trace::huge_page_bytes)
    throw std::invalid_argument("page_bytes must be 4096 or 2097152");
}

/// Sizes of a miniature's pages.
double full_page_bytes(const Machine& machine) {
  return static_cast<double>(machine.page_bytes()) * machine.scale();
}

std::vector<PlacedObject> to_file(const Placement& placement, const Machine& machine) {
  std::vector<PlacedObject> objects;
  const double bytes = full_page_bytes(machine);
  for (const Placement::Object& object : placement.objects)
    objects.push_back({object.site, object.score / bytes, object.pages * bytes, object.slot});
  return objects;
}

Placement from_file(const std::vector<PlacedObject>& objects, const Machine& machine) {
  Placement placement;
  const double bytes = full_page_bytes(machine);
  for (const PlacedObject& object : objects)
    placement.objects.push_back(
        {object.site, object.score * bytes, object.bytes / bytes, object.slot});
  return placement;
}

/// A placement of which the stream has no object at all was made for another program.
void check(const std::vector<PlacedObject>& objects, const trace::StreamInfo& info) {
  const auto there = [&](const PlacedObject& object) {
    return std::ranges::any_of(info.objects, [&](const auto& o) { return o.site == object.site; });
  };
  if (objects.empty() || std::ranges::any_of(objects, there)) return;
  std::string known;
  for (const trace::Object& object : info.objects) {
    if (known.find(object.site) == std::string::npos)
      known += (known.empty() ? "" : ", ") + object.site;
  }
  throw std::invalid_argument("the placement has no object of this stream: found '" +
                              objects.front().site + "', known are " + known);
}

/// As if the program ran bound to the slow tier's node, and only the policy could move its pages.
class StartsSlow final : public ForwardingPolicy {
 public:
  using ForwardingPolicy::ForwardingPolicy;
  [[nodiscard]] Tier placement(PageRange) const override { return Tier::slow; }
};

struct Played {
  RunResult result;
  std::vector<PlacedObject> placement;  // of a profiling run
};

Played play(const trace::Reader& stream, const MachineProfile& machine, const PolicyInfo& policy,
            const KnobMap& knobs, const RunOptions& options) {
  Machine simulated(stream, machine, policy.traits, options);
  const Knobs given = resolve(policy.knobs, knobs);
  const bool placed = goes_by_placement(policy, given);
  std::optional<Future> future;
  if (includes(policy.traits.needs, Need::future)) future.emplace(stream, machine, simulated);
  std::optional<Placement> placement;
  if (options.placement && placed) placement = from_file(*options.placement, simulated);
  Watch watch(options, stream.info().blocks);
  const double fast_pages = static_cast<double>(simulated.capacity(Tier::fast)) * simulated.scale();
  const Knobs scaled = scale_knobs(policy.knobs, given, simulated.scale(), fast_pages);
  std::unique_ptr<Policy> running =
      policy.make(PolicyContext{simulated, scaled, future ? &future->oracle() : nullptr,
                                options.seed, placement ? &*placement : nullptr});
  if (options.start_slow) running = std::make_unique<StartsSlow>(std::move(running));
  simulated.attach(*running);
  Played played;
  played.result =
      Replay(stream, simulated, policy.traits, *running, options.score_after, watch).run();
  if (placed && !placement) played.placement = to_file(running->profile(), simulated);
  return played;
}

/// The part of a run's progress and deadline that falls to one of two replays.
RunOptions half(const RunOptions& options, double from) {
  RunOptions part = options;
  if (options.progress)
    part.progress = [&options, from](double done) { return options.progress(from + done / 2); };
  return part;
}

}  // namespace

ProfileResult profile(const trace::Reader& stream, const MachineProfile& machine,
                      const PolicyInfo& policy, const KnobMap& knobs, const RunOptions& options) {
  check(machine, options);
  const Knobs resolved = resolve(policy.knobs, knobs);
  if (!goes_by_placement(policy, resolved))
    throw std::invalid_argument(policy.name + " does not go by a placement: nothing to profile");
  require_needs(policy, resolved, Machine::offers, "the simulated machine");
  PolicyInfo on_fast = policy;
  on_fast.traits.unbounded_fast = true;
  RunOptions alone = options;
  alone.placement.reset();
  alone.start_slow = false;
  Played played = play(stream, machine, on_fast, knobs, alone);
  return {std::move(played.placement), std::move(played.result)};
}

RunResult simulate(const trace::Reader& stream, const MachineProfile& machine,
                   const PolicyInfo& policy, const KnobMap& knobs, const RunOptions& options) {
  check(machine, options);
  if (options.start_slow && !policy.traits.migrates)
    throw std::invalid_argument(
        policy.name + " never moves a page, so that a start in the slow tier is all-slow");
  const Knobs resolved = resolve(policy.knobs, knobs);
  require_needs(policy, resolved, Machine::offers, "the simulated machine");
  if (options.placement) {
    if (!policy.traits.profiled)
      throw std::invalid_argument(policy.name + " does not go by a placement");
    check(*options.placement, stream.info());
  } else if (goes_by_placement(policy, resolved)) {
    const auto started = std::chrono::steady_clock::now();
    const RunOptions before = half(options, 0);
    RunOptions after = half(options, 0.5);
    after.placement = profile(stream, machine, policy, knobs, before).placement;
    if (after.deadline_seconds) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - started;
      *after.deadline_seconds -= spent.count();
    }
    return play(stream, machine, policy, knobs, after).result;
  }
  return play(stream, machine, policy, knobs, options).result;
}

}  // namespace tt::sim
