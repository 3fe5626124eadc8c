// SPDX-License-Identifier: MIT

// Journals: a policy that is told the same decides the same, whoever told it first. Journals of
// simulated runs are those of every policy that does not know the future.
//
// With TIERTUNE_JOURNALS=FOLDER in the environment they are left there, for a tierd of another
// processor.
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "check.hpp"
#include "core/rng.hpp"
#include "fake_memory.hpp"
#include "live/journal.hpp"
#include "sim/simulate.hpp"
#include "sim_streams.hpp"

using namespace tt;
using live::play_back;
using live::Playback;

namespace {

// A policy's `make` is a plain function: what it needs stands here while a simulation runs.
std::ostringstream* journal = nullptr;
const PolicyInfo* original = nullptr;
std::unique_ptr<Policy> make_journaled(const PolicyContext& context) {
  journal->str("");  // a policy that goes by a placement has a run before, which makes it
  return live::journaled(*original, context, *journal);
}

void write_stream(simtest::TempStream& stream) {
  simtest::write_zipf(stream, {.full_pages = 1 << 14,
                               .scale = 64,
                               .exponent = 0.9,
                               .rate = 100e6,
                               .seconds = 4,
                               .drift_seconds = 2,
                               .seed = 7});
}

std::string simulated(const PolicyInfo& info, simtest::TempStream& stream,
                      const KnobMap& knobs = {}) {
  std::ostringstream out;
  journal = &out;
  original = &info;
  PolicyInfo watched = info;
  watched.make = make_journaled;
  sim::RunOptions options;
  options.page_bytes = 4096;
  options.coarse = true;
  (void)sim::simulate(stream.reader(), simtest::full_machine(), watched, knobs, options);
  return out.str();
}

Playback played(const std::string& text) {
  std::istringstream in{text};
  return play_back(in);
}

std::string hybridtiers_journal() {
  simtest::TempStream stream;
  write_stream(stream);
  return simulated(policy("hybridtier"), stream);
}

}  // namespace

TEST("live journal: every policy decides again what it decided in a simulation") {
  simtest::TempStream stream;
  write_stream(stream);
  std::size_t seen = 0;
  std::uint64_t requested = 0;
  for (const PolicyInfo& info : policies()) {
    if (includes(info.traits.needs, Need::future)) continue;
    ++seen;
    for (const bool aol : {false, true}) {
      const bool has = std::ranges::any_of(
          info.knobs, [](const KnobDecl& knob) { return knob.name == "aol.enabled"; });
      if (aol && !has) continue;
      const std::string text =
          simulated(info, stream, aol ? KnobMap{{"aol.enabled", true}} : KnobMap{});
      if (const char* const folder = std::getenv("TIERTUNE_JOURNALS"); folder != nullptr) {
        const std::string path = std::string{folder} + "/" + info.name + (aol ? "-aol" : "");
        CHECK((std::ofstream{path, std::ios::binary} << text).flush().good());
      }
      const Playback playback = played(text);
      CHECK_EQ(playback.policy, info.name);
      CHECK_EQ(playback.diverged, std::string{});
      CHECK(!playback.cut_off);
      CHECK(playback.events > 0);
      requested += playback.requested;
    }
  }
  CHECK(seen >= 20);
  CHECK(requested > 10000);
}

TEST("live journal: a policy that decides otherwise is named with the event") {
  simtest::TempStream stream;
  write_stream(stream);
  // With another threshold than the knob says.
  PolicyInfo other = policy("hybridtier");
  other.make = [](const PolicyContext& context) {
    Knobs knobs = context.knobs;
    knobs.set("frequency_hot_threshold", std::int64_t{2});
    return policy("hybridtier").make({context.memory, knobs, nullptr, context.seed});
  };
  const Playback playback = played(simulated(other, stream));
  CHECK(playback.diverged.find(": hybridtier ") != std::string::npos);
  CHECK(playback.events > 1);
}

TEST("live journal: one that is cut off is played as far as it goes") {
  const std::string text = hybridtiers_journal();
  const Playback whole = played(text);
  const Playback half = played(text.substr(0, text.size() / 2));
  CHECK_EQ(half.diverged, std::string{});
  CHECK(half.events > 0 && half.events < whole.events);
  int cut = 0;
  for (std::size_t size = text.size() - 40; size < text.size(); ++size)
    cut += played(text.substr(0, size)).cut_off ? 1 : 0;
  CHECK(cut > 0);
}

TEST("live journal: what is none is refused") {
  CHECK_THROWS(played(""), "byte 0: found the end");
  CHECK_THROWS(played("tiertune recording"), "another beginning");
  CHECK_THROWS(played("tiertune journal 2\n"), "found the end");
  const std::string head = "tiertune journal 2\n";
  // Length and name, the seed, names of knobs, their values, whether there is a placement, objects.
  const auto with = [&]<std::size_t n>(const std::string& name, const char (&rest)[n]) {
    return head + static_cast<char>(name.size()) + name + std::string(rest, n - 1);
  };
  CHECK_THROWS(played(with("lru", "\0\0\0\0\0")), "lru");
  CHECK_THROWS(played(with("first-touch", "\0\0\0\0\0\x7f")), "kind 127");
  CHECK_THROWS(played(with("first-touch", "\0\1\1k\0\0\0")), "without values");
  CHECK_THROWS(played(with("first-touch", "\0\1\1k\1\0\1\0\0")), "no knob k");
  CHECK_THROWS(played(with("first-touch", "\0\1\1k\1\5")), "type 5");
  CHECK_THROWS(played(head + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), "64 bits");
  CHECK_THROWS(played(head + "\xff\xff\xff\xff\x0f"), "a text of 4294967295 bytes");
  const Oracle future{};
  const Knobs knobs = resolve(policy("offline-optimal").knobs, {});
  test::FakeMemory memory{1, 1};
  std::ostringstream out;
  CHECK_THROWS(live::journaled(policy("offline-optimal"), {memory, knobs, &future}, out), "future");
}

TEST("live journal: damage is told, and does no harm") {
  const std::string text = hybridtiers_journal();
  Rng rng{3};
  int refused = 0, diverged = 0, harmless = 0;
  for (int round = 0; round < 300; ++round) {
    std::string damaged = text.substr(0, 20000);
    damaged[20 + rng.below(damaged.size() - 20)] ^= static_cast<char>(1 << rng.below(8));
    try {
      const Playback playback = played(damaged);
      ++(playback.diverged.empty() ? harmless : diverged);
    } catch (const std::invalid_argument&) {
      ++refused;
    } catch (const std::runtime_error&) {
      ++refused;
    }
  }
  CHECK(refused > 0);
  CHECK(diverged > 10);
  std::cout << "  journal: of 300 with a flipped bit " << refused << " refused, " << diverged
            << " diverged, " << harmless << " harmless\n";
}
