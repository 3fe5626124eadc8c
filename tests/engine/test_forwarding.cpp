// SPDX-License-Identifier: MIT

// The wrappers' base classes forward every function of the seam. The functions are counted in the
// classes themselves, so that a new one without forwarding fails here.
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "check.hpp"
#include "core/forwarding.hpp"

namespace {

using namespace tt;

template <typename Base>
struct After : Base {
  virtual void next() {}
};

/// Virtual functions of a class apart from its destructor, which has two entries in the table. A
/// pointer to a virtual member function holds the offset of its entry (Itanium C++ ABI, §2.3; plus
/// 1 on x86), and the first function that a derived class adds comes behind those of its base.
template <typename Base>
std::size_t functions_of() {
  const auto pointer = &After<Base>::next;
  std::uintptr_t words[2];
  static_assert(sizeof pointer == sizeof words);
  std::memcpy(words, &pointer, sizeof words);
  return words[0] / sizeof(void*) - 2;
}

using Calls = std::map<std::string, int>;

/// Notes every call, and answers with values that no default has.
class NotedMemory final : public Memory {
 public:
  mutable Calls calls;
  std::uint64_t page_bytes() const override { return note("page_bytes", 11); }
  std::uint64_t capacity(Tier tier) const override { return note("capacity", 20 + index(tier)); }
  std::uint64_t free_pages(Tier tier) const override { return note("free", 30 + index(tier)); }
  std::uint64_t excess_pages(Tier tier) const override {
    return note("excess_pages", 33 + index(tier));
  }
  void residency(std::span<const PageId> pages, std::span<Residency> out) const override {
    CHECK_EQ(pages.size(), 1u);
    out[0] = note("residency", Residency::slow);
  }
  void residency(PageId first, std::span<Residency> out) const override {
    CHECK_EQ(first.value, 7u);
    out[0] = note("residency of a range", Residency::fast);
  }
  PageRange unit(PageId page) const override {
    return note("unit", PageRange{{page.value - 1}, 512});
  }
  std::size_t request(Tier to, std::span<const PageId> pages, Way way) override {
    CHECK(to == Tier::slow && way == Way::in_fault);
    return note("request", pages.size() + 40);
  }
  std::uint64_t pending(Tier to) const override { return note("pending", 50 + index(to)); }
  Movers set_movers(const Movers& movers) override {
    CHECK_EQ(movers.threads, 9u);
    return note("set_movers", Movers{.threads = 8});
  }
  void set_watermarks(const Watermarks& marks) override {
    CHECK_EQ(marks.wake, 0.25);
    note("set_watermarks", 0);
  }
  std::size_t reshape(Change to, std::span<const PageId> units) override {
    CHECK(to == Change::collapse);
    return note("reshape", units.size() + 60);
  }
  SamplingRequest set_sampling(const SamplingRequest& request) override {
    CHECK_EQ(request.loads.value, 70.0);
    return note("set_sampling", SamplingRequest{.loads = {SamplingRequest::Mode::period, 77}});
  }
  Counters counters() const override { return note("counters", Counters{.a3_reads = 71}); }
  std::uint64_t protect(PageRange range, Tiers which, PageMask untouched) override {
    CHECK(range == (PageRange{{3}, 4}) && which == Tiers::fast);
    untouched[0] = 5;
    return note("protect", 72);
  }
  void fault_again(PageId page, std::uint32_t times) override {
    CHECK(page == PageId{3} && times == 30);
    note("fault_again", 0);
  }
  void leave_protected(std::span<const PageId> pages) override {
    CHECK_EQ(pages.size(), 5u);
    note("leave_protected", 0);
  }
  void accessed(PageRange range, PageMask out, bool clear) override {
    CHECK(range == (PageRange{{3}, 4}) && clear);
    out[0] = note("accessed", 73);
  }
  void accessed(std::span<const PageId> pages, PageMask out, bool clear) override {
    CHECK(pages.size() == 2 && !clear);
    out[0] = note("accessed of pages", 78);
  }
  void probe(std::span<const Probe> probes) override {
    CHECK_EQ(probes.size(), 2u);
    note("probe", 0);
  }
  Nanos quantum() const override { return note("quantum", Nanos{74}); }
  std::string_view site(std::uint32_t id) const override {
    CHECK_EQ(id, 75u);
    return note("site", "arena");
  }
  void charge(Work kind, std::uint64_t times, Payer by) override {
    CHECK(kind == Work::lru_step && times == 76 && by == Payer::application);
    note("charge", 0);
  }

 private:
  template <typename Answer>
  Answer note(const char* name, Answer answer) const {
    ++calls[name];
    return answer;
  }
};

Calls* policy_calls = nullptr;  // of the test that runs

class NotedPolicy final : public Policy {
 public:
  void on_map(PageRange range, std::uint32_t site, Nanos now) override {
    CHECK(range.count == 2 && site == 3 && now == Nanos{4});
    note("on_map");
  }
  void on_unmap(PageRange range, Nanos now) override {
    CHECK(range.count == 2 && now == Nanos{4});
    note("on_unmap");
  }
  Tier placement(PageRange range) const override {
    CHECK_EQ(range.count, 2u);
    note("placement");
    return Tier::slow;
  }
  void on_samples(std::span<const Sample> samples, Nanos) override {
    CHECK_EQ(samples.size(), 1u);
    note("on_samples");
  }
  void on_faults(std::span<const Fault> faults, Nanos) override {
    CHECK_EQ(faults.size(), 2u);
    note("on_faults");
  }
  void on_probed(std::span<const Probe> probes, Nanos) override {
    CHECK_EQ(probes.size(), 3u);
    note("on_probed");
  }
  void on_pressure(Tier tier, Nanos) override {
    CHECK(tier == Tier::slow);
    note("on_pressure");
  }
  void on_capacity(Tier tier, Nanos now) override {
    CHECK(tier == Tier::slow && now == Nanos{4});
    note("on_capacity");
  }
  void tick(Nanos now) override {
    CHECK(now == Nanos{5});
    note("tick");
  }
  Nanos tick_period() const override {
    note("tick_period");
    return Nanos{6};
  }
  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    CHECK_EQ(results.size(), 4u);
    note("on_migrated");
  }
  std::uint64_t metadata_bytes() const override {
    note("metadata_bytes");
    return 7;
  }
  void gauges(Gauges& out) const override {
    note("gauges");
    out["seen"] = 1;
  }
  Heat heat(PageId page) const override {
    CHECK_EQ(page.value, 8u);
    note("heat");
    return Heat::hot;
  }
  void report(Rows& out) const override {
    note("report");
    out.push_back({"table", {{"score", 9.0}}});
  }
  Placement profile() const override {
    note("profile");
    return {{{"site", 1, 2, 3}}};
  }

 private:
  static void note(const char* name) { ++(*policy_calls)[name]; }
};

void check_each_once(const Calls& calls, std::size_t functions) {
  CHECK_EQ(calls.size(), functions);
  for (const auto& [name, times] : calls)
    if (times != 1) check::fail(__FILE__, __LINE__, name + " was called " + std::to_string(times));
}

}  // namespace

TEST("forwarding: every function of Memory reaches the inner one, with its arguments") {
  NotedMemory noted;
  ForwardingMemory wrapper(noted);
  Memory& memory = wrapper;
  const PageId page{7};
  Residency where{};
  std::uint64_t mask[1] = {};
  CHECK_EQ(memory.page_bytes(), 11u);
  CHECK_EQ(memory.capacity(Tier::slow), 21u);
  CHECK_EQ(memory.free_pages(Tier::slow), 31u);
  CHECK_EQ(memory.excess_pages(Tier::slow), 34u);
  memory.residency(std::span{&page, 1}, std::span{&where, 1});
  CHECK(where == Residency::slow);
  memory.residency(page, std::span{&where, 1});
  CHECK(where == Residency::fast);
  CHECK(memory.unit(page) == (PageRange{{6}, 512}));
  CHECK_EQ(memory.request(Tier::slow, {&page, 1}, Way::in_fault), 41u);
  CHECK_EQ(memory.pending(Tier::slow), 51u);
  CHECK_EQ(memory.set_movers({.threads = 9}).threads, 8u);
  memory.set_watermarks({.wake = 0.25});
  CHECK_EQ(memory.reshape(Change::collapse, {&page, 1}), 61u);
  const SamplingRequest asked{.loads = {SamplingRequest::Mode::period, 70}};
  CHECK_EQ(memory.set_sampling(asked).loads.value, 77.0);
  CHECK_EQ(memory.counters().a3_reads, 71.0);
  CHECK_EQ(memory.protect({{3}, 4}, Tiers::fast, mask), 72u);
  CHECK_EQ(mask[0], 5u);
  memory.fault_again({3}, 30);
  memory.leave_protected(std::vector<PageId>(5));
  memory.accessed({{3}, 4}, mask, true);
  CHECK_EQ(mask[0], 73u);
  memory.accessed(std::vector<PageId>(2), mask, false);
  CHECK_EQ(mask[0], 78u);
  memory.probe(std::vector<Probe>(2));
  CHECK(memory.quantum() == Nanos{74});
  CHECK_EQ(memory.site(75), "arena");
  memory.charge(Work::lru_step, 76, Payer::application);
  check_each_once(noted.calls, functions_of<Memory>());
}

TEST("forwarding: every function of Policy reaches the inner one, with its arguments") {
  Calls calls;
  policy_calls = &calls;
  ForwardingPolicy wrapper(std::make_unique<NotedPolicy>());
  Policy& policy = wrapper;
  const PageRange range{{1}, 2};
  policy.on_map(range, 3, Nanos{4});
  policy.on_unmap(range, Nanos{4});
  CHECK(policy.placement(range) == Tier::slow);
  policy.on_samples(std::vector<Sample>(1), {});
  policy.on_faults(std::vector<Fault>(2), {});
  policy.on_probed(std::vector<Probe>(3), {});
  policy.on_pressure(Tier::slow, {});
  policy.on_capacity(Tier::slow, Nanos{4});
  policy.tick(Nanos{5});
  CHECK(policy.tick_period() == Nanos{6});
  policy.on_migrated(std::vector<MigrationResult>(4), {});
  CHECK_EQ(policy.metadata_bytes(), 7u);
  Gauges gauges;
  policy.gauges(gauges);
  CHECK_EQ(gauges.at("seen"), 1.0);
  CHECK(policy.heat({8}) == Heat::hot);
  Rows rows;
  policy.report(rows);
  CHECK_EQ(rows.size(), 1u);
  CHECK_EQ(policy.profile().objects.size(), 1u);
  check_each_once(calls, functions_of<Policy>());
}

TEST("needs: what is missing is named, and nothing else") {
  PolicyInfo info;
  info.name = "scanner";
  info.traits.needs = Need::samples | Need::faults | Need::probes;
  const Need offered = Need::samples | Need::faults | Need::probes;
  require_needs(info, {}, offered | Need::sites, "this machine");
  CHECK_THROWS(require_needs(info, {}, Need::samples, "this machine"),
               "policy scanner needs hint faults, probes, which this machine does not have");
  // Of a policy that goes by a placement with some knobs, sites with these.
  info.knobs = {knob::flag("placed", false, "here", "by a placement")};
  info.traits.profiled = true;
  info.traits.profiled_when = KnobCondition{"placed", {true}};
  require_needs(info, resolve(info.knobs, {}), offered, "this machine");
  CHECK_THROWS(
      require_needs(info, resolve(info.knobs, {{"placed", true}}), offered, "this machine"),
      "policy scanner needs allocation sites, placement of first touches, which");
  CHECK_EQ(names(Need::nothing), "");
}

TEST("needs: who cannot do without other copies, or another first touch, says so") {
  const Need all{~std::uint32_t{0}};
  const auto refused = [&](Need lacking) {
    std::set<std::string> names;
    for (const PolicyInfo& info : policies()) {
      try {
        require_needs(info, resolve(info.knobs, {}), all & ~lacking, "this process");
      } catch (const std::invalid_argument& error) {
        CHECK_EQ(std::string(error.what()), "policy " + info.name + " needs " + tt::names(lacking) +
                                                ", which this process does not have");
        names.insert(info.name);
      }
    }
    return names;
  };
  CHECK(refused(Need::copies) == std::set<std::string>{"nomad"});
  CHECK(refused(Need::placement) == (std::set<std::string>{"all-slow", "arc", "offline-optimal",
                                                           "soar", "static-hot", "twoq"}));
}
