// The seam between a policy and a substrate (simulated machine or live process).
//
// A policy sees batches of events and a clock, and asks for migrations. It cannot tell which
// substrate it runs on. Virtual dispatch happens per batch, never per access.
//
// What a policy must expect, because a live process does it:
//  - a request is asynchronous: it may start late, complete partly, or fail (`Outcome`);
//  - a sample may name a page that is gone by now, or one in no known range;
//  - ranges appear and vanish at any time; requests on vanished pages come back as `gone`;
//  - the substrate may call tick() late, never early.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/knob.hpp"
#include "core/types.hpp"

namespace tt {

/// One sampled access (PEBS, IBS): which page, which tier answered, load or store.
struct Sample {
  PageId page;
  Tier tier = Tier::fast;
  AccessKind kind = AccessKind::load;
};

/// What the policy wants to be sampled. A period counts events between two samples; a frequency
/// asks the substrate to adjust the period to so many samples a second over the whole system
/// (perf's -F). Events are last-level-cache load misses, and stores.
struct SamplingRequest {
  enum class Mode : std::uint8_t { off, period, frequency };
  struct Event {
    Mode mode = Mode::off;
    double value = 0;  // events per sample, or samples per second
    friend bool operator==(const Event&, const Event&) = default;
  };
  Event loads;
  Event stores;
  friend bool operator==(const SamplingRequest&, const SamplingRequest&) = default;
};

/// Counters that the hardware keeps whether or not anything is sampled; cumulative since start, and
/// of the pages that the policy sees: in a miniature those of the miniature, like every other count.
/// a1 and a3 are those of Soar/Alto (OSDI'25, Table 1): cycles with at least one outstanding
/// demand read, and number of demand reads. AOL over an interval is their ratio of differences.
struct Counters {
  std::array<double, tier_count> loads{};
  std::array<double, tier_count> stores{};
  double a1_cycles = 0;
  double a3_reads = 0;
  double samples_taken = 0;
  double samples_lost = 0;
};

enum class Outcome : std::uint8_t {
  done,      // the page is in the requested tier now
  no_space,  // the target tier was full when its turn came
  busy,      // pinned, locked, or dirtied under the copy: may be asked again
  gone,      // unmapped before or while it moved
};

struct MigrationResult {
  PageId page;
  Tier to = Tier::fast;
  Outcome outcome = Outcome::done;
};

/// Work that a policy does per event. The simulator charges its cost from the machine profile on
/// the tiering thread; live it has already cost what it costs.
enum class Work : std::uint8_t {
  tracker_update,  // one counter increment (after coalescing)
  tracker_lookup,  // one counter read
  cooling_step,    // one 64-byte line of counters halved
  scan_step,       // one page's residency looked up
  threshold_pass,  // one pass over a hotness histogram
};
inline constexpr std::size_t work_count = 5;
/// Whether there is more of this work the more pages there are. What is left is done as often on a
/// small system as on a large one: the simulator does not scale it.
[[nodiscard]] constexpr bool per_page(Work kind) { return kind != Work::threshold_pass; }

/// Everything that a policy can ask of the substrate.
class Memory {
 public:
  virtual ~Memory() = default;

  /// Bytes of one managed page.
  [[nodiscard]] virtual std::uint64_t page_bytes() const = 0;
  /// Managed pages that the tier can hold, and that are free now (in-flight targets count as used).
  [[nodiscard]] virtual std::uint64_t capacity(Tier tier) const = 0;
  [[nodiscard]] virtual std::uint64_t free_pages(Tier tier) const = 0;

  /// Where each page is. `out` has the size of `pages`.
  virtual void residency(std::span<const PageId> pages, std::span<Residency> out) const = 0;
  /// The same for a contiguous range starting at `first` (a pagemap read). `out.size()` pages.
  virtual void residency(PageId first, std::span<Residency> out) const = 0;

  /// Queues pages for migration, in one order for both directions, and returns at once. Pages that
  /// are in that tier already, or on their way to it, are dropped and never reported. Returns how
  /// many pages from the front were taken (queued or dropped); the rest did not fit the queue.
  virtual std::size_t request(Tier to, std::span<const PageId> pages) = 0;
  /// Pages that are queued or in flight toward the tier.
  [[nodiscard]] virtual std::uint64_t pending(Tier to) const = 0;

  virtual void set_sampling(const SamplingRequest& request) = 0;
  [[nodiscard]] virtual Counters counters() const = 0;

  /// Reports work done by the policy (see Work).
  virtual void charge(Work kind, std::uint64_t times) = 0;
};

/// What a policy thinks of a page, for the occupancy report.
enum class Heat : std::uint8_t { cold = 0, warm = 1, hot = 2 };

/// Figures a policy shows once a second: thresholds, sampling level, and the like. Names become
/// time-series columns: lower case, underscores, unit as suffix where it has one.
using Gauges = std::map<std::string, double, std::less<>>;

class Policy {
 public:
  virtual ~Policy() = default;

  /// Address ranges that appear or vanish. Called before the first sample of a new range.
  virtual void on_map(PageRange range, Nanos now) = 0;
  virtual void on_unmap(PageRange range, Nanos now) = 0;
  /// Where the pages of this range should be placed when first touched: one answer for the range. A
  /// substrate that can places page by page asks per page (the simulator), else per mapping. It
  /// falls back to the other tier when this one is full.
  [[nodiscard]] virtual Tier placement(PageRange range) const = 0;

  virtual void on_samples(std::span<const Sample> samples, Nanos now) = 0;
  /// Called once in each tick_period(): late if the policy's thread is busy, never early. Ticks that
  /// a busy thread missed are not made up for.
  virtual void tick(Nanos now) = 0;
  [[nodiscard]] virtual Nanos tick_period() const = 0;
  virtual void on_migrated(std::span<const MigrationResult> results, Nanos now) = 0;

  /// Bytes of tracking metadata held now.
  [[nodiscard]] virtual std::uint64_t metadata_bytes() const = 0;
  virtual void gauges(Gauges& out) const = 0;
  [[nodiscard]] virtual Heat heat(PageId page) const = 0;
};

/// Accesses per managed page over the whole run, known only to oracles: dense by page number.
struct Oracle {
  std::span<const std::uint64_t> accesses;
};

/// How a policy moves pages and what it assumes; part of the published system, not of the machine.
struct PolicyTraits {
  std::uint64_t page_bytes = 4096;     // its native managed page
  bool write_protected_moves = false;  // only stores wait for a page in flight (HeMem); else all do
  unsigned mover_threads = 1;          // threads that copy pages; 0: the tiering thread itself
  bool unbounded_fast = false;         // the fast tier holds everything (all-fast)
  bool needs_oracle = false;           // reads Oracle
};

struct PolicyContext {
  Memory& memory;
  const Knobs& knobs;  // scaled; copied by the policy if kept
  const Oracle* oracle = nullptr;
  std::uint64_t seed = 0;
};

struct PolicyInfo {
  std::string name;
  std::string family;    // "hybrid", "frequency", "static", "oracle", ...
  std::string summary;   // one line
  std::string citation;  // publication
  std::vector<KnobDecl> knobs;
  PolicyTraits traits;
  std::unique_ptr<Policy> (*make)(const PolicyContext&) = nullptr;
};

/// All policies linked into this program, sorted by family and name.
[[nodiscard]] std::span<const PolicyInfo> policies();
/// Throws std::invalid_argument naming the known ones.
[[nodiscard]] const PolicyInfo& policy(std::string_view name);

/// A policy file announces itself: `static const RegisterPolicy registered{{...}};`
class RegisterPolicy {
 public:
  explicit RegisterPolicy(PolicyInfo info);
};

}  // namespace tt
