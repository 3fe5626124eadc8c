// SPDX-License-Identifier: MIT

// offline-optimal: the schedule of pages that saves the most time, known in advance. What an online
// policy could reach at best if it also knew the future.
//
// An oracle, not a published system. It divides the stream into epochs, sums up by how much each
// page would shorten the run in each of them (stalls by class of access, not counts), and solves
// which pages should be fast when (classify/schedule.hpp). The two numbers that it reports bound
// the optimum from both sides: no schedule gains more than `bound`, and the one that it plays gains
// `gain`; the gap between them is what is not known. Both hold for the latencies of idle memory
// and for moves between epochs. Waiting for bandwidth is not in them: where the slow tier's is
// short, a policy can gain more than `bound` and beat this one (Soar does, on bc). Threads that run
// apart from each other (lanes) are added up, although the run ends with the last of them.
//
// Moves are not instantaneous. They are asked for at the border of two epochs, those of an epoch in
// one queue, demotions and promotions alternating, and the machine charges what it charges
// everybody. The schedule has a price for a move, which is the time that it takes from the
// application, and no more of them at a border than the movers have time for. The policy's own work
// costs nothing, since no system could do it; for the same reason it has no metadata.
//
// Memory of the solver: 8 bytes for each page and epoch. Epochs are made longer where that would
// pass 800 MB: 64 Ki pages may have 1500.
//
// epochs_     first block of each epoch, and the number of blocks at the end
// schedule_   the pages that belong in the fast tier, by epoch
// epoch_      the one that is being played
// settled_    everything is where this epoch wants it
#include <algorithm>
#include <functional>
#include <optional>
#include <stdexcept>
#include <vector>

#include "classify/schedule.hpp"
#include "core/make_policy.hpp"
#include "core/oracle.hpp"

namespace tt {
namespace {

constexpr std::uint64_t most_cells = 100'000'000;

class OfflineOptimal final : public Policy {
 public:
  explicit OfflineOptimal(const PolicyContext& context)
      : memory_(context.memory), movers_(context.knobs.integer("movers")) {
    if (context.oracle == nullptr || !context.oracle->saved || !context.oracle->next_block)
      throw std::invalid_argument("policy offline-optimal needs the future of the run (Oracle)");
    const Oracle& oracle = *context.oracle;
    next_block_ = oracle.next_block;
    movers_ = memory_.set_movers({.threads = static_cast<unsigned>(movers_)}).threads;
    divide(oracle, from_millis(context.knobs.real("epoch")));
    const classify::ScheduleProblem problem = state(oracle);
    schedule_.emplace(problem, static_cast<unsigned>(context.knobs.integer("steps")));
  }

  void on_map(PageRange, std::uint32_t, Nanos) override {}
  void on_unmap(PageRange, Nanos) override {}
  Tier placement(PageRange range) const override {
    return belongs(range.first.value, epoch_at(next_block_())) ? Tier::fast : Tier::slow;
  }
  void on_samples(std::span<const Sample>, Nanos) override {}
  void tick(Nanos) override {
    const std::uint64_t now = epoch_at(next_block_());
    if (now != epoch_) settled_ = false;
    epoch_ = now;
    if (settled_ || memory_.pending(Tier::fast) + memory_.pending(Tier::slow) > 0) return;
    rearrange();
  }
  Nanos tick_period() const override { return memory_.quantum(); }
  void on_migrated(std::span<const MigrationResult>, Nanos) override {}

  std::uint64_t metadata_bytes() const override { return 0; }
  void gauges(Gauges& out) const override {
    out["schedule_epoch"] = static_cast<double>(epoch_);
    out["schedule_epochs"] = static_cast<double>(epochs());
    out["schedule_gain_s"] = schedule_->gain() * 1e-9;
    out["schedule_bound_s"] = schedule_->bound() * 1e-9;
  }
  Heat heat(PageId page) const override {
    return belongs(page.value, epoch_) ? Heat::hot : Heat::cold;
  }
  void report(Rows& out) const override {
    const double bound = schedule_->bound();
    out.push_back({"schedule",
                   {{"epochs", static_cast<double>(epochs())},
                    {"moves", static_cast<double>(schedule_->moves())},
                    {"static_gain_s", schedule_->static_gain() * 1e-9},
                    {"gain_s", schedule_->gain() * 1e-9},
                    {"bound_s", bound * 1e-9},
                    {"gap", bound > 0 ? 1 - schedule_->gain() / bound : 0}}});
  }

 private:
  std::uint64_t epochs() const { return epochs_.size() - 1; }
  std::uint64_t epoch_at(std::uint64_t block) const {
    const auto after = std::ranges::upper_bound(epochs_, block);
    const auto epoch = static_cast<std::uint64_t>(after - epochs_.begin());
    return std::min(std::max<std::uint64_t>(epoch, 1), epochs()) - 1;
  }
  bool belongs(std::uint64_t page, std::uint64_t epoch) const {
    return page < pages_ && schedule_->fast(page, epoch);
  }

  /// Set-up takes no time and belongs to the epoch that follows it.
  void divide(const Oracle& oracle, Nanos length) {
    pages_ = oracle.lives.size();
    double all = 0;
    for (const double block : oracle.block_ns) all += block;
    const auto most = static_cast<double>(std::max<std::uint64_t>(1, most_cells / (pages_ + 1)));
    const double each = std::max(static_cast<double>(length.count()), all / most);
    epochs_ = {0};
    double now = 0;
    for (std::uint64_t block = 0; block < oracle.block_ns.size(); ++block) {
      if (now >= each) {
        epochs_.push_back(block);
        now = 0;
      }
      now += oracle.block_ns[block];
    }
    epochs_.push_back(oracle.block_ns.size());
  }

  classify::ScheduleProblem state(const Oracle& oracle) const {
    classify::ScheduleProblem problem{.pages = pages_,
                                      .epochs = epochs(),
                                      .capacity = memory_.capacity(Tier::fast),
                                      .value = std::vector<float>(pages_ * epochs()),
                                      .move_cost = oracle.move_ns};
    for (const auto& [born, gone] : oracle.lives) {
      problem.born.push_back(static_cast<std::uint32_t>(epoch_at(born)));
      const std::uint64_t end = gone > born ? epoch_at(gone - 1) + 1 : 0;  // 0: never there
      problem.gone.push_back(static_cast<std::uint32_t>(end));
    }
    for (std::uint64_t e = 0; e < epochs(); ++e)
      oracle.saved(epochs_[e], epochs_[e + 1],
                   std::span{problem.value}.subspan(e * pages_, pages_));
    // The movers have as long as an epoch takes under the best placement that never changes.
    const std::vector<bool> set = classify::best_static(problem);
    for (std::uint64_t e = 0; e < epochs(); ++e) {
      double time = 0;
      for (std::uint64_t b = epochs_[e]; b < epochs_[e + 1]; ++b) time += oracle.block_ns[b];
      for (std::uint64_t page = 0; page < pages_; ++page)
        if (!set[page]) time += static_cast<double>(problem.value[e * pages_ + page]);
      problem.moves.push_back(oracle.mover_ns > 0
                                  ? time * static_cast<double>(movers_) / oracle.mover_ns
                                  : static_cast<double>(2 * pages_));
    }
    return problem;
  }

  /// Asks for what is not where it belongs. What is slow for lack of room waits for who leaves.
  void rearrange() {
    constexpr std::uint64_t chunk = 4096;
    std::vector<Residency> where(std::min(chunk, pages_));
    std::vector<PageId> up, down;
    for (std::uint64_t first = 0; first < pages_; first += chunk) {
      const std::span found = std::span{where}.first(std::min(chunk, pages_ - first));
      memory_.residency({first}, found);
      for (std::uint64_t i = 0; i < found.size(); ++i) {
        if (found[i] == Residency::absent) continue;
        const bool hot = schedule_->fast(first + i, epoch_);
        if (hot && found[i] == Residency::slow) up.push_back({first + i});
        if (!hot && found[i] == Residency::fast) down.push_back({first + i});
      }
    }
    settled_ = up.empty() && down.empty();
    std::uint64_t room = memory_.free_pages(Tier::fast);
    std::size_t left = 0;
    for (std::size_t next = 0; next < up.size() || left < down.size();) {
      if (left < down.size() && (room == 0 || next == up.size())) {
        if (memory_.request(Tier::slow, std::span{down}.subspan(left++, 1), Way::background) == 0)
          return;
        ++room;
      } else if (next < up.size() && room > 0) {
        if (memory_.request(Tier::fast, std::span{up}.subspan(next++, 1), Way::background) == 0)
          return;
        --room;
      } else {
        return;
      }
    }
  }

  Memory& memory_;
  std::int64_t movers_;
  std::function<std::uint64_t()> next_block_;
  std::uint64_t pages_ = 0;
  std::vector<std::uint64_t> epochs_;
  std::optional<classify::Schedule> schedule_;
  std::uint64_t epoch_ = 0;
  bool settled_ = false;
};

std::vector<KnobDecl> offline_optimal_knobs() {
  using namespace knob;
  return list(
      real("epoch", 1000, {50, 600000, log}, milliseconds, "own choice",
           "time between two changes of the schedule, all memory fast; longer if memory is short"),
      integer("steps", 30, {1, 1000, log}, Unit::none, "own choice",
              "subgradient steps that lower the upper bound"),
      integer("movers", 4, {1, 64, log}, Unit::none, "HeMem, SOSP'21, §3.2: four copy threads",
              "threads that move pages, each its own"));
}

const RegisterPolicy offline_optimal_policy{{
    .name = "offline-optimal",
    .family = "oracle",
    .summary = "oracle: the pages that save the most stalls, epoch by epoch, moves included",
    .citation = "offline optimum by Lagrangian relaxation; not a published system",
    .knobs = offline_optimal_knobs(),
    .traits = {.needs = Need::future | Need::placement, .placement = Granularity::page},
    .make = make_policy<OfflineOptimal>,
}};

}  // namespace
}  // namespace tt
