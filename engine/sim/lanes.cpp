// SPDX-License-Identifier: MIT

#include "sim/lanes.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>

#include "core/assert.hpp"
#include "core/math.hpp"
#include "sim/access_sampler.hpp"

namespace tt::sim {
namespace {

/// Longer than any real run: within it, times in ms fit 32 bits, and the series fits memory.
constexpr double most_ns = 1e15;

}  // namespace

double busy_ns(double outstanding_ns, double threads, double total_ns) {
  if (outstanding_ns <= 0 || total_ns <= 0) return 0;
  const double idle = 1 - std::min(1.0, outstanding_ns / (threads * total_ns));
  // idle^threads by squaring: with short blocks the general pow() takes 3 % of the replay's time.
  const double whole = std::floor(threads);
  double all_idle = threads > whole ? math::pow(idle, threads - whole) : 1;
  double power = idle;
  for (auto left = static_cast<std::uint64_t>(whole); left != 0; left >>= 1, power *= power)
    if ((left & 1) != 0) all_idle *= power;
  return total_ns * (1 - all_idle);
}

Lanes::Lanes(Ledger& ledger, const MachineProfile& profile, const trace::StreamInfo& info,
             double threads, bool huge)
    : ledger_(ledger),
      profile_(profile),
      info_(info),
      scale_(info.scale),
      wait_(info.classes.size()),
      counts_(info.classes.size()) {
  for (const trace::Lane& lane : info.lanes) {
    Lane& state = lanes_.emplace_back();
    state.threads = lane_threads(lane, threads);
    state.work.threads = state.threads;
    total_threads_ += state.threads;
  }
  running_threads_ = total_threads_;
  for (std::size_t c = 0; c < wait_.size(); ++c) {
    const double translation = huge ? 1 - profile.huge_page_gain * info.classes[c].translation : 1;
    for (std::size_t t = 0; t < tier_count; ++t) {
      const double load = profile.tiers[t].latency_ns * translation / info.classes[c].mlp;
      wait_[c][index(AccessKind::load)][t] = load;
      wait_[c][index(AccessKind::store)][t] = load * profile.tiers[t].store_stall;
    }
  }
}

Load Lanes::load() const {
  Load load{running_threads_, {}};
  for (const Lane& lane : lanes_)
    for (std::size_t t = 0; t < tier_count; ++t) load.utilisation[t] += lane.demand[t];
  for (double& utilisation : load.utilisation) utilisation = std::min(utilisation, 1.0);
  return load;
}

void Lanes::clear_counts() { std::ranges::fill(counts_, ClassCounts{}); }

double Lanes::solve(const trace::Block& block, const Interference& interference) {
  collect(block);
  start_lanes();
  ledger_.sums()[Sum::tiering_lines] += interference.lines;
  const double before_ns = now_ns_;
  for (Lane& lane : lanes_) {
    evict(lane, interference.lines);
    run(lane, interference);
  }
  count_traffic(interference);
  count_outstanding();
  const double block_ns = now_ns_ - before_ns;
  nominal_ns_ = block.nominal_ns;
  if (nominal_ns_ > 0 && block_ns > 0) pace_ = block_ns / nominal_ns_;
  return block_ns;
}

double Lanes::extend() {
  const double before_ns = now_ns_;
  for (Lane& lane : lanes_) {
    if (lane.in_faults_ns <= 0) continue;
    LaneTime longer;
    longer.total = longer.faults = std::exchange(lane.in_faults_ns, 0.0) / lane.threads;
    lane.time += longer;
    lane.section += longer;
    lane.clock_ns += longer.total;
    now_ns_ = std::max(now_ns_, lane.clock_ns);
    ledger_.counters().cycles += longer.total * lane.threads * profile_.ghz / scale_;
  }
  const double longer_ns = now_ns_ - before_ns;
  if (nominal_ns_ > 0) pace_ += longer_ns / nominal_ns_;
  return longer_ns;
}

/// The block's own work: computation, and accesses by class, kind and tier.
void Lanes::collect(const trace::Block& block) {
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    Lane& lane = lanes_[l];
    LaneWork& work = lane.work;
    work.terms.clear();
    work.traffic = {};
    lane.lines = {};
    work.compute_ns = l < block.compute_ns.size() ? block.compute_ns[l] * scale_ : 0;
    std::fill(std::begin(lane.accesses_by_tier), std::end(lane.accesses_by_tier), 0.0);
  }
  Counters& counters = ledger_.counters();
  for (std::size_t c = 0; c < counts_.size(); ++c) {
    const trace::StreamClass& stream_class = info_.classes[c];
    Lane& lane = lanes_[stream_class.lane];
    for (const AccessKind kind : {AccessKind::load, AccessKind::store}) {
      for (const Tier tier : {Tier::fast, Tier::slow}) {
        const auto simulated = counts_[c].by[index(kind)][index(tier)];
        if (simulated == 0) continue;
        const double accesses = static_cast<double>(simulated) * scale_;
        const bool load = kind == AccessKind::load;
        const double fetched = load ? accesses : accesses * stream_class.store_fill;
        const double wait = wait_[c][index(kind)][index(tier)];
        if (const auto huge = counts_[c].huge[index(kind)][index(tier)]; huge != 0) {
          const double part = static_cast<double>(huge) / static_cast<double>(simulated);
          const double shorter = wait * huge_share(static_cast<std::uint32_t>(c));
          lane.work.terms.push_back({fetched * part, stream_class.issue_ns, shorter, tier});
          if (huge < simulated)
            lane.work.terms.push_back({fetched * (1 - part), stream_class.issue_ns, wait, tier});
        } else {
          lane.work.terms.push_back({fetched, stream_class.issue_ns, wait, tier});
        }
        const Traffic lines{fetched * line_bytes, load ? 0 : accesses * line_bytes};
        lane.lines[index(tier)] += lines;
        lane.work.traffic[index(tier)] += moved(profile_.tiers[index(tier)], stream_class, lines);
        lane.accesses_by_tier[index(tier)] += fetched;
        if (load) {
          const double demand = demand_share(stream_class, profile_);
          counters.loads[index(tier)] += static_cast<double>(simulated) * demand;
          ledger_.sums()[tier == Tier::fast ? Sum::demand_loads_fast : Sum::demand_loads_slow] +=
              accesses * demand;
        } else {
          counters.stores[index(tier)] += static_cast<double>(simulated);
        }
        ledger_.sums()[load ? (tier == Tier::fast ? Sum::loads_fast : Sum::loads_slow)
                            : (tier == Tier::fast ? Sum::stores_fast : Sum::stores_slow)] +=
            accesses;
      }
    }
  }
}

/// Which lanes work in the block. One that had nothing to do in the block before has waited for the
/// others, as the threads of a phase do for the end of the phase before.
void Lanes::start_lanes() {
  double running = 0;
  for (Lane& lane : lanes_) {
    lane.works = !lane.work.terms.empty() || lane.work.compute_ns > 0;
    if (lane.works) running += lane.threads;
  }
  if (running == 0) return;  // a block of events alone
  running_threads_ = running;
  for (Lane& lane : lanes_) {
    if (lane.works && lane.waits && lane.clock_ns < now_ns_) {
      lane.section = std::ranges::max_element(lanes_, {}, &Lane::clock_ns)->section;
      lane.clock_ns = now_ns_;
    }
    lane.waits = !lane.works;
  }
}

/// Tiering's lines have taken the place of the lane's own, in proportion to its threads. Those that
/// would have been used again are read again; no more of them than the lane brings in anew.
void Lanes::evict(Lane& lane, double lines) {
  const double own = lane.accesses_by_tier[0] + lane.accesses_by_tier[1];
  const double evicted = lines * lane.threads / running_threads_;
  lane.work.refetched = own > 0 ? profile_.live_lines * std::min(1.0, evicted / own) : 0;
  for (std::size_t t = 0; t < tier_count; ++t) {
    lane.lines[t] *= 1 + lane.work.refetched;
    lane.work.traffic[t] *= 1 + lane.work.refetched;
  }
}

/// A lane's share of what the tiering system takes, its time in the block, and its clock.
void Lanes::run(Lane& lane, const Interference& interference) {
  LaneWork& work = lane.work;
  lane.time = {};
  if (!lane.works) {
    lane.demand = {};
    work.in_flight_ns2 = lane.samples = lane.samples_ns = lane.faults = 0;
    return;
  }
  const double most = 1 - 1 / static_cast<double>(lanes_.size());
  for (std::size_t t = 0; t < tier_count; ++t) {
    double background = 0;
    for (const Lane& peer : lanes_)
      if (&peer != &lane) background += peer.demand[t];
    work.background[t] = std::min(background, most);
  }
  std::array<double, tier_count> own{};
  for (std::size_t t = 0; t < tier_count; ++t) {
    own[t] = transfer_ns(profile_.tiers[t], work.traffic[t]);
    work.traffic[t] += interference.traffic[t];
  }
  // Where fewer threads run, the tiering system's find a core that is idle.
  const double shared_part = profile_.daemon_core_share / total_threads_;
  work.migration_ns = (interference.flushed / profile_.migration_shootdown_pages *
                           profile_.migration_shootdown_us * 1e3 +
                       interference.moves_ns * shared_part) *
                      lane.threads;
  // At most all of the lane's threads wait for a page.
  work.in_flight_limit_ns = interference.away_ns / 2 * lane.threads;
  work.sampling_ns = lane.samples_ns + interference.sampling_ns * shared_part * lane.threads;
  work.policy_ns = interference.policy_ns * shared_part * lane.threads;
  work.fault_ns = lane.faults * profile_.hint_fault_us * 1e3 +
                  interference.application_ns / running_threads_ * lane.threads;
  lane.time = tt::sim::solve(work, profile_.tiers, lane.last_ns);
  // Times of which one is beyond all bounds may have added up to no number.
  if (!(lane.clock_ns + lane.time.total <= most_ns))
    throw std::runtime_error("the stream takes more than 1,000,000 virtual seconds");
  TT_ASSERT(lane.time.total >= 0);
  lane.last_ns = lane.time.total;
  for (std::size_t t = 0; t < tier_count; ++t)
    lane.demand[t] = lane.time.total > 0 ? own[t] / lane.time.total : 0;
  lane.section += lane.time;
  lane.clock_ns += lane.time.total;
  now_ns_ = std::max(now_ns_, lane.clock_ns);
  Counters& counters = ledger_.counters();
  const double cycles = lane.threads * profile_.ghz / scale_;
  counters.cycles += lane.time.total * cycles;
  for (const double stall : lane.time.stall) counters.stall_cycles += stall * cycles;
  counters.samples_taken += lane.samples / scale_;
  ledger_.sums()[Sum::samples] += lane.samples;
  work.in_flight_ns2 = lane.samples = lane.samples_ns = lane.faults = 0;
}

/// A1 and A3, and the tiers' reads, occupancy and busy time, under the latencies that the block
/// turned out to have.
void Lanes::count_outstanding() {
  Counters& counters = ledger_.counters();
  for (Lane& lane : lanes_) lane.outstanding_ns = {};
  for (std::size_t c = 0; c < counts_.size(); ++c) {
    const trace::StreamClass& stream_class = info_.classes[c];
    Lane& lane = lanes_[stream_class.lane];
    const auto add = [&](std::size_t t, std::uint64_t simulated, double share) {
      const double loads = static_cast<double>(simulated) * scale_;
      if (loads == 0) return;
      const double latency =
          wait_[c][index(AccessKind::load)][t] * share * stream_class.mlp * lane.time.factor[t];
      const double waited =
          loads * outstanding_ns(latency, stream_class.mlp, stream_class.issue_ns);
      const double cycles = waited * profile_.ghz;
      counters.a1_cycles += cycles / scale_;
      counters.a3_reads += loads / scale_;
      ledger_.sums()[Sum::a1_cycles] += cycles;
      ledger_.sums()[Sum::a3_reads] += loads;
      counters.tier[t].reads += loads / scale_;
      counters.tier[t].occupancy_ns += loads / scale_ * latency;
      lane.outstanding_ns[t] += waited;
    };
    for (std::size_t t = 0; t < tier_count; ++t) {
      const std::uint64_t huge = counts_[c].huge[index(AccessKind::load)][t];
      TT_ASSERT(huge <= counts_[c].by[index(AccessKind::load)][t]);
      add(t, counts_[c].by[index(AccessKind::load)][t] - huge, 1);
      if (huge != 0) add(t, huge, huge_share(static_cast<std::uint32_t>(c)));
    }
  }
  for (const Lane& lane : lanes_)
    for (std::size_t t = 0; t < tier_count; ++t)
      counters.tier[t].busy_ns +=
          busy_ns(lane.outstanding_ns[t], lane.threads, lane.time.total) / scale_;
}

/// Bytes that cross the tiers' controllers; those of page moves once, although every lane feels
/// them.
void Lanes::count_traffic(const Interference& interference) {
  for (std::size_t t = 0; t < tier_count; ++t) {
    Traffic sum = interference.traffic[t];
    for (const Lane& lane : lanes_) sum += lane.lines[t];
    ledger_.counters().tier[t].read_bytes += sum.read / scale_;
    ledger_.counters().tier[t].written_bytes += sum.written / scale_;
  }
}

void Lanes::meet(bool timed) {
  if (timed) {
    const auto last =
        std::ranges::max_element(lanes_, {}, [](const Lane& lane) { return lane.section.total; });
    timed_time_ += last->section;
    timed_before_ns_ += last->section.total;
  }
  for (Lane& lane : lanes_) {
    lane.clock_ns = now_ns_;
    lane.section = {};
  }
  section_start_ns_ = now_ns_;
  pace_ = 1;  // what set-up takes says nothing of the rest
}

}  // namespace tt::sim
