// SPDX-License-Identifier: MIT

#include "live/journal.hpp"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>
#include <deque>
#include <istream>
#include <ostream>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/forwarding.hpp"
#include "core/seam.hpp"

namespace tt::live {
namespace {

constexpr std::string_view magic = "tiertune journal 2\n";
// What is more is damage: items in a list, pages, and bytes of a text.
constexpr std::uint64_t most_items = std::uint64_t{1} << 28;
constexpr std::uint64_t most_page_numbers = std::uint64_t{1} << 32;
constexpr std::uint64_t longest_text = std::uint64_t{1} << 20;

/// What a record is: an event that the policy is told of, or a call that it makes.
enum class Kind : std::uint8_t {
  map,
  unmap,
  placement,
  placed,
  samples,
  faults,
  probed,
  pressure,
  capacity_changed,
  tick,
  migrated,
  page_bytes,
  capacity,
  free_pages,
  excess_pages,
  residency,
  residency_range,
  unit,
  request,
  pending,
  set_movers,
  set_watermarks,
  reshape,
  set_sampling,
  counters,
  protect,
  accessed,
  accessed_range,
  probe,
  quantum,
  site,
  fault_again,
  leave_protected,
  end,
};
constexpr std::string_view kind_names[] = {
    "on_map",          "on_unmap",       "placement",    "placement's answer",
    "on_samples",      "on_faults",      "on_probed",    "on_pressure",
    "on_capacity",     "tick",           "on_migrated",  "page_bytes",
    "capacity",        "free_pages",     "excess_pages", "residency",
    "residency",       "unit",           "request",      "pending",
    "set_movers",      "set_watermarks", "reshape",      "set_sampling",
    "counters",        "protect",        "accessed",     "accessed",
    "probe",           "quantum",        "site",         "fault_again",
    "leave_protected",
};
static_assert(std::size(kind_names) == static_cast<std::size_t>(Kind::end));
std::string_view name(Kind kind) { return kind_names[static_cast<std::size_t>(kind)]; }
bool is_call(Kind kind) { return kind >= Kind::page_bytes; }

/// The journal is damaged, or ends here.
struct CutOff {};

// --- Values as bytes -----------------------------------------------------------------------------

/// Writes values, and reads them in the same order: one function says the form of each.
class Writer {
 public:
  static constexpr bool reads = false;
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
    bytes.push_back(static_cast<char>(value));
  }
  void text(const std::string& value) {
    number(value.size());
    bytes += value;
  }
  std::string bytes;
};

class Reader {
 public:
  static constexpr bool reads = true;
  explicit Reader(std::istream& in) : in_(in) {}
  [[nodiscard]] std::uint64_t position() const { return position_; }
  [[nodiscard]] bool at_end() { return in_.peek() == std::istream::traits_type::eof(); }

  std::uint8_t byte() {
    const int next = in_.get();
    if (next == std::istream::traits_type::eof()) throw CutOff{};
    ++position_;
    return static_cast<std::uint8_t>(next);
  }
  void number(std::uint64_t& value) {
    value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const std::uint8_t next = byte();
      if (shift == 63 && next > 1) wrong("a number of more than 64 bits");
      value |= static_cast<std::uint64_t>(next & 0x7f) << shift;
      if ((next & 0x80) == 0) return;
    }
  }
  void text(std::string& value) {
    std::uint64_t size = 0;
    number(size);
    if (size > longest_text) wrong("a text of " + std::to_string(size) + " bytes");
    value.clear();
    for (; size > 0; --size) value += static_cast<char>(byte());
  }
  [[noreturn]] void wrong(const std::string& what) const {
    throw std::runtime_error("no journal of a policy: byte " + std::to_string(position_) +
                             ": found " + what);
  }

 private:
  std::istream& in_;
  std::uint64_t position_ = 0;
};

template <typename Io, std::unsigned_integral T>
void value(Io& io, T& it) {
  std::uint64_t number = it;
  io.number(number);
  if constexpr (Io::reads) {
    it = static_cast<T>(number);
    if (it != number) io.wrong("the number " + std::to_string(number));
  }
}
// Enumerators are dense and begin with 0, but for Tiers.
constexpr Tier last(Tier) { return Tier::slow; }
constexpr Tiers last(Tiers) { return Tiers::both; }
constexpr Residency last(Residency) { return Residency::absent; }
constexpr AccessKind last(AccessKind) { return AccessKind::store; }
constexpr Outcome last(Outcome) { return Outcome::gone; }
constexpr Change last(Change) { return Change::collapse; }
constexpr Way last(Way) { return Way::in_fault; }
constexpr Copy last(Copy) { return Copy::transactional; }
constexpr SamplingRequest::Mode last(SamplingRequest::Mode) {
  return SamplingRequest::Mode::frequency;
}
template <typename Io, typename T>
  requires std::is_enum_v<T>
void value(Io& io, T& it) {
  auto number = static_cast<std::uint8_t>(it);
  value(io, number);
  if constexpr (Io::reads) {
    if (number > static_cast<std::uint8_t>(last(it)))
      io.wrong("an enumerator of number " + std::to_string(number));
    it = static_cast<T>(number);
  }
}
template <typename Io>
void value(Io& io, double& it) {
  auto bits = std::bit_cast<std::uint64_t>(it);
  bits = std::rotr(bits, 52);  // whole numbers end in zeros, which now come first
  io.number(bits);
  it = std::bit_cast<double>(std::rotl(bits, 52));
}
template <typename Io>
void value(Io& io, std::int64_t& it) {
  auto bits = std::bit_cast<std::uint64_t>(it);
  bits = bits << 1 ^ (it < 0 ? ~std::uint64_t{0} : 0);  // small ones of either sign are short
  io.number(bits);
  it = std::bit_cast<std::int64_t>(bits >> 1 ^ ((bits & 1) != 0 ? ~std::uint64_t{0} : 0));
}
template <typename Io>
void value(Io& io, bool& it) {
  std::uint8_t number = it ? 1 : 0;
  value(io, number);
  it = number != 0;
}
template <typename Io>
void value(Io& io, std::string& it) {
  io.text(it);
}
template <typename Io>
void value(Io& io, Nanos& it) {
  std::int64_t count = it.count();
  value(io, count);
  it = Nanos{count};
}
template <typename Io>
void value(Io& io, PageId& it) {
  value(io, it.value);
  if constexpr (Io::reads) {
    if (it.value >= most_page_numbers) io.wrong("page " + std::to_string(it.value));
  }
}

template <typename Io, typename... Ts>
void values(Io& io, Ts&... all) {
  (value(io, all), ...);
}
template <typename Io>
void value(Io& io, PageRange& it) {
  values(io, it.first, it.count);
  if constexpr (Io::reads) {
    if (it.count > most_page_numbers) io.wrong("a range of " + std::to_string(it.count) + " pages");
  }
}
template <typename Io>
void value(Io& io, Sample& it) {
  values(io, it.page, it.tier, it.kind);
}
template <typename Io>
void value(Io& io, Fault& it) {
  values(io, it.page, it.tier, it.kind, it.since);
}
template <typename Io>
void value(Io& io, Probe& it) {
  values(io, it.page, it.from, it.length, it.accessed);
}
template <typename Io>
void value(Io& io, MigrationResult& it) {
  values(io, it.page, it.to, it.outcome, it.change, it.cost);
}
template <typename Io>
void value(Io& io, Movers& it) {
  values(io, it.threads, it.together, it.copy, it.retries, it.shadows);
}
template <typename Io>
void value(Io& io, Watermarks& it) {
  values(io, it.reserve, it.wake);
}
template <typename Io>
void value(Io& io, SamplingRequest& it) {
  for (SamplingRequest::Event* event : {&it.loads, &it.stores})
    values(io, event->mode, event->value, event->by_tier, event->by_core);
  value(io, it.fast_share);
}
template <typename Io>
void value(Io& io, TierCounters& it) {
  values(io, it.read_bytes, it.written_bytes, it.reads, it.occupancy_ns, it.busy_ns);
}
template <typename Io>
void value(Io& io, Counters& it) {
  values(io, it.loads[0], it.loads[1], it.stores[0], it.stores[1], it.a1_cycles, it.a3_reads,
         it.cycles, it.stall_cycles, it.samples_taken, it.samples_lost, it.sampling_seconds,
         it.tier[0], it.tier[1], it.hint_faults, it.protect_seconds, it.moved_by_others,
         it.protected_pages, it.shadow_pages, it.threads);
}
template <typename Io>
void value(Io& io, Placement::Object& it) {
  values(io, it.site, it.score, it.pages, it.slot);
}

template <typename Io, typename T>
void value(Io& io, std::vector<T>& it) {
  std::uint64_t count = it.size();
  value(io, count);
  if constexpr (Io::reads) {
    if (count > most_items) io.wrong("a list of " + std::to_string(count));
    it.clear();
    // It grows with what is there, not with what is said.
    for (; count > 0; --count) value(io, it.emplace_back());
  } else {
    for (T& each : it) value(io, each);
  }
}
/// A value of one of these types.
template <typename Io, typename... Ts>
void value(Io& io, std::variant<Ts...>& it) {
  auto which = static_cast<std::uint8_t>(it.index());
  value(io, which);
  if constexpr (Io::reads) {
    std::uint8_t at = 0;
    const bool found = (... || (which == at++ && (it.template emplace<Ts>(), true)));
    if (!found) io.wrong("a value of type " + std::to_string(which));
  }
  std::visit([&](auto& held) { value(io, held); }, it);
}

template <typename T>
std::vector<std::remove_const_t<T>> copy(std::span<T> items) {
  return {items.begin(), items.end()};
}

/// Stands for a list of pages that a policy only looks at: who asks for others asks for something
/// else.
std::uint64_t digest(std::span<const PageId> pages) {
  std::uint64_t sum = pages.size();
  for (const PageId page : pages) sum = mix64(sum + page.value + 0x9e3779b97f4a7c15ULL);
  return sum;
}

// --- The head ------------------------------------------------------------------------------------

struct Head {
  std::string policy;
  std::uint64_t seed = 0;
  KnobMap knobs;
  std::vector<Placement::Object> objects;
  bool placed = false;
};

template <typename Io>
void value(Io& io, Head& it) {
  std::vector<std::string> names;
  std::vector<KnobValue> found;
  for (const auto& [name, knob] : it.knobs) {
    names.push_back(name);
    found.push_back(knob);
  }
  values(io, it.policy, it.seed, names, found, it.placed, it.objects);
  if constexpr (Io::reads) {
    if (names.size() != found.size()) io.wrong("knobs without values");
    for (std::size_t i = 0; i < names.size(); ++i) it.knobs[names[i]] = found[i];
  }
}

// --- Writing -------------------------------------------------------------------------------------

/// One record at a time; calls only while the policy is told something, or made.
class Book {
 public:
  explicit Book(std::ostream& out) : out_(out) {}

  /// Kind, what was asked or told, and what was answered.
  template <typename... Ts>
  void write(Kind kind, Ts... all) {
    if (is_call(kind) && depth_ == 0) return;
    writer_.bytes.assign(1, static_cast<char>(kind));
    values(writer_, all...);
    out_.write(writer_.bytes.data(), static_cast<std::streamsize>(writer_.bytes.size()));
  }
  void head(Head& head) {
    out_ << magic;
    writer_.bytes.clear();
    value(writer_, head);
    out_.write(writer_.bytes.data(), static_cast<std::streamsize>(writer_.bytes.size()));
  }

  /// While it lives, calls are of the event.
  class Open {
   public:
    explicit Open(Book& book) : book_(book) { ++book_.depth_; }
    ~Open() { --book_.depth_; }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    Book& book_;
  };

 private:
  std::ostream& out_;
  Writer writer_;
  int depth_ = 0;
};

class JournaledMemory final : public ForwardingMemory {
 public:
  JournaledMemory(Memory& inner, Book& book) : ForwardingMemory(inner), book_(book) {}

  std::uint64_t page_bytes() const override {
    return noted(Kind::page_bytes, inner().page_bytes());
  }
  std::uint64_t capacity(Tier tier) const override {
    return noted(Kind::capacity, inner().capacity(tier), tier);
  }
  std::uint64_t free_pages(Tier tier) const override {
    return noted(Kind::free_pages, inner().free_pages(tier), tier);
  }
  std::uint64_t excess_pages(Tier tier) const override {
    return noted(Kind::excess_pages, inner().excess_pages(tier), tier);
  }
  void residency(std::span<const PageId> pages, std::span<Residency> out) const override {
    inner().residency(pages, out);
    book_.write(Kind::residency, digest(pages), copy(out));
  }
  void residency(PageId first, std::span<Residency> out) const override {
    inner().residency(first, out);
    book_.write(Kind::residency_range, first, copy(out));
  }
  PageRange unit(PageId page) const override { return noted(Kind::unit, inner().unit(page), page); }
  std::size_t request(Tier to, std::span<const PageId> pages, Way way) override {
    return noted(Kind::request, inner().request(to, pages, way), to, way, copy(pages));
  }
  std::uint64_t pending(Tier to) const override {
    return noted(Kind::pending, inner().pending(to), to);
  }
  Movers set_movers(const Movers& movers) override {
    return noted(Kind::set_movers, inner().set_movers(movers), movers);
  }
  void set_watermarks(const Watermarks& marks) override {
    inner().set_watermarks(marks);
    book_.write(Kind::set_watermarks, marks);
  }
  std::size_t reshape(Change to, std::span<const PageId> units) override {
    return noted(Kind::reshape, inner().reshape(to, units), to, copy(units));
  }
  SamplingRequest set_sampling(const SamplingRequest& request) override {
    return noted(Kind::set_sampling, inner().set_sampling(request), request);
  }
  Counters counters() const override { return noted(Kind::counters, inner().counters()); }
  std::uint64_t protect(PageRange range, Tiers which, PageMask untouched) override {
    const std::uint64_t count = inner().protect(range, which, untouched);
    book_.write(Kind::protect, range, which, untouched.empty(), copy(untouched), count);
    return count;
  }
  void fault_again(PageId page, std::uint32_t times) override {
    inner().fault_again(page, times);
    book_.write(Kind::fault_again, page, times);
  }
  void leave_protected(std::span<const PageId> pages) override {
    inner().leave_protected(pages);
    book_.write(Kind::leave_protected, digest(pages));
  }
  void accessed(PageRange range, PageMask out, bool clear) override {
    inner().accessed(range, out, clear);
    book_.write(Kind::accessed_range, range, clear, copy(out));
  }
  void accessed(std::span<const PageId> pages, PageMask out, bool clear) override {
    inner().accessed(pages, out, clear);
    book_.write(Kind::accessed, digest(pages), clear, copy(out));
  }
  void probe(std::span<const Probe> probes) override {
    inner().probe(probes);
    book_.write(Kind::probe, copy(probes));
  }
  Nanos quantum() const override { return noted(Kind::quantum, inner().quantum()); }
  std::string_view site(std::uint32_t id) const override {
    const std::string_view name = inner().site(id);
    book_.write(Kind::site, id, std::string{name});
    return name;
  }

 private:
  template <typename Answer, typename... Asked>
  Answer noted(Kind kind, Answer answer, Asked... asked) const {
    book_.write(kind, std::move(asked)..., answer);
    return answer;
  }
  Book& book_;
};

/// What a journaled policy's wrapper needs before the policy is made.
struct Pages {
  Pages(Memory& inner, std::ostream& out) : book(out), memory(inner, book) {}
  mutable Book book;  // a placement is only looked at, and written down
  JournaledMemory memory;
};

class JournaledPolicy final : private Pages, public ForwardingPolicy {
 public:
  JournaledPolicy(const PolicyInfo& info, const PolicyContext& context, std::ostream& out)
      : Pages(context.memory, out), ForwardingPolicy(made(info, context)) {}

  void on_map(PageRange range, std::uint32_t site, Nanos now) override {
    const auto open = told(Kind::map, range, site, now);
    inner().on_map(range, site, now);
  }
  void on_unmap(PageRange range, Nanos now) override {
    const auto open = told(Kind::unmap, range, now);
    inner().on_unmap(range, now);
  }
  Tier placement(PageRange range) const override {
    book.write(Kind::placement, range);
    const Tier tier = [&] {
      const Book::Open open{book};
      return inner().placement(range);
    }();
    book.write(Kind::placed, tier);
    return tier;
  }
  void on_samples(std::span<const Sample> samples, Nanos now) override {
    const auto open = told(Kind::samples, copy(samples), now);
    inner().on_samples(samples, now);
  }
  void on_faults(std::span<const Fault> faults, Nanos now) override {
    const auto open = told(Kind::faults, copy(faults), now);
    inner().on_faults(faults, now);
  }
  void on_probed(std::span<const Probe> probes, Nanos now) override {
    const auto open = told(Kind::probed, copy(probes), now);
    inner().on_probed(probes, now);
  }
  void on_pressure(Tier tier, Nanos now) override {
    const auto open = told(Kind::pressure, tier, now);
    inner().on_pressure(tier, now);
  }
  void on_capacity(Tier tier, Nanos now) override {
    const auto open = told(Kind::capacity_changed, tier, now);
    inner().on_capacity(tier, now);
  }
  void tick(Nanos now) override {
    const auto open = told(Kind::tick, now);
    inner().tick(now);
  }
  void on_migrated(std::span<const MigrationResult> results, Nanos now) override {
    const auto open = told(Kind::migrated, copy(results), now);
    inner().on_migrated(results, now);
  }

 private:
  std::unique_ptr<Policy> made(const PolicyInfo& info, const PolicyContext& context) {
    Head head{info.name, context.seed, context.knobs.values(), {}, context.placement != nullptr};
    if (context.placement != nullptr) head.objects = context.placement->objects;
    book.head(head);
    const Book::Open open{book};
    return info.make({memory, context.knobs, nullptr, context.seed, context.placement});
  }
  template <typename... Ts>
  [[nodiscard]] Book::Open told(Kind kind, Ts... all) {
    book.write(kind, std::move(all)...);
    return Book::Open{book};
  }
};

// --- Playing back --------------------------------------------------------------------------------

/// The policy has done something else than what stands in the journal.
struct Diverged {
  std::string what;
};

/// Answers a policy from a journal, as long as it asks what stands there.
class PlayedMemory final : public Memory {
 public:
  PlayedMemory(Reader& reader, Playback& playback) : reader_(reader), playback_(playback) {}

  std::uint64_t page_bytes() const override { return answer<std::uint64_t>(Kind::page_bytes); }
  std::uint64_t capacity(Tier tier) const override {
    return answer<std::uint64_t>(Kind::capacity, tier);
  }
  std::uint64_t free_pages(Tier tier) const override {
    return answer<std::uint64_t>(Kind::free_pages, tier);
  }
  std::uint64_t excess_pages(Tier tier) const override {
    return answer<std::uint64_t>(Kind::excess_pages, tier);
  }
  void residency(std::span<const PageId> pages, std::span<Residency> out) const override {
    fill(out, answer<std::vector<Residency>>(Kind::residency, digest(pages)));
  }
  void residency(PageId first, std::span<Residency> out) const override {
    fill(out, answer<std::vector<Residency>>(Kind::residency_range, first));
  }
  PageRange unit(PageId page) const override { return answer<PageRange>(Kind::unit, page); }
  std::size_t request(Tier to, std::span<const PageId> pages, Way way) override {
    playback_.requested += pages.size();
    return answer<std::size_t>(Kind::request, to, way, copy(pages));
  }
  std::uint64_t pending(Tier to) const override { return answer<std::uint64_t>(Kind::pending, to); }
  Movers set_movers(const Movers& movers) override {
    return answer<Movers>(Kind::set_movers, movers);
  }
  void set_watermarks(const Watermarks& marks) override { asked(Kind::set_watermarks, marks); }
  std::size_t reshape(Change to, std::span<const PageId> units) override {
    return answer<std::size_t>(Kind::reshape, to, copy(units));
  }
  SamplingRequest set_sampling(const SamplingRequest& request) override {
    return answer<SamplingRequest>(Kind::set_sampling, request);
  }
  Counters counters() const override { return answer<Counters>(Kind::counters); }
  std::uint64_t protect(PageRange range, Tiers which, PageMask untouched) override {
    asked(Kind::protect, range, which, untouched.empty());
    fill(untouched, read<std::vector<std::uint64_t>>());
    return read<std::uint64_t>();
  }
  void fault_again(PageId page, std::uint32_t times) override {
    asked(Kind::fault_again, page, times);
  }
  void leave_protected(std::span<const PageId> pages) override {
    asked(Kind::leave_protected, digest(pages));
  }
  void accessed(PageRange range, PageMask out, bool clear) override {
    fill(out, answer<std::vector<std::uint64_t>>(Kind::accessed_range, range, clear));
  }
  void accessed(std::span<const PageId> pages, PageMask out, bool clear) override {
    fill(out, answer<std::vector<std::uint64_t>>(Kind::accessed, digest(pages), clear));
  }
  void probe(std::span<const Probe> probes) override { asked(Kind::probe, copy(probes)); }
  Nanos quantum() const override { return answer<Nanos>(Kind::quantum); }
  std::string_view site(std::uint32_t id) const override {
    return sites_.emplace_back(answer<std::string>(Kind::site, id));
  }
  void charge(Work, std::uint64_t, Payer) override {}

  /// The next record's kind; `end` behind the last one.
  [[nodiscard]] Kind next() const {
    if (!peeked_) {
      kind_ = Kind::end;
      if (!reader_.at_end()) {
        const std::uint8_t byte = reader_.byte();
        if (byte >= static_cast<std::uint8_t>(Kind::end))
          reader_.wrong("a record of kind " + std::to_string(byte));
        kind_ = static_cast<Kind>(byte);
      }
      peeked_ = true;
    }
    return kind_;
  }
  void take() const { peeked_ = false; }
  /// What the policy has answered is what it answered then.
  void answered(Tier tier) const {
    expect(Kind::placed);
    same(Kind::placed, tier);
  }
  template <typename T>
  T read() const {
    T out{};
    value(reader_, out);
    return out;
  }

 private:
  void expect(Kind kind) const {
    const Kind there = next();
    if (there != kind)
      throw Diverged{"does " + std::string{name(kind)} + ", the journal has " +
                     (there == Kind::end ? "no more" : std::string{name(there)})};
    take();
  }
  template <typename... Ts>
  void asked(Kind kind, Ts... all) const {
    expect(kind);
    ++playback_.calls;
    (same(kind, all), ...);
  }
  template <typename Answer, typename... Ts>
  Answer answer(Kind kind, Ts... all) const {
    asked(kind, std::move(all)...);
    return read<Answer>();
  }
  /// What the policy asks is what it asked then, to the byte.
  template <typename T>
  void same(Kind kind, T& now) const {
    T then = now;
    value(reader_, then);
    Writer before, after;
    value(before, then);
    value(after, now);
    if (before.bytes != after.bytes)
      throw Diverged{"calls " + std::string{name(kind)} + " with something else"};
  }
  template <typename T>
  void fill(std::span<T> out, const std::vector<T>& found) const {
    if (out.size() != found.size())
      throw Diverged{"asks for " + std::to_string(out.size()) + " items, the journal has " +
                     std::to_string(found.size())};
    std::ranges::copy(found, out.begin());
  }

  Reader& reader_;
  Playback& playback_;
  mutable bool peeked_ = false;
  mutable Kind kind_ = Kind::end;
  mutable std::deque<std::string> sites_;  // names stay where they are
};

/// Tells the policy of the next event.
void tell(Policy& policy, const PlayedMemory& from, Kind kind) {
  const auto now = [&] { return from.read<Nanos>(); };
  switch (kind) {
    case Kind::map: {
      const auto range = from.read<PageRange>();
      const auto site = from.read<std::uint32_t>();
      return policy.on_map(range, site, now());
    }
    case Kind::unmap: {
      const auto range = from.read<PageRange>();
      return policy.on_unmap(range, now());
    }
    case Kind::placement: {
      const auto range = from.read<PageRange>();
      return from.answered(policy.placement(range));
    }
    case Kind::samples: {
      const auto samples = from.read<std::vector<Sample>>();
      return policy.on_samples(samples, now());
    }
    case Kind::faults: {
      const auto faults = from.read<std::vector<Fault>>();
      return policy.on_faults(faults, now());
    }
    case Kind::probed: {
      const auto probes = from.read<std::vector<Probe>>();
      return policy.on_probed(probes, now());
    }
    case Kind::pressure: {
      const auto tier = from.read<Tier>();
      return policy.on_pressure(tier, now());
    }
    case Kind::capacity_changed: {
      const auto tier = from.read<Tier>();
      return policy.on_capacity(tier, now());
    }
    case Kind::tick:
      return policy.tick(now());
    case Kind::migrated: {
      const auto results = from.read<std::vector<MigrationResult>>();
      return policy.on_migrated(results, now());
    }
    default:
      throw Diverged{"does not ask for " + std::string{name(kind)} + ", which the journal has"};
  }
}

}  // namespace

std::unique_ptr<Policy> journaled(const PolicyInfo& info, const PolicyContext& context,
                                  std::ostream& out) {
  if (context.oracle != nullptr)
    throw std::invalid_argument("policy " + info.name + " knows the future: it has no journal");
  return std::make_unique<JournaledPolicy>(info, context, out);
}

Playback play_back(std::istream& in) {
  Playback playback;
  Reader reader{in};
  Head head;
  try {
    for (const char expected : magic)
      if (reader.byte() != static_cast<std::uint8_t>(expected)) reader.wrong("another beginning");
    value(reader, head);
  } catch (const CutOff&) {
    reader.wrong("the end");
  }
  playback.policy = head.policy;
  const PolicyInfo& info = policy(head.policy);
  // Values are those that the policy had: a miniature's may lie beyond what is declared.
  Knobs knobs = resolve(info.knobs, {});
  for (const auto& [name, knob] : head.knobs) {
    if (!knobs.has(name))
      throw std::invalid_argument("policy " + info.name + " has no knob " + name +
                                  ", which the journal names");
    knobs.set(name, knob);
  }
  const Placement placement{std::move(head.objects)};
  PlayedMemory memory{reader, playback};
  std::unique_ptr<Policy> policy;
  try {
    policy = info.make({memory, knobs, nullptr, head.seed, head.placed ? &placement : nullptr});
    while (memory.next() != Kind::end) {
      const Kind kind = memory.next();
      if (!is_call(kind)) {
        memory.take();
        ++playback.events;
      }
      tell(*policy, memory, kind);
    }
  } catch (const Diverged& error) {
    playback.diverged = "event " + std::to_string(playback.events) + ", call " +
                        std::to_string(playback.calls) + ": " + info.name + " " + error.what;
  } catch (const CutOff&) {
    playback.cut_off = true;
  }
  return playback;
}

}  // namespace tt::live
