// SPDX-License-Identifier: MIT

// Per block: moves of the previous block take effect (the border); map, touch and unmap events are
// applied; the mover starts what it will get done in this block; the accesses are counted by tier
// and sampled; time and utilisation are solved; answered probes reach the policy, then hint faults,
// samples as far as the tiering thread has time for them, and ticks, each when it is due.
#include "sim/replay.hpp"

#include <algorithm>
#include <string>

namespace tt::sim {

Replay::Replay(const trace::Reader& stream, Machine& machine, const PolicyTraits& traits,
               const Policy& policy, double score_after, Watch& watch)
    : stream_(stream),
      info_(stream.info()),
      machine_(machine),
      policy_(policy),
      watch_(watch),
      by_faults_(includes(traits.needs, Need::faults)),
      unscored_ns_(score_after * info_.nominal_seconds * 1e9),
      series_(info_.op_kinds, by_faults_),
      latencies_(info_.op_kinds.size()) {}

RunResult Replay::run() {
  trace::Block block;
  for (std::uint64_t b = 0; b < info_.blocks; ++b) {
    stream_.read(b, block);
    play(block);
    if (block.timed) {
      while (machine_.lanes().timed_ns() >= 1e9 * static_cast<double>(series_.rows() + 1)) {
        end_second();
        if (series_.rows() % 1024 == 0) watch_.look(b);  // a block may be days long
      }
    }
    std::uint64_t entries = 0;
    for (const trace::Segment& segment : block.segments) entries += segment.pages.size();
    watch_.block_done(b + 1, entries);
  }
  stream_.confirm();
  machine_.finish_moves();
  return result();
}

void Replay::play(const trace::Block& block) {
  machine_.finish_moves();
  if (block.timed != machine_.ledger().timed()) machine_.enter_section(block.timed);
  if (block.timed && unscored_ns_ > 0) {
    unscored_ns_ -= block.nominal_ns;
    if (unscored_ns_ <= 0) start_score();
  }
  machine_.apply(block.events);
  machine_.start_moves(block);
  machine_.play(block);
  const double block_ns = machine_.solve(block);
  if (block.timed) {
    for (const trace::Operation& operation : block.sampled)
      latencies_.add(operation.kind, machine_.operation_ns(operation));
  }
  machine_.call_policy(block_ns);
  peak_metadata_bytes_ = std::max(peak_metadata_bytes_,
                                  static_cast<double>(policy_.metadata_bytes()) * machine_.scale());
}

/// The lanes meet, so that all of them have the same moment as their start.
void Replay::start_score() {
  machine_.enter_section(true);
  before_score_ = machine_.ledger().timed_sums();
  time_before_score_ = machine_.lanes().timed_time();
  latencies_.restart();
}

Occupancy Replay::occupancy() const {
  const PageTable& pages = machine_.pages();
  Occupancy occupancy;
  const std::uint64_t capacity = pages.capacity(Tier::fast);
  if (capacity == 0) return occupancy;
  occupancy.used_share =
      static_cast<double>(capacity - pages.free(Tier::fast)) / static_cast<double>(capacity);
  // Pages at multiples of the golden ratio (mod 1) of the address space are evenly spread and the
  // same in every run; each second continues where the last one stopped, so that a minute covers
  // thousands of them.
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ULL;
  constexpr std::uint64_t wanted = 128;
  constexpr std::uint64_t tries = 32 * wanted;
  std::uint64_t found = 0;
  for (std::uint64_t i = 0; i < tries && found < wanted; ++i) {
    const std::uint64_t page = ((series_.rows() * tries + i) * golden >> 32) * pages.size() >> 32;
    if (pages.where(page) != Residency::fast) continue;
    ++found;
    occupancy.heat[static_cast<std::size_t>(policy_.heat(PageId{page}))] += 1;
  }
  if (found > 0)
    for (double& share : occupancy.heat) share *= occupancy.used_share / static_cast<double>(found);
  return occupancy;
}

void Replay::end_second() {
  Gauges gauges;
  policy_.gauges(gauges);
  series_.row(machine_.ledger().timed_sums(), occupancy(),
              static_cast<double>(policy_.metadata_bytes()) * machine_.scale(), gauges, latencies_);
}

RunResult Replay::result() {
  machine_.enter_section(false);
  const Sums sums = machine_.ledger().timed_sums().since(before_score_);
  const LaneTime time = machine_.lanes().timed_time().since(time_before_score_);
  const PageTable& pages = machine_.pages();
  RunResult result;
  result.seconds = time.total * 1e-9;
  result.total_seconds = machine_.lanes().now_ns() * 1e-9;
  result.operations = sums[Sum::operations];
  for (std::size_t kind = 0; kind < info_.op_kinds.size(); ++kind)
    result.latency[info_.op_kinds[kind].name] = latencies_.summary(kind);

  auto& metrics = result.metrics;
  for (std::size_t s = 0; s < sum_count; ++s) {
    const auto sum = static_cast<Sum>(s);
    if (of_faults(sum) && !by_faults_) continue;
    if (of_units(sum) && !pages.mixed()) continue;
    if (sum == Sum::copies_voided && !machine_.mover().transactional()) continue;
    metrics[std::string(name(sum))] = sums[sum];
  }
  metrics["fast_hit_ratio"] = fast_hit_ratio(sums, 0);
  metrics["demand_hit_ratio"] = demand_hit_ratio(sums, 0);
  const double lines = sums[Sum::tiering_lines];
  const double own = sums[Sum::demand_loads_fast] + sums[Sum::demand_loads_slow];
  metrics["tiering_line_share"] = lines > 0 ? lines / (lines + own) : 0;
  const double reads = sums[Sum::a3_reads];
  metrics["aol_cycles"] = reads > 0 ? sums[Sum::a1_cycles] / reads : 0;
  metrics["policy_cpu_share"] =
      result.seconds > 0 ? sums[Sum::tiering_cpu_seconds] / result.seconds : 0;
  metrics["peak_metadata_bytes"] = peak_metadata_bytes_;
  metrics["footprint_bytes"] = static_cast<double>(pages.footprint_bytes()) * machine_.scale();
  metrics["fast_capacity_bytes"] =
      static_cast<double>(pages.capacity(Tier::fast) * pages.page_bytes()) * machine_.scale();

  result.breakdown = {
      {"compute", time.compute * 1e-9},
      {"fast_stall", time.stall[index(Tier::fast)] * 1e-9},
      {"slow_stall", time.stall[index(Tier::slow)] * 1e-9},
      {"bandwidth", time.bandwidth * 1e-9},
      {"migration", time.migration * 1e-9},
      {"sampling", time.sampling * 1e-9},
      {"policy", time.policy * 1e-9},
  };
  if (by_faults_ || time.faults > 0) result.breakdown["faults"] = time.faults * 1e-9;
  if (pages.mixed()) metrics["huge_share"] = pages.huge_share();
  result.series = series_.take();
  policy_.report(result.rows);
  return result;
}

}  // namespace tt::sim
