// SPDX-License-Identifier: MIT

// silo: Zipf's law, and what the store and its workloads do.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <string>

#include "check.hpp"
#include "core/rng.hpp"
#include "drawn_law.hpp"
#include "kernels/distributions.hpp"
#include "kernels/kernel.hpp"
#include "kernels/silo_store.hpp"
#include "kernels/silo_tpcc.hpp"
#include "scratch.hpp"
#include "sim/simulate.hpp"
#include "sim_streams.hpp"
#include "trace/reader.hpp"

using namespace tt;
using namespace tt::kernels;
using namespace tt::trace;
using check::Scratch;

namespace {

StreamInfo description() {
  StreamInfo info;
  info.lanes = {{"all", 1}};
  info.classes = {{"node", 3, 0, 0}, {"record", 2, 0, 0}, {"update", 8, 0, 0}};
  return info;
}

/// What a transaction did, and what it saw.
struct Step {
  enum Kind : std::uint8_t { read, write, insert, remove, scan } kind;
  std::string key;
  std::string value;   // written
  bool there = false;  // what the store answered
  std::string seen;    // read or scanned
};

std::string run(SiloTransaction& transaction, SiloStore::Table& table, Step& step) {
  switch (step.kind) {
    case Step::read:
      step.there = transaction.read(table, step.key, step.seen);
      break;
    case Step::write:
      step.there = transaction.write(table, step.key, step.value);
      break;
    case Step::insert:
      step.there = transaction.insert(table, step.key, step.value);
      break;
    case Step::remove:
      step.there = transaction.remove(table, step.key);
      break;
    case Step::scan:
      transaction.scan(table, step.key, step.key + "~",
                       [&](std::string_view k, std::string_view v) {
                         step.seen += std::string{k} + "=" + std::string{v} + ";";
                         return true;
                       });
  }
  return step.seen;
}

/// The same on a map: one transaction at a time.
void replay(std::map<std::string, std::string>& map, const Step& step) {
  const auto at = map.find(step.key);
  const bool there = at != map.end();
  switch (step.kind) {
    case Step::read:
      CHECK_EQ(step.there, there);
      if (there) CHECK_EQ(step.seen, at->second);
      break;
    case Step::write:
      CHECK_EQ(step.there, there);
      if (there) at->second = step.value;
      break;
    case Step::insert:
      CHECK_EQ(step.there, !there);
      if (!there) map.emplace(step.key, step.value);
      break;
    case Step::remove:
      CHECK_EQ(step.there, there);
      if (there) map.erase(at);
      break;
    case Step::scan: {
      std::string seen;
      for (auto i = map.lower_bound(step.key); i != map.end() && i->first < step.key + "~"; ++i)
        seen += i->first + "=" + i->second + ";";
      CHECK_EQ(step.seen, seen);
    }
  }
}

}  // namespace

TEST("zipf: ranks have the weights of the law") {
  for (const double exponent : {0.0, 0.5, 0.99, 1.0, 1.3}) {
    constexpr int n = 50;
    constexpr int draws = 200000;
    std::array<double, n> weight{};
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += weight[i] = std::pow(i + 1, -exponent);
    std::array<int, n> drawn{};
    const Zipf zipf{n, exponent};
    Rng rng{7};
    for (int i = 0; i < draws; ++i) ++drawn.at(zipf.rank(rng));
    double chi = 0;
    for (int i = 0; i < n; ++i) {
      const double expected = weight[i] / sum * draws;
      chi += (drawn[i] - expected) * (drawn[i] - expected) / expected;
    }
    CHECK(chi < 98);  // 49 degrees of freedom: once in 25,000 draws of a right one
  }
  CHECK_THROWS((Zipf{0, 1}), "at least 1");
  CHECK_THROWS((Zipf{10, -1}), "at least 0");
}

TEST("zipf: a large population costs no table, and its top has the share of the law") {
  // Sums over 400 million ranks: Euler and Maclaurin's formula.
  const Zipf zipf{4e8, 0.99};
  const auto sum = [](double n) {
    return 100 * std::pow(n, 0.01) - 100 + 0.5772 + 0.5 * std::pow(n, -0.99);
  };
  Rng rng{1};
  constexpr int draws = 200000;
  int top = 0;
  for (int i = 0; i < draws; ++i) top += zipf.rank(rng) < 4000000;
  CHECK_NEAR(top / double(draws), sum(4e6) / sum(4e8), 0.004);
}

TEST("silo: interleaved transactions have the outcome of those that commit, one after the other") {
  const Scratch scratch;
  Recorder recorder{scratch.file("a.tts"), description(), {}};
  TracedMemory memory{recorder, 4096};
  SiloStore store{memory, {0, 1, 2}};
  SiloStore::Table& table = store.make_table();
  std::map<std::string, std::string> serial;
  Rng rng{5};
  constexpr std::size_t together = 4;
  std::deque<SiloTransaction> transactions;
  for (std::size_t i = 0; i < together; ++i) transactions.emplace_back(store);
  std::array<std::vector<Step>, together> steps;
  int committed = 0;
  int aborted = 0;
  for (int turn = 0; turn < 40000; ++turn) {
    const auto who = rng.below(together);
    if (steps[who].size() > rng.below(8)) {
      if (transactions[who].commit()) {
        ++committed;
        for (const Step& step : steps[who]) replay(serial, step);
      } else {
        ++aborted;
      }
      steps[who].clear();
      continue;
    }
    Step step;
    const auto dice = rng.below(16);
    // A scan comes first: it does not show what its transaction inserted or removed.
    step.kind = dice == 0 && steps[who].empty() ? Step::scan
                : dice < 7                      ? Step::read
                : dice < 10                     ? Step::write
                : dice < 13                     ? Step::insert
                                                : Step::remove;
    const auto number = std::to_string(rng.below(60));
    step.key = step.kind == Step::scan ? "key-to-a-record-" + number.substr(0, 1)
                                       : "key-to-a-record-" + number;
    step.value = std::to_string(turn);
    step.value.resize(6, ' ');
    run(transactions[who], table, step);
    steps[who].push_back(step);
    if (turn % 64 == 0) store.advance_epoch();
  }
  for (SiloTransaction& transaction : transactions) transaction.abort();
  CHECK(committed > 3000);
  CHECK(aborted > 1000);
  CHECK_EQ(table.inconsistency(), "");
  std::map<std::string, std::string> left;
  SiloTransaction last{store};
  last.scan(table, "", "~", [&](std::string_view key, std::string_view value) {
    left.emplace(key, value);
    return true;
  });
  CHECK(left == serial);
  CHECK_EQ(table.size(), serial.size());  // no record of an aborted transaction is left
}

TEST("silo: conflicts abort, and only conflicts") {
  const Scratch scratch;
  Recorder recorder{scratch.file("a.tts"), description(), {}};
  TracedMemory memory{recorder, 4096};
  SiloStore store{memory, {0, 1, 2}};
  SiloStore::Table& table = store.make_table();
  SiloTransaction a{store};
  SiloTransaction b{store};
  std::string value;
  for (const char* key : {"a", "b", "c"}) CHECK(a.insert(table, key, "0"));
  CHECK(a.commit());
  // Lost update: both read, both write.
  CHECK(a.read(table, "a", value) && b.read(table, "a", value));
  CHECK(a.write(table, "a", "1") && b.write(table, "a", "2"));
  CHECK(a.commit());
  CHECK(!b.commit());
  // Write skew: each reads what the other writes.
  CHECK(a.read(table, "a", value) && b.read(table, "b", value));
  CHECK(a.write(table, "b", "1") && b.write(table, "a", "2"));
  CHECK(a.commit());
  CHECK(!b.commit());
  // Phantom: a key appears in a scanned range, and one that was missing.
  a.scan(table, "a", "z", [](std::string_view, std::string_view) { return true; });
  CHECK(b.insert(table, "d", "0") && b.commit());
  CHECK(a.write(table, "a", "3"));
  CHECK(!a.commit());
  CHECK(!a.read(table, "e", value));
  CHECK(b.insert(table, "e", "0") && b.commit());
  CHECK(!a.commit());
  // Both insert the same key; the second finds the first one's record, still absent.
  CHECK(a.insert(table, "f", "1") && b.insert(table, "f", "2"));
  CHECK(b.commit());
  CHECK(!a.commit());
  CHECK(a.read(table, "f", value));
  CHECK_EQ(value, "2");
  CHECK(a.commit());
  // What one aborts is not there for the other, nor does it stay.
  CHECK(a.insert(table, "g", "1") && b.insert(table, "g", "2"));
  a.abort();
  CHECK(!b.commit());
  CHECK(!a.read(table, "g", value) && a.commit());
  // Different keys, and readers of the same key, do not disturb each other.
  CHECK(a.read(table, "c", value) && b.read(table, "c", value));
  CHECK(a.write(table, "a", "4") && b.write(table, "b", "4"));
  CHECK(a.commit() && b.commit());
  CHECK_THROWS(a.write(table, "a", std::string(100, 'x')), "outgrows");
}

namespace {

RecordRequest small(const std::filesystem::path& file) {
  RecordRequest request;
  request.input = "test";
  request.scale = 16384;
  request.threads = 12;
  request.llc_bytes = 18 << 20;
  request.seed = 3;
  request.file = file;
  request.parameters = {{"duration_s", 30.0}, {"block_ms", 200.0}};
  return request;
}
RecordRequest small_tpcc(const std::filesystem::path& file) {
  auto request = small(file);
  request.parameters = {
      {"benchmark", std::string{"tpcc"}}, {"warehouses", 12.0}, {"grow_gib", 480.0}};
  return request;
}

/// Accesses per page of the timed part.
std::vector<double> heat(const RecordRequest& request, StreamInfo* description = nullptr) {
  const StreamInfo info = kernels::record("silo", request);
  if (description != nullptr) *description = info;
  const Reader reader{request.file};
  reader.verify();
  const auto totals = reader.page_totals();
  return {totals.begin(), totals.end()};
}
double share_of_top(std::vector<double> pages, double from, double to) {
  std::ranges::sort(pages, std::greater{});
  const auto at = [&](double share) {
    return pages.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(pages.size()));
  };
  return std::accumulate(at(from), at(to), 0.0) / std::accumulate(pages.begin(), pages.end(), 0.0);
}
/// Subpages of the median huge page that a sampler sees, at one sample per page on average.
double subpage_use(const std::vector<double>& pages) {
  const double mean =
      std::accumulate(pages.begin(), pages.end(), 0.0) / static_cast<double>(pages.size());
  std::vector<double> use;
  for (std::size_t first = 0; first + 512 <= pages.size(); first += 512) {
    use.push_back(0);
    for (std::size_t page = first; page < first + 512; ++page)
      use.back() += (1 - std::exp(-pages[page] / mean)) / 512;
  }
  std::ranges::sort(use);
  return use[use.size() / 2];
}

}  // namespace

TEST("silo: one in a hundred pages is hot, one in five warm, and few subpages are in use") {
  const Scratch scratch;
  auto request = small(scratch.file("a.tts"));
  request.scale = 4096;
  request.parameters["duration_s"] = 40.0;
  const auto pages = heat(request);
  // From Good to Great (2025), §4.2: "about 1 % of the pages extremely hot, about 20 % warm".
  CHECK(share_of_top(pages, 0, 0.01) > 0.3);
  CHECK(share_of_top(pages, 0.01, 0.2) > 0.3);
  CHECK(share_of_top(pages, 0.2, 1) < 0.1);
  // MEMTIS (SOSP'23), §6.2.4: "5-15 % of subpages in a huge page".
  CHECK(subpage_use(pages) > 0.05);
  CHECK(subpage_use(pages) < 0.15);
}

TEST("silo: each parameter of ycsb shows") {
  const Scratch scratch;
  StreamInfo info;
  const auto with = [&](const char* name, Value value) {
    auto request = small(scratch.file("a.tts"));
    if (name != nullptr) request.parameters[name] = std::move(value);
    return heat(request, &info);
  };
  const auto base = with(nullptr, 0.0);
  const StreamInfo first = info;
  CHECK_EQ(first.op_kinds[0].name, "read");
  CHECK_NEAR(first.nominal_seconds, 30, 1);
  CHECK(share_of_top(with("zipf", 0.0), 0, 0.01) < 0.7 * share_of_top(base, 0, 0.01));
  const auto ordered = with("scrambled", false);
  CHECK(share_of_top(ordered, 0, 0.05) > share_of_top(base, 0, 0.05) + 0.02);
  CHECK(with("keys_m", 1000.0).size() > base.size());
  CHECK(with("value_bytes", std::int64_t{400}).size() > base.size());
  CHECK(with("key_bytes", std::int64_t{64}).size() > 0u);
  CHECK(info.operations < first.operations);  // a lookup passes eight layers
  (void)with("op_ns", 2000.0);
  CHECK(static_cast<double>(info.operations) < 0.7 * static_cast<double>(first.operations));
  (void)with("duration_s", 15.0);
  CHECK_NEAR(info.nominal_seconds, 15, 1);
  (void)with("block_ms", 50.0);
  CHECK(info.blocks > first.blocks * 2);
  CHECK_THROWS(with("benchmark", std::string{"tpch"}), "allowed are ycsb and tpcc");
}

TEST("silo: in huge pages, drawn counts give what reads one by one do") {
  const Scratch scratch;
  const auto request = [&](const char* name, std::uint64_t page_bytes) {
    auto wanted = small(scratch.file(name));
    wanted.scale = 1024;  // 35 huge pages: 29,000 reads are made
    wanted.page_bytes = page_bytes;
    wanted.parameters = {{"duration_s", 40.0}, {"block_ms", 100.0}};
    return wanted;
  };
  StreamInfo made;
  StreamInfo drawn;
  const auto pages = check::by_huge_page(heat(request("made.tts", base_page_bytes), &made));
  const auto drawn_pages = heat(request("drawn.tts", huge_page_bytes), &drawn);
  CHECK(drawn.entries * 10 < made.entries);
  CHECK_NEAR(drawn.nominal_seconds, 40, 0.2);
  CHECK_NEAR(static_cast<double>(drawn.operations), static_cast<double>(made.operations),
             0.005 * static_cast<double>(made.operations));
  const double law = 8000 * static_cast<double>(drawn.pages) / 10;
  const double times = static_cast<double>(made.operations) / law;
  CHECK(times > 8);
  check::same_law(pages, drawn_pages, times, 4);
  // Huge pages differ in popularity by much more than that.
  const auto [least, most] = std::ranges::minmax_element(pages);
  CHECK(*most > 1.3 * *least);
  const auto seconds = [&](const char* name, const char* policy_name) {
    const Reader reader{scratch.file(name)};
    return sim::simulate(reader, simtest::full_machine(), policy(policy_name), {},
                         {.page_bytes = huge_page_bytes, .coarse = true})
        .seconds;
  };
  for (const char* name : {"all-fast", "all-slow", "first-touch", "static-hot"}) {
    const double expected = seconds("made.tts", name);
    CHECK_NEAR(seconds("drawn.tts", name), expected, 0.005 * expected);
  }
}

TEST("tpcc: the consistency conditions hold, and rolled back orders leave nothing") {
  const Scratch scratch;
  for (const std::uint32_t warehouses : {1u, 2u}) {
    Recorder recorder{scratch.file("a.tts"), description(), {}};
    TracedMemory memory{recorder, 4096};
    SiloStore store{memory, {0, 1, 2}};
    Tpcc tpcc{store, {warehouses, 0.01, 7}};
    CHECK_EQ(tpcc.warehouses(), warehouses);
    CHECK_EQ(tpcc.customers(), 30u);
    CHECK_EQ(tpcc.items(), 1000u);
    CHECK_EQ(tpcc.inconsistency(), "");
    int rolled_back = 0;
    std::array<int, 5> kinds{};
    for (int i = 0; i < 2000; ++i) {
      const Tpcc::Kind kind = tpcc.draw();
      ++kinds[kind];
      rolled_back += tpcc.run(kind) ? 0 : 1;
      CHECK(tpcc.steps() > 0);
    }
    CHECK_EQ(tpcc.inconsistency(), "");
    CHECK(rolled_back > 1 && rolled_back < 30);
    CHECK_NEAR(kinds[Tpcc::new_order] / 2000.0, 0.45, 0.04);
    CHECK_NEAR(kinds[Tpcc::payment] / 2000.0, 0.43, 0.04);
  }
}

TEST("tpcc: the database grows to its size; pages are hot when written and cold soon after") {
  const Scratch scratch;
  const auto request = small_tpcc(scratch.file("a.tts"));
  const StreamInfo info = kernels::record("silo", request);
  const Reader reader{request.file};
  reader.verify();
  CHECK_EQ(info.op_kinds.size(), 5u);
  CHECK_NEAR(static_cast<double>(info.pages) * 4096 * request.scale / (1 << 30), 480, 33);
  // Accesses to order lines' pages that the run filled, by the time since the page's first one. (A
  // row of 56 bytes with its header takes 80.)
  std::vector<bool> lines(info.pages);
  for (const Object& object : info.objects)
    if (object.site == "silo.arena.80")
      for (std::uint64_t page = object.first_page; page < object.first_page + object.pages; ++page)
        lines[page] = true;
  constexpr double step_s = 5;
  std::vector<double> born(info.pages, -1);
  double fresh = 0;
  double later = 0;
  double seconds = 0;
  Block block;
  for (std::uint64_t i = 0; i < info.blocks; ++i) {
    reader.read(i, block);
    if (!block.timed) continue;
    seconds += block.nominal_ns * 1e-9;
    for (const Segment& segment : block.segments)
      for (std::size_t e = 0; e < segment.pages.size(); ++e) {
        const auto page = segment.pages[e];
        if (!lines[page]) continue;
        if (born[page] < 0) born[page] = seconds;
        (seconds - born[page] < step_s ? fresh : later) += segment.counts[e];
      }
  }
  double fresh_s = 0;
  double later_s = 0;
  for (const double at : born) {
    if (at < 0) continue;
    fresh_s += std::min(step_s, seconds - at);
    later_s += std::max(0.0, seconds - at - step_s);
  }
  CHECK(later_s > 5 * fresh_s);
  CHECK(fresh / fresh_s > 3 * later / later_s);
}
