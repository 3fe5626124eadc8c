// The entry to the simulator: checks what is asked for, and puts machine, policy and loop together.
#include "sim/simulate.hpp"

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/forwarding.hpp"
#include "sim/machine.hpp"
#include "sim/pages.hpp"
#include "sim/replay.hpp"
#include "sim/scale.hpp"
#include "sim/watch.hpp"

namespace tt::sim {
namespace {

void check(const MachineProfile& machine, const RunOptions& options) {
  const auto require = [&](bool good, const std::string& what) {
    if (!good) throw std::invalid_argument("machine " + machine.name + ": " + what);
  };
  for (const TierProfile& tier : machine.tiers) {
    require(tier.latency_ns > 0, "a tier's latency_ns must be positive");
    require(tier.read_gbps > 0 && tier.write_gbps > 0, "a tier's bandwidths must be positive");
    require(tier.store_stall >= 0, "store_stall must not be negative");
    require(tier.granule_bytes >= line_bytes, "granule_bytes must be at least 64");
  }
  require(machine.ghz > 0, "ghz must be positive");
  require(machine.migration_copy_gbps > 0, "migration_copy_gbps must be positive");
  require(machine.sample_queue > 0, "sample_queue must be positive");
  require(machine.huge_page_gain >= 0 && machine.huge_page_gain < 1,
          "huge_page_gain must be in [0, 1)");
  require(machine.prefetch_shown >= 0 && machine.prefetch_shown <= 1,
          "prefetch_shown must be in [0, 1]");
  require(options.threads > 0 || machine.threads > 0, "threads must be positive");
  if (!(options.fast_share >= 0 && options.fast_share <= 1))
    throw std::invalid_argument("fast_share must be between 0 and 1");
  if (!(options.score_after >= 0 && options.score_after < 1))
    throw std::invalid_argument("score_after must be at least 0 and below 1");
  if (!(options.threads >= 0)) throw std::invalid_argument("threads must not be negative");
  if (options.page_bytes != 0 && options.page_bytes != trace::base_page_bytes &&
      options.page_bytes != trace::huge_page_bytes)
    throw std::invalid_argument("page_bytes must be 4096 or 2097152");
}

/// Whether a policy with these traits ever asks for a move: one that learns nothing in the run does
/// not.
bool migrates(const PolicyTraits& traits) {
  return !includes(Need::sites | Need::future, traits.needs);
}

std::unique_ptr<Policy> make(const PolicyInfo& info, Machine& machine, const trace::Reader& stream,
                             const std::map<std::string, KnobValue, std::less<>>& knobs,
                             std::uint64_t seed) {
  std::vector<std::uint64_t> totals;
  Oracle oracle;
  const bool sees_future = includes(info.traits.needs, Need::future);
  if (sees_future) {
    totals.resize(machine.pages().size());
    const auto base = stream.page_totals();
    for (std::size_t page = 0; page < base.size(); ++page)
      totals[page >> machine.pages().shift()] += base[page];
    oracle.accesses = totals;
  }
  const Knobs scaled =
      scale_knobs(info.knobs, resolve(info.knobs, knobs), machine.scale(),
                  static_cast<double>(machine.capacity(Tier::fast)) * machine.scale());
  return info.make(PolicyContext{machine, scaled, sees_future ? &oracle : nullptr, seed});
}

/// As if the program ran bound to the slow tier's node, and only the policy could move its pages.
class StartsSlow final : public ForwardingPolicy {
 public:
  using ForwardingPolicy::ForwardingPolicy;
  [[nodiscard]] Tier placement(PageRange) const override { return Tier::slow; }
};

}  // namespace

RunResult simulate(const trace::Reader& stream, const MachineProfile& machine,
                   const PolicyInfo& policy,
                   const std::map<std::string, KnobValue, std::less<>>& knobs,
                   const RunOptions& options) {
  check(machine, options);
  if (options.start_slow && !migrates(policy.traits))
    throw std::invalid_argument(
        policy.name + " never moves a page, so that a start in the slow tier is all-slow");
  require_needs(policy, Machine::offers, "the simulated machine");
  Machine simulated(stream, machine, policy.traits, options);
  Watch watch(options, stream.info().blocks);
  std::unique_ptr<Policy> running = make(policy, simulated, stream, knobs, options.seed);
  if (options.start_slow) running = std::make_unique<StartsSlow>(std::move(running));
  simulated.attach(*running);
  return Replay(stream, simulated, policy.traits, *running, options.score_after, watch).run();
}

}  // namespace tt::sim
