// SPDX-License-Identifier: MIT

// GUPS: where updates go, when the hot set moves, and what an update is to memory.
#include <algorithm>

#include "check.hpp"
#include "kernels/kernel.hpp"
#include "scratch.hpp"
#include "sim/simulate.hpp"
#include "sim_streams.hpp"
#include "stream_sums.hpp"
#include "trace/reader.hpp"

using namespace tt;
using namespace tt::trace;
using check::Scratch;
using test::Lines;
using test::lines;
using test::loads;
using test::sum;

namespace {

kernels::RecordRequest small(const std::filesystem::path& file) {
  kernels::RecordRequest request;
  request.workload = "gups";
  request.input = "test";
  request.scale = 1024;  // 16,384 pages, 2,048 hot
  request.threads = 12;
  request.llc_bytes = 18 << 20;
  request.seed = 3;
  request.file = file;
  request.parameters["updates_g"] = 1.0;  // 976,563 simulated
  return request;
}

}  // namespace

TEST("gups: nine in ten updates go to the hot set, which moves half-way") {
  const Scratch scratch;
  const StreamInfo info = kernels::record("gups", small(scratch.file("g.tts")));
  const Reader reader{scratch.file("g.tts")};
  reader.verify();
  CHECK_EQ(info.pages, 16384u);
  CHECK_EQ(info.operations, 976563u);
  // Four regions of 4,096 pages; their first 512 are hot, later 512 from the middle.
  const auto before = loads(reader, 0, 0.45);
  const auto after = loads(reader, 0.55, 1);
  double hot_before = 0;
  double hot_after = 0;
  for (std::size_t region = 0; region < 4; ++region) {
    hot_before += sum(before, region * 4096, 512);
    hot_after += sum(after, region * 4096 + 2048, 512);
    CHECK_NEAR(sum(before, region * 4096, 4096) / sum(before, 0, 16384), 0.25, 0.001);
  }
  // 0.9 to the hot part and an eighth of the uniform 0.1 too.
  CHECK_NEAR(hot_before / sum(before, 0, 16384), 0.9125, 0.002);
  CHECK_NEAR(hot_after / sum(after, 0, 16384), 0.9125, 0.002);
}

TEST("gups: an update is one line read and one line written") {
  const Scratch scratch;
  const StreamInfo info = kernels::record("gups", small(scratch.file("g.tts")));
  const Reader reader{scratch.file("g.tts")};
  Block block;
  std::uint64_t touched = 0;
  for (std::uint64_t i = 0; i < info.blocks; ++i) {
    reader.read(i, block);
    for (const Event& event : block.events)
      if (event.type == EventType::touch) {
        CHECK_EQ(event.first, touched);  // initialised in order
        touched += event.count;
      }
    if (!block.timed) CHECK_EQ(block.operations[0], 0u);
  }
  CHECK_EQ(touched, info.pages);
  const Lines all = lines(reader);
  CHECK_EQ(all.set_up, static_cast<double>(info.pages * 64));
  CHECK_NEAR(all.read / static_cast<double>(info.operations), 1, 0.01);
  CHECK_NEAR(all.written / all.read, 1, 0.001);
}

TEST("gups: a part of the hot set may move, or none") {
  const Scratch scratch;
  auto request = small(scratch.file("g.tts"));
  request.parameters["move_fraction"] = 0.25;
  request.parameters["regions"] = std::int64_t{1};
  (void)kernels::record("gups", request);
  auto after = loads(Reader{scratch.file("g.tts")}, 0.55, 1);
  CHECK_NEAR(sum(after, 8192, 512) / sum(after, 0, 16384), 0.225 + 0.1 / 32, 0.002);
  CHECK_NEAR(sum(after, 512, 1536) / sum(after, 0, 16384), 0.675 + 0.3 / 32, 0.002);
  request.parameters["move_at"] = 1.0;
  (void)kernels::record("gups", request);
  after = loads(Reader{scratch.file("g.tts")}, 0.55, 1);
  CHECK_NEAR(sum(after, 0, 2048) / sum(after, 0, 16384), 0.9125, 0.002);
}

TEST("kernels: bad requests are refused with their place") {
  const Scratch scratch;
  const auto with = [&](const char* name, kernels::Value value) {
    auto request = small(scratch.file("a.tts"));
    request.parameters[name] = std::move(value);
    return kernels::record("gups", request);
  };
  CHECK_THROWS(kernels::record("gupps", small(scratch.file("a.tts"))), "known: ");
  CHECK_THROWS(with("hot", 1.0), "no parameter hot; it has memory_gib, hot_gib");
  CHECK_THROWS(with("hot_share", 1.5), "gups: parameter hot_share: found 1.5, allowed 0 to 1");
  CHECK_THROWS(with("hot_share", std::string{"all"}), "hot_share: found 'all', expected a number");
  CHECK_THROWS(with("hot_share", std::nan("")), "expected a number");
  CHECK_THROWS(with("regions", 1.5), "regions: found 1.5, expected an integer");
  CHECK_THROWS(with("hot_gib", std::int64_t{40}), "hot_gib: found 40, allowed 0 to 32");
  CHECK_THROWS(with("memory_gib", 0.0), "memory_gib");
  auto request = small(scratch.file("a.tts"));
  request.scale = 0;
  CHECK_THROWS(kernels::record("gups", request), "scale: found 0");
  CHECK_EQ(scratch.files(), 0u);
}

TEST("kernels: a recording that is stopped leaves no file") {
  const Scratch scratch;
  auto request = small(scratch.file("a.tts"));
  std::vector<double> fractions;
  request.progress = [&](double fraction) {
    fractions.push_back(fraction);
    return fraction < 0.5;
  };
  bool interrupted = false;
  try {
    (void)kernels::record("gups", request);
  } catch (const kernels::StreamInterrupted&) {
    interrupted = true;
  }
  CHECK(interrupted);
  CHECK(fractions.size() > 3 && std::ranges::is_sorted(fractions));
  CHECK_EQ(scratch.files(), 0u);
}

TEST("gups: in huge pages, drawn counts give what updates one by one do") {
  const Scratch scratch;
  const auto record = [&](const char* name, std::uint64_t page_bytes) {
    kernels::RecordRequest request = small(scratch.file(name));
    request.scale = 256;  // 128 huge pages: a million updates of each half are made
    request.page_bytes = page_bytes;
    request.parameters["updates_g"] = 1.5;
    (void)kernels::record("gups", request);
  };
  record("made.tts", base_page_bytes);
  record("drawn.tts", huge_page_bytes);
  const Reader made{scratch.file("made.tts")};
  const Reader drawn{scratch.file("drawn.tts")};
  drawn.verify();
  CHECK(drawn.info().entries * 10 < made.info().entries);
  CHECK_EQ(drawn.info().operations, made.info().operations);
  CHECK_NEAR(static_cast<double>(drawn.info().accesses), static_cast<double>(made.info().accesses),
             0.002 * static_cast<double>(made.info().accesses));
  const auto seconds = [](const Reader& stream, const char* name, std::uint64_t seed) {
    sim::RunOptions options;
    options.page_bytes = huge_page_bytes;
    options.coarse = true;
    options.seed = seed;
    return sim::simulate(stream, simtest::full_machine(), policy(name), {}, options).seconds;
  };
  for (const char* name : {"all-fast", "all-slow", "first-touch", "static-hot"}) {
    const double expected = seconds(made, name, 0);
    CHECK_NEAR(seconds(drawn, name, 0), expected, 0.005 * expected);
  }
  // On a fast tier of 14 pages each of HeMem's decisions counts: its mean over some runs.
  const auto mean = [&](const Reader& stream) {
    double sum = 0;
    for (std::uint64_t seed = 0; seed < 16; ++seed) sum += seconds(stream, "hemem", seed) / 16;
    return sum;
  };
  const double expected = mean(made);
  CHECK_NEAR(mean(drawn), expected, 0.05 * expected);
}
