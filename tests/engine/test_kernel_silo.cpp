// silo: Zipf's law, and what the store and its workloads do.
#include <array>
#include <cmath>
#include <deque>
#include <map>
#include <string>

#include "check.hpp"
#include "core/rng.hpp"
#include "kernels/distributions.hpp"
#include "kernels/silo_store.hpp"
#include "scratch.hpp"

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
  TracedMemory memory{recorder};
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
  TracedMemory memory{recorder};
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
