// The replay loop: plays a stream's blocks on a simulated tiered machine under a policy.
//
// Per block: moves of the previous block take effect (the border); map, touch and unmap events are
// applied; the mover starts what it will get done in this block; the accesses are counted by tier
// and sampled; time and utilisation are solved; samples reach the policy as far as the tiering
// thread had time for them; and the policy's tick comes when it is due.
//
// One simulated page stands for R real pages, one simulated access for R accesses to R different
// pages: every sum that leaves this file is multiplied by R, and virtual time is full-scale time.
#include "sim/simulate.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>

#include "core/rng.hpp"
#include "sim/address_space.hpp"
#include "sim/gather.hpp"
#include "sim/moves.hpp"
#include "sim/report.hpp"
#include "sim/sampler.hpp"
#include "sim/scale.hpp"
#include "sim/timing.hpp"

namespace tt::sim {
namespace {

constexpr std::uint64_t huge_page_bytes = std::uint64_t{2} << 20;
constexpr double ping_pong_ns = 10e9;
/// What no real run takes: times in ms fit 32 bits, and the series' rows the memory.
constexpr double most_ns = 1e15;

void check(const MachineProfile& machine, const RunOptions& options) {
  const auto require = [&](bool good, const std::string& what) {
    if (!good) throw std::invalid_argument("machine " + machine.name + ": " + what);
  };
  for (const TierProfile& tier : machine.tiers) {
    require(tier.latency_ns > 0, "a tier's latency_ns must be positive");
    require(tier.read_gbps > 0 && tier.write_gbps > 0, "a tier's bandwidths must be positive");
    require(tier.store_stall >= 0, "store_stall must not be negative");
    for (std::size_t i = 0; i < tier.loaded.size(); ++i) {
      require(tier.loaded[i].second >= 1 &&
                  (i == 0 || (tier.loaded[i].first > tier.loaded[i - 1].first &&
                              tier.loaded[i].second >= tier.loaded[i - 1].second)),
              "a loaded-latency curve must rise from a factor of at least 1");
    }
  }
  require(machine.ghz > 0, "ghz must be positive");
  require(machine.migration_copy_gbps > 0, "migration_copy_gbps must be positive");
  require(machine.sample_queue > 0, "sample_queue must be positive");
  require(machine.huge_page_gain >= 0 && machine.huge_page_gain < 1,
          "huge_page_gain must be in [0, 1)");
  require(options.threads > 0 || machine.threads > 0, "threads must be positive");
  if (!(options.fast_share >= 0 && options.fast_share <= 1))
    throw std::invalid_argument("fast_share must be between 0 and 1");
  if (!(options.threads >= 0)) throw std::invalid_argument("threads must not be negative");
  if (options.page_bytes != 0 && options.page_bytes != trace::base_page_bytes &&
      options.page_bytes != huge_page_bytes)
    throw std::invalid_argument("page_bytes must be 4096 or 2097152");
}

class Machine final : public Memory {
 public:
  Machine(const trace::Reader& stream, const MachineProfile& profile, const PolicyInfo& policy,
          const std::map<std::string, KnobValue, std::less<>>& knobs, const RunOptions& options);

  RunResult run();

  // Memory: what the policy sees.
  [[nodiscard]] std::uint64_t page_bytes() const override { return page_bytes_; }
  [[nodiscard]] std::uint64_t capacity(Tier tier) const override { return capacity_[index(tier)]; }
  [[nodiscard]] std::uint64_t free_pages(Tier tier) const override { return free_[index(tier)]; }
  void residency(std::span<const PageId> pages, std::span<Residency> out) const override {
    for (std::size_t i = 0; i < pages.size(); ++i) out[i] = where(pages[i].value);
  }
  void residency(PageId first, std::span<Residency> out) const override;
  std::size_t request(Tier to, std::span<const PageId> pages) override;
  [[nodiscard]] std::uint64_t pending(Tier to) const override {
    return queue_.pending(to) + moving_to_[index(to)];
  }
  void set_sampling(const SamplingRequest& request) override { sampler_.set(request); }
  [[nodiscard]] Counters counters() const override { return counters_; }
  void charge(Work kind, std::uint64_t times) override {
    charged_ns_ +=
        static_cast<double>(times) * profile_.work_ns[static_cast<std::size_t>(kind)] * scale_;
  }

 private:
  struct LaneState {
    double threads = 1;
    double clock_ns = 0;
    LaneTime section;                          // since the timed part (or set-up) began
    std::array<double, tier_count> demand{};   // utilisation that its accesses cause
    LaneWork work;                             // of the current block
    LaneTime time;                             // likewise
    double last_ns = 0;                        // its time in the last block in which it worked
    double samples = 0;                        // taken in the current block
    double accesses_by_tier[tier_count] = {};  // likewise
    bool active = false;
  };
  struct ClassCounts {
    std::uint64_t by[2][tier_count] = {};  // [kind][tier]
  };

  [[nodiscard]] Residency where(std::uint64_t page) const {
    if (page >= space_.pages() || !present_.test(page)) return Residency::absent;
    return slow_.test(page) ? Residency::slow : Residency::fast;
  }
  [[nodiscard]] Tier tier_of(std::uint64_t page) const {
    return slow_.test(page) ? Tier::slow : Tier::fast;
  }
  Sums& sums() { return timed_ ? timed_sums_ : set_up_sums_; }
  [[nodiscard]] Nanos now() const { return Nanos{static_cast<std::int64_t>(now_ns_)}; }
  static Sum directed(Sum promotion, Tier to) {
    constexpr auto step =
        static_cast<int>(Sum::demotions_requested) - static_cast<int>(Sum::promotions_requested);
    return static_cast<Sum>(static_cast<int>(promotion) + (to == Tier::fast ? 0 : step));
  }
  void report(PageId page, Tier to, Outcome outcome);

  void finish_moves();
  void enter_section(bool timed);
  void apply_events();
  void place(PageRange range);
  void vanish(PageRange range);
  void start_moves();
  template <bool InFlight>
  void play();
  double solve_block();
  void record_operations();
  void run_tiering_thread(double block_ns);
  void pay(double cost, double& budget);
  void end_second();
  [[nodiscard]] Occupancy occupancy() const;
  RunResult result();
  void watch(std::uint64_t done_blocks);
  void look_at_clock(std::uint64_t done_blocks);

  const trace::Reader& stream_;
  const trace::StreamInfo& info_;
  const MachineProfile& profile_;
  const RunOptions& options_;
  const PolicyTraits traits_;
  const double scale_;
  const std::uint64_t page_bytes_;
  AddressSpace space_;
  std::uint64_t footprint_;
  std::array<std::uint64_t, tier_count> capacity_{};
  std::array<std::uint64_t, tier_count> free_{};  // a page in flight has its slot where it goes
  PageBits present_;
  PageBits slow_;
  PageBits moving_;
  std::array<PageBits, tier_count> queued_;  // toward each tier
  // Time of a page's last move + 1; 0: never. From calloc: most pages never move, and the operating
  // system gives memory only to the parts that are written.
  struct Free {
    void operator()(std::uint32_t* array) const { std::free(array); }
  };
  std::unique_ptr<std::uint32_t[], Free> moved_at_ms_;
  MoveQueue queue_;
  Sampler sampler_;
  std::unique_ptr<Policy> policy_;

  // The current block.
  trace::Block block_;
  bool timed_ = false;
  std::vector<ClassCounts> counts_;                                  // per stream class
  std::vector<std::array<std::array<double, tier_count>, 2>> wait_;  // [class][kind][tier], idle
  std::vector<LaneState> lanes_;
  double total_threads_ = 0;
  double now_ns_ = 0;
  std::uint64_t entries_ = 0;  // since the last look at the wall clock

  // The mover: pages in flight in this block, and time that it has left (or is ahead by).
  std::vector<Move> in_flight_;
  std::array<std::uint64_t, tier_count> moving_to_{};
  std::array<double, tier_count> move_ns_{};  // of one real page, by target
  std::vector<MigrationResult> results_;      // to be told at the next border
  std::vector<MigrationResult> told_;         // being told
  double mover_credit_ns_ = 0;
  double mover_used_ns_ = 0;
  double pace_ = 1;  // actual over nominal length of the last block

  // The tiering thread.
  std::vector<Sample> fresh_;    // of the current block
  std::vector<Sample> waiting_;  // in the rings
  double charged_ns_ = 0;        // by charge(), not yet accounted
  double debt_ns_ = 0;           // work that it still has to do before anything else
  double sample_work_ns_ = 0;    // the policy's own work per simulated sample, moving average
  double idle_share_ = 1;        // of the last block
  double next_tick_ns_ = 0;
  // Its work, and the mover's, on the application's cores: felt in the next block.
  double shared_sampling_ns_ = 0;
  double shared_policy_ns_ = 0;
  double shared_moves_ns_ = 0;

  Counters counters_;
  Sums timed_sums_;
  Sums set_up_sums_;
  LaneTime timed_time_;
  double section_start_ns_ = 0;
  double timed_before_ns_ = 0;  // timed time of earlier timed sections
  double peak_metadata_bytes_ = 0;
  Series series_;
  Latencies latencies_;

  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point reported_ = started_;
};

std::uint64_t chosen_page_bytes(const PolicyTraits& traits, const RunOptions& options) {
  const std::uint64_t bytes = options.page_bytes == 0 ? traits.page_bytes : options.page_bytes;
  if (bytes != trace::base_page_bytes && bytes != huge_page_bytes)
    throw std::invalid_argument("managed pages must be of 4096 or 2097152 bytes");
  return bytes;
}

unsigned shift_of(std::uint64_t page_bytes) {
  return static_cast<unsigned>(std::countr_zero(page_bytes / trace::base_page_bytes));
}

/// Fast-tier pages of the miniature.
std::uint64_t fast_pages(const RunOptions& options, const PolicyTraits& traits,
                         std::uint64_t footprint, std::uint64_t page_bytes, double scale) {
  if (traits.unbounded_fast) return footprint;
  double pages = options.fast_share * static_cast<double>(footprint);
  if (options.fast_bytes != 0)
    pages = static_cast<double>(options.fast_bytes) / static_cast<double>(page_bytes) / scale;
  return std::min(footprint, static_cast<std::uint64_t>(std::llround(pages)));
}

Machine::Machine(const trace::Reader& stream, const MachineProfile& profile,
                 const PolicyInfo& policy,
                 const std::map<std::string, KnobValue, std::less<>>& knobs,
                 const RunOptions& options)
    : stream_(stream),
      info_(stream.info()),
      profile_(profile),
      options_(options),
      traits_(policy.traits),
      scale_(info_.scale),
      page_bytes_(chosen_page_bytes(traits_, options)),
      space_(info_.pages, shift_of(page_bytes_)),
      footprint_(peak_pages(stream, shift_of(page_bytes_))),
      present_(space_.pages()),
      slow_(space_.pages()),
      moving_(space_.pages()),
      queued_{PageBits{space_.pages()}, PageBits{space_.pages()}},
      moved_at_ms_(static_cast<std::uint32_t*>(
          std::calloc(std::max<std::uint64_t>(space_.pages(), 1), sizeof(std::uint32_t)))),
      queue_(1024 + 2 * fast_pages(options, traits_, footprint_, page_bytes_, scale_)),
      sampler_(options.seed),
      counts_(info_.classes.size()),
      wait_(info_.classes.size()),
      series_(info_.op_kinds),
      latencies_(info_.op_kinds.size()) {
  if (!moved_at_ms_) throw std::bad_alloc();
  capacity_ = {fast_pages(options, traits_, footprint_, page_bytes_, scale_), footprint_};
  free_ = capacity_;
  const double threads = options.threads > 0 ? options.threads : profile.threads;
  for (const trace::Lane& lane : info_.lanes) {
    LaneState& state = lanes_.emplace_back();
    state.threads = lane.thread_share > 0 ? lane.thread_share * threads : 1;
    state.work.threads = state.threads;
    total_threads_ += state.threads;
  }
  const double translation = page_bytes_ == huge_page_bytes ? 1 - profile.huge_page_gain : 1;
  for (std::size_t c = 0; c < wait_.size(); ++c) {
    for (std::size_t t = 0; t < tier_count; ++t) {
      const double load = profile.tiers[t].latency_ns * translation / info_.classes[c].mlp;
      wait_[c][index(AccessKind::load)][t] = load;
      wait_[c][index(AccessKind::store)][t] = load * profile.tiers[t].store_stall;
    }
  }
  const double movers = std::max(1.0, static_cast<double>(traits_.mover_threads));
  for (const Tier to : {Tier::fast, Tier::slow})
    move_ns_[index(to)] = move_ns(profile, to, static_cast<double>(page_bytes_), movers);

  std::vector<std::uint64_t> totals;
  Oracle oracle;
  if (traits_.needs_oracle) {
    totals.resize(space_.pages());
    const auto base = stream.page_totals();
    for (std::size_t page = 0; page < base.size(); ++page)
      totals[page >> space_.shift()] += base[page];
    oracle.accesses = totals;
  }
  const Knobs scaled = scale_knobs(policy.knobs, resolve(policy.knobs, knobs), scale_,
                                   static_cast<double>(capacity_[index(Tier::fast)]) * scale_);
  policy_ = policy.make(
      PolicyContext{*this, scaled, traits_.needs_oracle ? &oracle : nullptr, options.seed});
  next_tick_ns_ = static_cast<double>(policy_->tick_period().count());
}

/// By words: policies scan their whole address space.
void Machine::residency(PageId first, std::span<Residency> out) const {
  const std::uint64_t known =
      first.value < space_.pages()
          ? std::min<std::uint64_t>(out.size(), space_.pages() - first.value)
          : 0;
  std::uint64_t i = 0;
  while (i < known) {
    const std::uint64_t page = first.value + i;
    const std::uint64_t end = std::min(known, i + 32 - page % 32);
    std::uint32_t is_there = present_.word(page) >> (page % 32);
    std::uint32_t is_slow = slow_.word(page) >> (page % 32);
    for (; i < end; ++i, is_there >>= 1, is_slow >>= 1)
      out[i] = static_cast<Residency>(
          (is_there & 1U) != 0 ? is_slow & 1U : static_cast<unsigned>(Residency::absent));
  }
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(known), out.end(), Residency::absent);
}

// ------------------------------------------------------------------------------------ page moves

std::size_t Machine::request(Tier to, std::span<const PageId> pages) {
  std::size_t taken = 0;
  for (; taken < pages.size(); ++taken) {
    const PageId page = pages[taken];
    if (where(page.value) == Residency::absent) {
      report(page, to, Outcome::gone);
      continue;
    }
    if (queued_[index(to)].test(page.value)) continue;
    // Where it will be once what it is doing now, and what is queued for it, is done.
    Tier destination = moving_.test(page.value) ? other(tier_of(page.value)) : tier_of(page.value);
    if (queued_[index(other(to))].test(page.value)) destination = other(to);
    if (destination == to) continue;
    if (queue_.full()) break;
    queue_.push({page, to});
    queued_[index(to)].set(page.value);
    sums()[directed(Sum::promotions_requested, to)] += scale_;
  }
  sums()[directed(Sum::promotions_rejected, to)] +=
      static_cast<double>(pages.size() - taken) * scale_;
  return taken;
}

void Machine::report(PageId page, Tier to, Outcome outcome) {
  results_.push_back({page, to, outcome});
  Sum sum = Sum::promotions;
  if (outcome == Outcome::no_space) sum = Sum::promotions_no_space;
  if (outcome == Outcome::gone) sum = Sum::promotions_gone;
  sums()[directed(sum, to)] += scale_;
}

/// Starts the moves that the mover gets done in this block; they take effect at its end. Its time
/// is that of its threads (or, without any, what the tiering thread had left in the last block,
/// scaled to this one) and what earlier blocks left over.
void Machine::start_moves() {
  mover_used_ns_ = 0;
  if (queue_.empty()) return;
  const double expected = block_.nominal_ns * pace_;
  const double budget =
      mover_credit_ns_ +
      expected * (traits_.mover_threads > 0 ? traits_.mover_threads : idle_share_);
  while (!queue_.empty()) {
    const auto [page, to] = queue_.front();
    // A page that still moves has to arrive before it can move again.
    if (moving_.test(page.value)) break;
    const auto dequeue = [&, page = page, to = to] {
      queued_[index(to)].clear(page.value);
      queue_.pop();
    };
    if (tier_of(page.value) == to) {
      dequeue();
      continue;
    }
    if (free_[index(to)] == 0) {
      report(page, to, Outcome::no_space);
      dequeue();
      continue;
    }
    const double cost = move_ns_[index(to)] * scale_;
    if (mover_used_ns_ + cost > budget) break;
    mover_used_ns_ += cost;
    // Its slot is taken now, and the one that it leaves is free for the moves behind it.
    --free_[index(to)];
    ++free_[index(other(to))];
    ++moving_to_[index(to)];
    moving_.set(page.value);
    in_flight_.push_back({page, to});
    sums()[directed(Sum::promotions_started, to)] += scale_;
    dequeue();
  }
}

/// The border of two blocks: what was in flight has arrived.
void Machine::finish_moves() {
  for (const auto& [page, to] : in_flight_) {
    moving_.clear(page.value);
    if (to == Tier::slow) {
      slow_.set(page.value);
    } else {
      slow_.clear(page.value);
    }
    std::uint32_t& last = moved_at_ms_[page.value];
    const auto stamp = static_cast<std::uint32_t>(now_ns_ / 1e6) + 1;
    if (last != 0 && (stamp - last) * 1e6 < ping_pong_ns) sums()[Sum::ping_pongs] += scale_;
    last = stamp;
    sums()[Sum::migrated_bytes] += static_cast<double>(page_bytes_) * scale_;
    report(page, to, Outcome::done);
  }
  in_flight_.clear();
  moving_to_ = {};
  if (results_.empty()) return;
  // The policy may ask for more while it is told: what that reports belongs to the next border.
  std::swap(results_, told_);
  policy_->on_migrated(told_, now());
  told_.clear();
}

// ------------------------------------------------------------------------------------ events

void Machine::place(PageRange range) {
  // Before its first touch nothing sets a page apart from its neighbours, except for an oracle. The
  // others are asked again now and then, so that they can answer by what is still free.
  const std::uint64_t run = traits_.needs_oracle ? 1 : 512;
  for (std::uint64_t first = range.first.value; first < range.end().value; first += run) {
    const PageRange part{PageId{first}, std::min(run, range.end().value - first)};
    first_touch(present_, slow_, first, part.count, policy_->placement(part), free_);
  }
}

void Machine::vanish(PageRange range) {
  const auto [first, count] = range;
  const std::uint64_t in_slow = slow_.count(first.value, count);
  free_[index(Tier::slow)] += in_slow;
  free_[index(Tier::fast)] += present_.count(first.value, count) - in_slow;
  present_.clear(first.value, count);
  slow_.clear(first.value, count);
  for (std::uint64_t page = first.value; page < range.end().value; ++page)
    if (moved_at_ms_[page] != 0) moved_at_ms_[page] = 0;
  bool was_queued = false;
  for (PageBits& queued : queued_) {
    was_queued = was_queued || queued.count(first.value, count) > 0;
    queued.clear(first.value, count);
  }
  if (!was_queued) return;
  queue_.remove_if([&](const Move& move) {
    if (!range.contains(move.page)) return false;
    report(move.page, move.to, Outcome::gone);
    return true;
  });
}

void Machine::apply_events() {
  for (const trace::Event& event : block_.events) {
    switch (event.type) {
      case trace::EventType::map:
        if (const PageRange range = space_.map(event); range.count != 0)
          policy_->on_map(range, now());
        break;
      case trace::EventType::touch:
        place(space_.cover(event));
        break;
      case trace::EventType::unmap:
        if (const PageRange range = space_.unmap(event); range.count != 0) {
          vanish(range);
          policy_->on_unmap(range, now());
        }
        break;
    }
  }
}

// ------------------------------------------------------------------------------------ accesses

template <bool InFlight>
void Machine::play() {
  const unsigned shift = space_.shift();
  for (const trace::Segment& segment : block_.segments) {
    const TierSums found =
        gather<InFlight>(segment.pages, segment.counts, shift, slow_.words(), moving_.words());
    auto& by = counts_[segment.stream_class].by[index(segment.kind)];
    by[index(Tier::slow)] += found.slow;
    by[index(Tier::fast)] += segment.sum - found.slow;
    entries_ += segment.pages.size();
    LaneState& lane = lanes_[info_.classes[segment.stream_class].lane];
    lane.samples += static_cast<double>(sampler_.play(segment, shift, slow_, fresh_)) * scale_;
    if constexpr (InFlight) {
      if (traits_.write_protected_moves && segment.kind == AccessKind::load) continue;
      for (const Tier from : {Tier::fast, Tier::slow}) {
        const double away = move_ns_[index(other(from))];
        lane.work.in_flight_ns2 +=
            static_cast<double>(found.in_flight[index(from)]) * scale_ * away * away / 2;
      }
    }
  }
}

/// Turns counts into work and solves every lane's time. Returns by how much virtual time, the
/// latest of the lanes' clocks, went on.
double Machine::solve_block() {
  std::array<Traffic, tier_count> moved{};
  double moves = 0;
  double away_ns = 0;
  for (const Tier to : {Tier::fast, Tier::slow}) {
    const auto pages = static_cast<double>(moving_to_[index(to)]) * scale_;
    const double bytes = pages * static_cast<double>(page_bytes_);
    moved[index(to)].written += bytes;
    moved[index(other(to))].read += bytes;
    moves += pages;
    away_ns += pages * move_ns_[index(to)];
  }
  const double shared_part = profile_.daemon_core_share / total_threads_;

  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    LaneState& lane = lanes_[l];
    LaneWork& work = lane.work;
    work.terms.clear();
    work.traffic = {};
    work.compute_ns = l < block_.compute_ns.size() ? block_.compute_ns[l] * scale_ : 0;
    std::fill(std::begin(lane.accesses_by_tier), std::end(lane.accesses_by_tier), 0.0);
  }
  for (std::size_t c = 0; c < counts_.size(); ++c) {
    const trace::StreamClass& stream_class = info_.classes[c];
    LaneState& lane = lanes_[stream_class.lane];
    for (const AccessKind kind : {AccessKind::load, AccessKind::store}) {
      for (const Tier tier : {Tier::fast, Tier::slow}) {
        const auto simulated = counts_[c].by[index(kind)][index(tier)];
        if (simulated == 0) continue;
        const double accesses = static_cast<double>(simulated) * scale_;
        const bool load = kind == AccessKind::load;
        const double fetched = load ? accesses : accesses * stream_class.store_fill;
        lane.work.terms.push_back(
            {fetched, stream_class.issue_ns, wait_[c][index(kind)][index(tier)], tier});
        lane.work.traffic[index(tier)] +=
            Traffic{fetched * line_bytes, load ? 0 : accesses * line_bytes};
        lane.accesses_by_tier[index(tier)] += fetched;
        (load ? counters_.loads : counters_.stores)[index(tier)] += accesses;
        sums()[load ? (tier == Tier::fast ? Sum::loads_fast : Sum::loads_slow)
                    : (tier == Tier::fast ? Sum::stores_fast : Sum::stores_slow)] += accesses;
      }
    }
  }

  const double before_ns = now_ns_;
  const double most = 1 - 1 / static_cast<double>(lanes_.size());
  for (LaneState& lane : lanes_) {
    LaneWork& work = lane.work;
    lane.active = !work.terms.empty() || work.compute_ns > 0;
    lane.time = {};
    if (!lane.active) {
      lane.demand = {};
      work.in_flight_ns2 = lane.samples = 0;
      continue;
    }
    for (std::size_t t = 0; t < tier_count; ++t) {
      double background = 0;
      for (const LaneState& peer : lanes_)
        if (&peer != &lane) background += peer.demand[t];
      work.background[t] = std::min(background, most);
    }
    std::array<double, tier_count> own{};
    for (std::size_t t = 0; t < tier_count; ++t) {
      own[t] = transfer_ns(profile_.tiers[t], work.traffic[t]);
      work.traffic[t] += moved[t];
    }
    work.migration_ns =
        (moves * profile_.migration_shootdown_us * 1e3 + shared_moves_ns_ * shared_part) *
        lane.threads;
    // No more threads can wait for a page than there are.
    work.in_flight_limit_ns = away_ns / 2 * lane.threads;
    work.sampling_ns =
        lane.samples * profile_.sample_assist_ns + shared_sampling_ns_ * shared_part * lane.threads;
    work.policy_ns = shared_policy_ns_ * shared_part * lane.threads;
    lane.time = solve(work, profile_.tiers, lane.last_ns);
    lane.last_ns = lane.time.total;
    for (std::size_t t = 0; t < tier_count; ++t)
      lane.demand[t] = lane.time.total > 0 ? own[t] / lane.time.total : 0;
    lane.section += lane.time;
    lane.clock_ns += lane.time.total;
    now_ns_ = std::max(now_ns_, lane.clock_ns);
    counters_.samples_taken += lane.samples;
    sums()[Sum::samples] += lane.samples;
    work.in_flight_ns2 = lane.samples = 0;
  }
  shared_sampling_ns_ = shared_policy_ns_ = shared_moves_ns_ = 0;

  for (std::size_t c = 0; c < counts_.size(); ++c) {
    const trace::StreamClass& stream_class = info_.classes[c];
    const LaneState& lane = lanes_[stream_class.lane];
    for (std::size_t t = 0; t < tier_count; ++t) {
      const double loads = static_cast<double>(counts_[c].by[index(AccessKind::load)][t]) * scale_;
      if (loads == 0) continue;
      const double latency =
          wait_[c][index(AccessKind::load)][t] * stream_class.mlp * lane.time.factor[t];
      const double cycles =
          loads * outstanding_ns(latency, stream_class.mlp, stream_class.issue_ns) * profile_.ghz;
      counters_.a1_cycles += cycles;
      counters_.a3_reads += loads;
      sums()[Sum::a1_cycles] += cycles;
      sums()[Sum::a3_reads] += loads;
    }
  }

  return now_ns_ - before_ns;
}

/// Latency of the block's sampled operations: their own accesses at the pages' tiers and the
/// block's loaded latencies, with what a wait for bandwidth or for a page in flight adds.
void Machine::record_operations() {
  for (const trace::Operation& operation : block_.sampled) {
    double latency = operation.compute_ns;
    for (const trace::OpAccess& access : operation.accesses) {
      const trace::StreamClass& stream_class = info_.classes[access.stream_class];
      const LaneState& lane = lanes_[stream_class.lane];
      const std::uint64_t page = access.page >> space_.shift();
      const std::size_t t = index(tier_of(page));
      double each =
          std::max(stream_class.issue_ns,
                   wait_[access.stream_class][index(access.kind)][t] * lane.time.factor[t]);
      if (lane.time.bandwidth > 0 && t == index(lane.time.limiting))
        each += lane.time.bandwidth * lane.threads / std::max(1.0, lane.accesses_by_tier[t]);
      if (!in_flight_.empty() && moving_.test(page) && lane.time.total > 0 &&
          !(traits_.write_protected_moves && access.kind == AccessKind::load)) {
        const double away = move_ns_[index(other(tier_of(page)))];
        each += std::min(1.0, away / lane.time.total) * away / 2;
      }
      const double fetched =
          access.kind == AccessKind::load ? access.count : access.count * stream_class.store_fill;
      latency += fetched * each;
    }
    latencies_.add(operation.kind, latency);
  }
}

// ------------------------------------------------------------------------------------ tiering

void Machine::pay(double cost, double& budget) {
  const double paid = std::min(cost, budget);
  budget -= paid;
  debt_ns_ += cost - paid;
  sums()[Sum::tiering_cpu_seconds] += cost * 1e-9;
}

/// One core's worth of work in the block: what it still owes, then the rings, then the tick, then
/// (without mover threads) the moves.
void Machine::run_tiering_thread(double block_ns) {
  double budget = block_ns;
  const auto work_done = [&] {
    const double cost = std::exchange(charged_ns_, 0.0);
    shared_policy_ns_ += cost;
    return cost;
  };
  const double paid = std::min(debt_ns_, budget);
  debt_ns_ -= paid;
  budget -= paid;
  pay(work_done(), budget);  // of callbacks at the border

  // The rings: fresh samples join those that wait; what fits neither the thread's time nor the
  // rings is lost, evenly over the block.
  const double drain = profile_.sample_drain_ns * scale_;
  const double each = drain + sample_work_ns_;
  const std::size_t ready = waiting_.size() + fresh_.size();
  std::size_t deliver = 0;
  if (budget > 0) {
    const double can = each > 0 ? std::ceil(budget / each) : static_cast<double>(ready);
    deliver = can < static_cast<double>(ready) ? static_cast<std::size_t>(can) : ready;
  }
  const auto ring = static_cast<std::size_t>(std::max(1.0, profile_.sample_queue / scale_));
  const std::size_t stays = ready - deliver;
  const std::size_t lost = stays > ring ? std::min(stays - ring, fresh_.size()) : 0;
  if (lost > 0) {
    counters_.samples_lost += static_cast<double>(lost) * scale_;
    sums()[Sum::samples_lost] += static_cast<double>(lost) * scale_;
  }
  sampler_.shuffle(fresh_);
  waiting_.insert(waiting_.end(), fresh_.begin(), fresh_.end() - static_cast<std::ptrdiff_t>(lost));
  fresh_.clear();
  deliver = std::min(deliver, waiting_.size());
  if (deliver > 0) {
    policy_->on_samples(std::span{waiting_}.first(deliver), now());
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(deliver));
    const double work = work_done();
    const double drained = drain * static_cast<double>(deliver);
    shared_sampling_ns_ += drained;
    pay(work + drained, budget);
    const double weight = 1.0 / 16;
    sample_work_ns_ += weight * (work / static_cast<double>(deliver) - sample_work_ns_);
  }

  // A busy thread ticks late, never early.
  if (now_ns_ >= next_tick_ns_ && debt_ns_ <= 0) {
    policy_->tick(now());
    pay(work_done(), budget);
    next_tick_ns_ = now_ns_ + static_cast<double>(policy_->tick_period().count());
  }

  idle_share_ = block_ns > 0 ? budget / block_ns : 1;
  const double mover_ns = traits_.mover_threads > 0 ? block_ns * traits_.mover_threads : budget;
  mover_credit_ns_ += mover_ns - mover_used_ns_;
  // An idle mover saves nothing up; a waiting one at most what the page in front of it costs.
  const double most = queue_.empty() ? 0 : move_ns_[index(queue_.front().to)] * scale_;
  mover_credit_ns_ = std::min(mover_credit_ns_, most);
  sums()[Sum::mover_cpu_seconds] += mover_used_ns_ * 1e-9;
  shared_moves_ns_ += mover_used_ns_;
}

// ------------------------------------------------------------------------------------ the run

/// Set-up and timed parts alternate at barriers: all lanes wait for the last one.
void Machine::enter_section(bool timed) {
  if (timed_) {
    const auto last = std::ranges::max_element(
        lanes_, {}, [](const LaneState& lane) { return lane.section.total; });
    timed_time_ += last->section;
    timed_before_ns_ += last->section.total;
  }
  for (LaneState& lane : lanes_) {
    lane.clock_ns = now_ns_;
    lane.section = {};
  }
  section_start_ns_ = now_ns_;
  timed_ = timed;
}

Occupancy Machine::occupancy() const {
  Occupancy occupancy;
  const std::uint64_t capacity = capacity_[index(Tier::fast)];
  if (capacity == 0) return occupancy;
  occupancy.used_share =
      static_cast<double>(capacity - free_[index(Tier::fast)]) / static_cast<double>(capacity);
  // Pages at multiples of the golden ratio (mod 1) of the address space are evenly spread and the
  // same in every run; each second goes on where the last one stopped, so that a minute has seen
  // thousands of them.
  constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ULL;
  constexpr std::uint64_t wanted = 128;
  constexpr std::uint64_t tries = 32 * wanted;
  std::uint64_t found = 0;
  const std::uint64_t pages = space_.pages();
  for (std::uint64_t i = 0; i < tries && found < wanted; ++i) {
    const std::uint64_t page = ((series_.rows() * tries + i) * golden >> 32) * pages >> 32;
    if (where(page) != Residency::fast) continue;
    ++found;
    occupancy.heat[static_cast<std::size_t>(policy_->heat(PageId{page}))] += 1;
  }
  if (found > 0)
    for (double& share : occupancy.heat) share *= occupancy.used_share / static_cast<double>(found);
  return occupancy;
}

void Machine::end_second() {
  Gauges gauges;
  policy_->gauges(gauges);
  series_.row(timed_sums_, occupancy(), static_cast<double>(policy_->metadata_bytes()) * scale_,
              gauges, latencies_);
}

/// Looks at the wall clock every few milliseconds, not at every block.
void Machine::watch(std::uint64_t done_blocks) {
  constexpr std::uint64_t entries_between = std::uint64_t{1} << 20;
  if (entries_ < entries_between && done_blocks % 64 != 0) return;
  entries_ = 0;
  look_at_clock(done_blocks);
}

void Machine::look_at_clock(std::uint64_t done_blocks) {
  const auto clock = std::chrono::steady_clock::now();
  if (options_.deadline_seconds &&
      std::chrono::duration<double>(clock - started_).count() > *options_.deadline_seconds)
    throw DeadlineExceeded{};
  if (options_.progress && clock - reported_ >= std::chrono::milliseconds(50)) {
    reported_ = clock;
    if (!options_.progress(static_cast<double>(done_blocks) / static_cast<double>(info_.blocks)))
      throw Interrupted{};
  }
}

RunResult Machine::run() {
  for (std::uint64_t b = 0; b < info_.blocks; ++b) {
    stream_.read(b, block_);
    finish_moves();
    if (block_.timed != timed_) enter_section(block_.timed);
    apply_events();
    start_moves();
    std::ranges::fill(counts_, ClassCounts{});
    std::array<double, 2> events{};
    for (const trace::Segment& segment : block_.segments)
      events[index(segment.kind)] += static_cast<double>(segment.sum);
    for (const AccessKind kind : {AccessKind::load, AccessKind::store})
      sampler_.observe(kind, events[index(kind)], block_.nominal_ns * pace_);
    if (in_flight_.empty()) {
      play<false>();
    } else {
      play<true>();
    }
    const double block_ns = solve_block();
    if (!(now_ns_ <= most_ns))
      throw std::runtime_error("the stream takes more than 1,000,000 virtual seconds");
    if (block_.nominal_ns > 0 && block_ns > 0) pace_ = block_ns / block_.nominal_ns;
    for (const std::uint64_t operations : block_.operations)
      sums()[Sum::operations] += static_cast<double>(operations) * scale_;
    if (timed_) record_operations();
    run_tiering_thread(block_ns);
    peak_metadata_bytes_ =
        std::max(peak_metadata_bytes_, static_cast<double>(policy_->metadata_bytes()) * scale_);
    if (timed_) {
      const double timed_ns = timed_before_ns_ + now_ns_ - section_start_ns_;
      while (timed_ns >= 1e9 * static_cast<double>(series_.rows() + 1)) {
        end_second();
        if (series_.rows() % 1024 == 0) look_at_clock(b);  // a block may be days long
      }
    }
    watch(b + 1);
  }
  finish_moves();
  return result();
}

RunResult Machine::result() {
  enter_section(false);
  RunResult result;
  result.seconds = timed_time_.total * 1e-9;
  result.total_seconds = now_ns_ * 1e-9;
  result.operations = timed_sums_[Sum::operations];
  for (std::size_t kind = 0; kind < info_.op_kinds.size(); ++kind)
    result.latency[info_.op_kinds[kind].name] = latencies_.summary(kind);

  auto& metrics = result.metrics;
  for (std::size_t s = 0; s < sum_count; ++s)
    metrics[std::string(name(static_cast<Sum>(s)))] = timed_sums_.values[s];
  metrics["fast_hit_ratio"] = fast_hit_ratio(timed_sums_, 0);
  const double reads = timed_sums_[Sum::a3_reads];
  metrics["aol_cycles"] = reads > 0 ? timed_sums_[Sum::a1_cycles] / reads : 0;
  metrics["policy_cpu_share"] =
      result.seconds > 0 ? timed_sums_[Sum::tiering_cpu_seconds] / result.seconds : 0;
  metrics["peak_metadata_bytes"] = peak_metadata_bytes_;
  const double page = static_cast<double>(page_bytes_) * scale_;
  metrics["footprint_bytes"] = static_cast<double>(footprint_) * page;
  metrics["fast_capacity_bytes"] = static_cast<double>(capacity_[index(Tier::fast)]) * page;

  result.breakdown = {
      {"compute", timed_time_.compute * 1e-9},
      {"fast_stall", timed_time_.stall[index(Tier::fast)] * 1e-9},
      {"slow_stall", timed_time_.stall[index(Tier::slow)] * 1e-9},
      {"bandwidth", timed_time_.bandwidth * 1e-9},
      {"migration", timed_time_.migration * 1e-9},
      {"sampling", timed_time_.sampling * 1e-9},
      {"policy", timed_time_.policy * 1e-9},
  };
  result.series = series_.take();
  return result;
}

}  // namespace

RunResult simulate(const trace::Reader& stream, const MachineProfile& machine,
                   const PolicyInfo& policy,
                   const std::map<std::string, KnobValue, std::less<>>& knobs,
                   const RunOptions& options) {
  check(machine, options);
  return Machine(stream, machine, policy, knobs, options).run();
}

}  // namespace tt::sim
