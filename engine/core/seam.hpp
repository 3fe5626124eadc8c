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
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/knob.hpp"
#include "core/types.hpp"

namespace tt {

/// What a policy cannot do without (PolicyTraits::needs). A substrate refuses a policy by name,
/// before the run, when it lacks one of them: require_needs().
enum class Need : std::uint32_t {
  nothing = 0,
  samples = 1,         // set_sampling(), on_samples()
  faults = 2,          // protect(), on_faults()
  accessed_bits = 4,   // accessed()
  probes = 8,          // probe(), on_probed()
  tier_counters = 16,  // Counters::tier
  mixed_pages = 32,    // unit(), reshape()
  shadows = 64,        // Movers::shadows
  sites = 128,         // the site of on_map(), site()
  future = 256,        // Oracle
};
[[nodiscard]] constexpr Need operator|(Need a, Need b) {
  return static_cast<Need>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
/// Whether `all` has every need of `some`.
[[nodiscard]] constexpr bool includes(Need all, Need some) {
  return (static_cast<std::uint32_t>(some) & ~static_cast<std::uint32_t>(all)) == 0;
}
/// "hint faults, probes": their names, separated by commas.
[[nodiscard]] std::string names(Need needs);

/// Tiers as a set.
enum class Tiers : std::uint8_t { fast = 1, slow = 2, both = 3 };
[[nodiscard]] constexpr bool includes(Tiers tiers, Tier tier) {
  return (static_cast<unsigned>(tiers) >> index(tier) & 1U) != 0;
}

/// A bit per page of a range: page i of the range is bit i % 64 of word i / 64.
using PageMask = std::span<std::uint64_t>;
[[nodiscard]] constexpr std::size_t mask_words(std::uint64_t pages) { return (pages + 63) / 64; }
[[nodiscard]] constexpr bool in_mask(std::span<const std::uint64_t> mask, std::uint64_t page) {
  return (mask[page / 64] >> (page % 64) & 1U) != 0;
}

/// One sampled access (PEBS, IBS): which page, which tier answered, load or store.
struct Sample {
  PageId page;
  Tier tier = Tier::fast;
  AccessKind kind = AccessKind::load;
};

/// What the policy wants to be sampled. A period counts events between two samples; a frequency
/// asks the substrate to adjust the period to so many samples a second over the whole system
/// (perf's -F): of each tier, of each core, or of each tier on each core, where the policy opens an
/// event for each of them. Events are demand loads that missed the last level of cache, and all
/// retired stores.
struct SamplingRequest {
  enum class Mode : std::uint8_t { off, period, frequency };
  struct Event {
    Mode mode = Mode::off;
    double value = 0;      // events per sample, or samples per second
    bool by_tier = false;  // a frequency is of each tier
    bool by_core = false;  // a frequency is of each core
    friend bool operator==(const Event&, const Event&) = default;
  };
  Event loads;
  Event stores;
  double fast_share = 1;  // of the load samples in the fast tier, those that are taken
  friend bool operator==(const SamplingRequest&, const SamplingRequest&) = default;
};

/// The first access to a page since protect() took its access rights away.
struct Fault {
  PageId page;
  Tier tier = Tier::slow;
  AccessKind kind = AccessKind::load;
  Nanos since{};  // how long the page had been protected
};

/// A question: is the page accessed within [from, from + length)? DAMON's sampled accessed bit.
struct Probe {
  PageId page;
  Nanos from{}, length{};
  bool accessed = false;  // the answer
};

/// What crosses a tier's memory controller, page copies included; cumulative since start. With
/// differences over an interval, latency = occupancy / reads and parallelism = occupancy / busy (as
/// in Colloid, SOSP'24, and PACT, ASPLOS'26), and bandwidth = bytes / time.
struct TierCounters {
  double read_bytes = 0, written_bytes = 0;
  double reads = 0;         // demand reads (inserts into the table of outstanding requests)
  double occupancy_ns = 0;  // sum over reads of the time that each was outstanding
  double busy_ns = 0;       // time with at least one of them outstanding
};

/// Counters that the hardware or the kernel keeps whether or not anything is sampled; cumulative
/// since start, and of the pages that the policy sees: in a miniature those of the miniature, like
/// every other count. a1 and a3 are those of Soar/Alto (OSDI'25, Table 1): cycles with at least one
/// outstanding demand read, and number of demand reads. AOL over an interval is their ratio of
/// differences.
struct Counters {
  std::array<double, tier_count> loads{};  // as the sampled event counts them
  std::array<double, tier_count> stores{};
  double a1_cycles = 0;
  double a3_reads = 0;
  // Of the application's threads: all, and those in which one waits for memory (s_LLC there).
  double cycles = 0;
  double stall_cycles = 0;
  double samples_taken = 0;
  double samples_lost = 0;
  double sampling_seconds = 0;  // processor time that draining samples and on_samples() have taken
  std::array<TierCounters, tier_count> tier{};
  double hint_faults = 0;
  // Not cumulative: what there is now.
  double protected_pages = 0;
  double shadow_pages = 0;
};

enum class Outcome : std::uint8_t {
  done,      // the page is in the requested tier now
  no_space,  // the target tier was full when its turn came
  busy,      // pinned, locked, or dirtied under the copy: may be asked again
  gone,      // unmapped before or while it moved
};

/// What a migration result is about: a request() moves pages, a reshape() splits or collapses them.
enum class Change : std::uint8_t { move, split, collapse };

struct MigrationResult {
  PageId page;
  Tier to = Tier::fast;
  Outcome outcome = Outcome::done;
  Change change = Change::move;
  Nanos cost{};  // the mover's time for each page of the unit; 0 where it is not measured
};

/// How urgent a move is.
enum class Way : std::uint8_t {
  background,  // queued; movers get to it
  in_fault,    // inside on_faults() and for its pages only: the faulting thread moves them
};

/// What happens to a page while it is copied.
enum class Copy : std::uint8_t {
  blocking,         // every access to it waits
  write_protected,  // stores wait (HeMem, SOSP'21, §3.2)
  transactional,    // nothing waits; a store makes the copy void (Nomad, OSDI'24)
};

/// How this policy's pages move: a standing request, which may change at any time.
struct Movers {
  unsigned threads = 1;   // 0: the tiering thread itself
  unsigned together = 1;  // so many threads copy one page, each a part of it
  Copy copy = Copy::blocking;
  unsigned retries = 0;  // transactional: further attempts after a store made a copy void
  bool shadows = false;  // a promoted page keeps its old copy until it is written (Need::shadows)
  friend bool operator==(const Movers&, const Movers&) = default;
};

/// Limits on the fast tier's free pages, as shares of its capacity; 0: none. Below `wake` the
/// policy gets on_pressure() at once, and again every quantum while it lasts. Below `reserve` first
/// touches go to the slow tier.
struct Watermarks {
  double reserve = 0, wake = 0;
  friend bool operator==(const Watermarks&, const Watermarks&) = default;
};

/// Work that a policy does per event. The simulator charges its cost from the machine profile; on a
/// live machine the work itself has taken the time.
enum class Work : std::uint8_t {
  tracker_update,  // one counter increment (after coalescing)
  tracker_lookup,  // one counter read
  cooling_step,    // one 64-byte line of counters halved
  scan_step,       // one page's residency looked up
  threshold_pass,  // one pass over a hotness histogram
  pte_scan,        // one page's accessed bit read or cleared, in order of addresses
  lru_step,        // one page moved along a list, its accessed bit looked up by page
  probe,           // one sampled accessed bit: cleared, and looked at later
  sort_step,       // one item of a sort
};
inline constexpr std::size_t work_count = 9;
/// Whether there is more of this work the more pages there are. What is left is done as often on a
/// small system as on a large one: the simulator does not scale it.
[[nodiscard]] constexpr bool per_page(Work kind) {
  return kind != Work::threshold_pass && kind != Work::probe;
}

/// Whose time the work takes: the tiering system's own threads', or the application's (what a
/// kernel does inside a fault, or as a task's own work).
enum class Payer : std::uint8_t { daemon, application };

/// Everything that a policy can ask of the substrate. What a substrate may lack has a default,
/// which throws std::logic_error by name: a policy that gets there did not name it in its needs. A
/// wrapper derives from ForwardingMemory (core/forwarding.hpp), so that it cannot forget a
/// function.
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
  /// The page itself, or the 512 base pages that it is mapped with where page sizes are mixed.
  [[nodiscard]] virtual PageRange unit(PageId page) const { return {page, 1}; }

  /// Queues pages for migration, in one order for both directions, and returns at once. Pages that
  /// are in that tier already, or on their way to it, are dropped and never reported. Returns how
  /// many pages from the front were taken (queued or dropped); the rest did not fit the queue.
  virtual std::size_t request(Tier to, std::span<const PageId> pages,
                              Way way = Way::background) = 0;
  /// Pages that are queued or in flight toward the tier.
  [[nodiscard]] virtual std::uint64_t pending(Tier to) const = 0;
  virtual void set_movers(const Movers& movers);
  virtual void set_watermarks(const Watermarks& marks) = 0;
  /// Queues units to be split, or groups of base pages to be collapsed; the results arrive through
  /// on_migrated(). Returns how many from the front were taken. Need::mixed_pages.
  virtual std::size_t reshape(Change to, std::span<const PageId> units);

  virtual void set_sampling(const SamplingRequest& request) = 0;
  [[nodiscard]] virtual Counters counters() const = 0;

  /// Takes access rights away from the pages of `range` that are in `which` and not protected yet,
  /// with one TLB flush: the first access to each of them is reported through on_faults(), and
  /// gives the rights back. Returns how many pages it protected. `untouched` is empty or a mask of
  /// the range, and tells which of these pages had been protected already and not been accessed
  /// since. The application pays, as for a kernel's task work. Need::faults.
  virtual std::uint64_t protect(PageRange range, Tiers which, PageMask untouched);
  /// Which pages of `range` have been accessed since their accessed bit was last cleared; with
  /// `clear` the bits are cleared. Absent pages have not. Nothing is kept before the first call
  /// with `clear`: until then every page has been accessed. A huge page has one bit, so that its
  /// base pages answer alike. The policy charges the scan (Work::pte_scan). Need::accessed_bits.
  virtual void accessed(PageRange range, PageMask out, bool clear);
  /// The answers come through on_probed() once the last of these probes is over. A call whose first
  /// probe would have begun by now is put off as a whole, as the answers' times say. A probe of a
  /// page that is absent, or goes away, answers no. Need::probes.
  virtual void probe(std::span<const Probe> probes);

  /// About the shortest time between two callbacks: a block of the simulator, a timer on a live
  /// machine.
  [[nodiscard]] virtual Nanos quantum() const = 0;
  /// Name of an allocation site that on_map() told; empty where it has none. Need::sites.
  [[nodiscard]] virtual std::string_view site(std::uint32_t id) const;

  /// Reports work done by the policy (see Work).
  virtual void charge(Work kind, std::uint64_t times, Payer by = Payer::daemon) = 0;
};

/// What a policy thinks of a page, for the occupancy report.
enum class Heat : std::uint8_t { cold = 0, warm = 1, hot = 2 };

/// Figures a policy shows once a second: thresholds, sampling level, and the like. Names become
/// time-series columns: lower case, underscores, unit as suffix where it has one.
using Gauges = std::map<std::string, double, std::less<>>;

/// A row of a table that a policy reports at the end of a run; cells by column.
struct Row {
  std::string table;
  std::map<std::string, std::variant<double, std::string>, std::less<>> cells;
  friend bool operator==(const Row&, const Row&) = default;
};
using Rows = std::vector<Row>;

/// Where objects belong, by the site that allocated them: what Soar knows from a profiling run.
/// Best ones first.
struct Placement {
  struct Object {
    std::string site;
    double score = 0;        // per page: why it stands where it does
    double pages = 0;        // managed pages of this run; may be a fraction in a miniature
    std::uint32_t slot = 0;  // objects that are never there at the same time may share one
    friend bool operator==(const Object&, const Object&) = default;
  };
  std::vector<Object> objects;
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// A wrapper derives from ForwardingPolicy (core/forwarding.hpp), so that it cannot forget a
/// function.
class Policy {
 public:
  virtual ~Policy() = default;

  /// Address ranges that appear or vanish. Called before the first sample of a new range. `site`:
  /// where it was allocated, one number for each site (Memory::site); 0 where sites are not known.
  virtual void on_map(PageRange range, std::uint32_t site, Nanos now) = 0;
  virtual void on_unmap(PageRange range, Nanos now) = 0;
  /// Where the pages of this range should be placed when first touched: one answer for the range. A
  /// substrate that can place page by page asks as finely as PolicyTraits::placement says, else per
  /// mapping. It falls back to the other tier when this one is full.
  [[nodiscard]] virtual Tier placement(PageRange range) const = 0;

  virtual void on_samples(std::span<const Sample> samples, Nanos now) = 0;
  /// In the context of the faulting threads, in order of pages. A fault may name a page that has
  /// moved or gone since.
  virtual void on_faults(std::span<const Fault>, Nanos) {}
  /// One call of probe(), answered, in its order.
  virtual void on_probed(std::span<const Probe>, Nanos) {}
  /// The tier's free pages are below Watermarks::wake. It may come between first touches of a
  /// range.
  virtual void on_pressure(Tier, Nanos) {}
  /// Called once in each tick_period(): late if the policy's thread is busy, never early. Ticks
  /// that a busy thread missed are not made up for.
  virtual void tick(Nanos now) = 0;
  [[nodiscard]] virtual Nanos tick_period() const = 0;
  virtual void on_migrated(std::span<const MigrationResult> results, Nanos now) = 0;

  /// Bytes of tracking metadata held now.
  [[nodiscard]] virtual std::uint64_t metadata_bytes() const = 0;
  virtual void gauges(Gauges& out) const = 0;
  [[nodiscard]] virtual Heat heat(PageId page) const = 0;
  /// Tables that it has at the end of the run.
  virtual void report(Rows&) const {}
  /// What it has learned in a profiling run (PolicyTraits::profiled).
  [[nodiscard]] virtual Placement profile() const { return {}; }
};

/// What only oracles know: the rest of the run, which is a sequence of blocks. Everything is dense
/// by page number. A time that is said of a page is that of all real pages that it stands for.
struct Oracle {
  /// Over the whole run.
  std::span<const std::uint64_t> accesses;
  /// How long each block takes with all memory fast; 0 for set-up, which does not count.
  std::span<const double> block_ns;
  /// The blocks [born, gone) in which a page may be accessed: from its first touch on.
  struct Life {
    std::uint32_t born = 0, gone = 0;
  };
  std::span<const Life> lives;
  /// Adds to each page the run time that blocks [first, last) would save if it were in the fast
  /// tier and not in the slow one, at the latencies of idle memory. One value for each page.
  std::function<void(std::uint64_t first, std::uint64_t last, std::span<float> out)> saved;
  /// The first block that has not been played yet.
  std::function<std::uint64_t()> next_block;
  double move_ns = 0;   // run time that moving a page costs
  double mover_ns = 0;  // of a mover thread, for a page
};

/// How finely a policy wants to be asked for the placement of first touches.
enum class Granularity : std::uint8_t {
  range,   // a run of pages at a time: nothing sets a page apart from its neighbours
  page,    // each page
  object,  // as much of an allocation as is touched at a time
};

/// What a policy assumes; part of the published system, not of the machine.
struct PolicyTraits {
  std::uint64_t page_bytes = 4096;  // its native managed page
  bool unbounded_fast = false;      // the fast tier holds everything (all-fast)
  bool migrates = true;             // it may ask for a move
  // It goes by a Placement. Without one it profiles: a substrate that is not given one runs the
  // program on fast memory alone first, and takes what Policy::profile() then says.
  bool profiled = false;
  // Only then, if there is a condition: then it needs Need::sites, whatever `needs` says.
  std::optional<KnobCondition> profiled_when;
  Need needs = Need::samples;
  Granularity placement = Granularity::range;
  double standing_threads = 0;  // that spin, whether there is work or not
};

struct PolicyContext {
  Memory& memory;
  const Knobs& knobs;  // scaled; copied by the policy if kept
  const Oracle* oracle = nullptr;
  std::uint64_t seed = 0;
  const Placement* placement = nullptr;
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

/// Whether it goes by a Placement with these knobs (PolicyTraits::profiled).
[[nodiscard]] bool goes_by_placement(const PolicyInfo& policy, const Knobs& knobs);

/// All policies linked into this program, sorted by family and name.
[[nodiscard]] std::span<const PolicyInfo> policies();
/// Throws std::invalid_argument naming the known ones.
[[nodiscard]] const PolicyInfo& policy(std::string_view name);
/// Throws std::invalid_argument naming what the policy needs with these knobs and the substrate
/// does not offer.
void require_needs(const PolicyInfo& policy, const Knobs& knobs, Need offered,
                   std::string_view substrate);

/// A policy file announces itself: `static const RegisterPolicy registered{{...}};`
class RegisterPolicy {
 public:
  explicit RegisterPolicy(PolicyInfo info);
};

}  // namespace tt
