// SPDX-License-Identifier: MIT

// Streams of huge pages, and blocks that are repeated or drawn instead of made.
#include <cmath>
#include <string>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "scratch.hpp"
#include "scripted.hpp"
#include "sim/simulate.hpp"
#include "trace/poisson.hpp"
#include "trace/reader.hpp"
#include "trace/recorder.hpp"

using namespace tt;
using namespace tt::trace;
using check::Scratch;

namespace {

StreamInfo description(std::uint64_t page_bytes) {
  StreamInfo info;
  info.workload = "test";
  info.page_bytes = page_bytes;
  info.lanes = {{"all", 1}};
  info.classes = {{"update", 4, 0}, {"read", 2, 0}, {"fill", 8, 0}};
  info.op_kinds = {{"get"}};
  return info;
}

RecorderOptions short_blocks() {
  RecorderOptions options;
  options.llc_bytes = 64 << 10;
  options.block_ms = 0.05;
  options.threads = 1;
  options.op_sample_probability = 0.1;
  return options;
}

struct Sums {
  std::vector<double> loads, stores;
  double compute = 0, operations = 0, sampled = 0, blocks = 0;
};

Sums sums_of(const Reader& reader) {
  Sums sums;
  sums.loads.resize(reader.info().pages);
  sums.stores.resize(reader.info().pages);
  Block block;
  for (std::uint64_t b = 0; b < reader.info().blocks; ++b) {
    reader.read(b, block);
    if (!block.timed) continue;
    ++sums.blocks;
    sums.compute += block.compute_ns[0];
    sums.operations += static_cast<double>(block.operations[0]);
    sums.sampled += static_cast<double>(block.sampled.size());
    for (const Segment& segment : block.segments)
      for (std::size_t e = 0; e < segment.pages.size(); ++e)
        (segment.kind == AccessKind::load ? sums.loads : sums.stores)[segment.pages[e]] +=
            segment.counts[e];
  }
  return sums;
}

constexpr std::uint64_t pages = 40;

/// Independent operations: an update in the first half by a skewed law, and a read in the other.
class Drawn {
 public:
  Drawn(const std::filesystem::path& file)
      : recorder_(file, description(huge_page_bytes), short_blocks()),
        base_(recorder_.map("table", pages * huge_page_bytes)) {
    recorder_.set_timed(false);
    recorder_.store(2, base_, pages * huge_page_bytes);
    recorder_.set_timed(true);
  }
  void make(int operations) {
    for (int i = 0; i < operations; ++i) {
      recorder_.begin_operation(0);
      recorder_.compute(0, 10);
      const double u = rng_.uniform();
      const Address line = line_of(u * u * u / 2);
      recorder_.load(0, line, 8);
      recorder_.store(0, line, 8);
      recorder_.load(1, line_of(0.5 + rng_.uniform() / 2), 8);
      recorder_.end_operation();
    }
  }
  Recorder& recorder() { return recorder_; }

 private:
  Address line_of(double share) const {
    return base_ + static_cast<Address>(share * pages * huge_page_bytes) / 64 * 64;
  }
  Recorder recorder_;
  Address base_;
  Rng rng_{5};
};

}  // namespace

TEST("poisson: mean and variance, whatever the mean") {
  for (const double mean : {0.01, 0.7, 9.9, 10.0, 57.0, 4000.0}) {
    Rng rng{1};
    const Poisson poisson{mean};
    constexpr int draws = 200000;
    double sum = 0;
    double squares = 0;
    for (int i = 0; i < draws; ++i) {
      const auto count = static_cast<double>(poisson.draw(rng));
      sum += count - mean;
      squares += (count - mean) * (count - mean);
    }
    // Four standard errors: of the mean, and of the variance, which has 2 m^2 + m.
    CHECK_NEAR(sum / draws, 0, 4 * std::sqrt(mean / draws));
    CHECK_NEAR(squares / draws, mean, 4 * std::sqrt((2 * mean * mean + mean) / draws));
  }
}

TEST("recorder: a stream of huge pages has the misses of one of base pages, page by page") {
  const Scratch scratch;
  const auto record = [&](const char* name, std::uint64_t page_bytes) {
    Recorder recorder{scratch.file(name), description(page_bytes), short_blocks()};
    const Address base = recorder.map("table", 8 * huge_page_bytes);
    Rng rng{2};
    for (int i = 0; i < 100000; ++i) {
      const Address at = base + rng.below(8 * huge_page_bytes / 256) * 256;
      recorder.load(1, at, 200);
      if (i % 3 == 0) recorder.store(1, at, 8);
    }
    return recorder.finish();
  };
  const StreamInfo base = record("base.tts", base_page_bytes);
  const StreamInfo huge = record("huge.tts", huge_page_bytes);
  CHECK_EQ(base.pages, 8u * 512);
  CHECK_EQ(huge.pages, 8u);
  CHECK_EQ(base.accesses, huge.accesses);
  CHECK_NEAR(base.nominal_seconds, huge.nominal_seconds, 1e-12);
  CHECK(huge.entries * 20 < base.entries);
  const Reader fine{scratch.file("base.tts")};
  const Reader coarse{scratch.file("huge.tts")};
  CHECK_EQ(coarse.info().page_bytes, huge_page_bytes);
  coarse.verify();
  const Sums small = sums_of(fine);
  const Sums large = sums_of(coarse);
  for (std::size_t page = 0; page < 8; ++page) {
    double loads = 0;
    double stores = 0;
    for (std::size_t part = 0; part < 512; ++part) {
      loads += small.loads[page * 512 + part];
      stores += small.stores[page * 512 + part];
    }
    CHECK_NEAR(large.loads[page], loads, 0);
    CHECK_NEAR(large.stores[page], stores, 0);
  }
}

TEST("recorder: mappings of a stream of huge pages do not share a page") {
  const Scratch scratch;
  Recorder recorder{scratch.file("a.tts"), description(huge_page_bytes), short_blocks()};
  const Address first = recorder.map("a", 100);
  const Address second = recorder.map("b", huge_page_bytes + 1);
  CHECK_EQ(second - first, huge_page_bytes);
  recorder.load(1, second + huge_page_bytes, 1);
  recorder.load(1, first, 1);
  CHECK_THROWS(recorder.load(1, second + 2 * huge_page_bytes, 1), "not mapped");
  recorder.unmap(first);
  CHECK_EQ(recorder.finish().pages, 3u);
  StreamInfo odd = description(8192);
  CHECK_THROWS(Recorder(scratch.file("b.tts"), odd, short_blocks()), "4096 or 2097152");
}

TEST("recorder: drawn blocks are like those that were made") {
  const Scratch scratch;
  constexpr int part = 200000;
  {
    Drawn made{scratch.file("made.tts")};
    made.make(6 * part);
    made.recorder().finish();
    Drawn drawn{scratch.file("drawn.tts")};
    drawn.recorder().begin_pattern();
    drawn.make(part);
    drawn.recorder().end_pattern();
    drawn.recorder().draw_pattern(5);
    drawn.recorder().finish();
  }
  const Reader reader{scratch.file("drawn.tts")};
  reader.verify();
  const Reader reference{scratch.file("made.tts")};
  const Sums made = sums_of(reference);
  const Sums drawn = sums_of(reader);
  CHECK_EQ(drawn.operations, made.operations);
  CHECK_NEAR(drawn.compute, made.compute, 1e-6 * made.compute);
  CHECK_NEAR(drawn.blocks, made.blocks, 0.01 * made.blocks);
  CHECK_NEAR(drawn.sampled, made.sampled, 0.05 * made.sampled);
  CHECK_NEAR(reader.info().nominal_seconds, reference.info().nominal_seconds,
             0.003 * reference.info().nominal_seconds);
  for (std::size_t page = 0; page < pages; ++page) {
    // Two independent counts, and the pattern's own error five times over.
    const double error = 4 * std::sqrt(made.loads[page] * 7);
    CHECK_NEAR(drawn.loads[page], made.loads[page], error);
    CHECK_NEAR(drawn.stores[page], made.stores[page], error);
  }
  // An update stores where it has loaded, in drawn blocks too; and blocks differ from each other.
  Block block;
  std::uint64_t mirrored = 0;
  std::uint64_t last = 0;
  std::uint64_t same = 0;
  for (std::uint64_t b = 0; b < reader.info().blocks; ++b) {
    reader.read(b, block);
    if (!block.timed || block.segments.size() < 2) continue;
    CHECK(block.segments[0].kind == AccessKind::load);
    CHECK(block.segments[1].kind == AccessKind::store);
    mirrored += static_cast<std::uint64_t>(block.segments[0].sum == block.segments[1].sum);
    same += static_cast<std::uint64_t>(block.segments[0].sum == last);
    last = block.segments[0].sum;
  }
  CHECK(static_cast<double>(mirrored) > 0.99 * drawn.blocks);
  CHECK(static_cast<double>(same) < 0.1 * drawn.blocks);
}

TEST("recorder: a part of a pattern's length may be drawn, and a pattern be repeated") {
  const Scratch scratch;
  const auto operations = [&](const char* name, auto append) {
    Drawn drawn{scratch.file(name)};
    drawn.recorder().begin_pattern();
    drawn.make(10000);
    drawn.recorder().end_pattern();
    append(drawn.recorder());
    return drawn.recorder().finish();
  };
  CHECK_EQ(operations("a.tts", [](Recorder& to) { to.draw_pattern(0.25); }).operations, 12500u);
  CHECK_EQ(operations("b.tts", [](Recorder& to) { to.draw_pattern(0); }).operations, 10000u);
  const StreamInfo once = operations("c.tts", [](Recorder&) {});
  const StreamInfo thrice = operations("d.tts", [](Recorder& to) { to.repeat_pattern(2); });
  CHECK_EQ(thrice.operations, 30000u);
  CHECK_NEAR(thrice.nominal_seconds, 3 * once.nominal_seconds, 1e-12);
  const Reader reader{scratch.file("d.tts")};
  reader.verify();
  const Sums sums = sums_of(Reader{scratch.file("c.tts")});
  const Sums repeated = sums_of(reader);
  for (std::size_t page = 0; page < pages; ++page)
    CHECK_NEAR(repeated.loads[page], 3 * sums.loads[page], 0);
}

TEST("recorder: what cannot be a pattern is refused") {
  const Scratch scratch;
  Drawn drawn{scratch.file("a.tts")};
  Recorder& recorder = drawn.recorder();
  CHECK_THROWS(recorder.draw_pattern(1), "no pattern");
  CHECK_THROWS(recorder.end_pattern(), "no pattern");
  recorder.begin_pattern();
  CHECK_THROWS(recorder.begin_pattern(), "inside another");
  drawn.make(100);
  CHECK_THROWS(recorder.repeat_pattern(1), "no pattern");
  const Address more = recorder.map("more", 4096);
  drawn.make(100);
  recorder.end_pattern();
  CHECK_THROWS(recorder.draw_pattern(1), "no pattern");
  // What it mapped may be mapped again, but what it freed of others' not be freed twice.
  recorder.repeat_pattern(1);
  recorder.begin_pattern();
  drawn.make(100);
  recorder.unmap(more);
  recorder.end_pattern();
  CHECK_THROWS(recorder.repeat_pattern(1), "no pattern");
  recorder.begin_pattern();
  drawn.make(100);
  recorder.end_pattern();
  recorder.set_timed(false);
  CHECK_THROWS(recorder.repeat_pattern(1), "no pattern");
}

TEST("sim: too few fast pages are refused, with what would help") {
  simtest::TempStream stream;
  simtest::write_even(stream, 2048, 2, 512);  // 4 GiB at full scale
  const PolicyInfo& first_touch = policy("first-touch");
  const auto run = [&](sim::RunOptions options) {
    return sim::simulate(stream.reader(), simtest::plain_machine(), first_touch, {}, options);
  };
  CHECK(run({.fast_share = 256.0 / 2048}).seconds > 0);
  CHECK_THROWS(run({.fast_share = 255.0 / 2048}),
               "at scale 512 the fast tier holds 255 simulated pages of 4 KiB, and a run needs at "
               "least 256. What helps: --scale 510 or less (a larger miniature, which takes "
               "longer); --fast-gib 0.5 or more (a larger fast tier)");
  CHECK(run({.fast_share = 255.0 / 2048, .coarse = true}).seconds > 0);
  // Half a GiB of fast memory is 256 huge pages at R = 1.
  CHECK_THROWS(run({.fast_share = 0.5, .page_bytes = huge_page_bytes}),
               "2 simulated pages of 2 MiB, and a run needs at least 256. What helps: --scale 4 or "
               "less (a larger miniature, which takes longer); --page-bytes 4096 (base pages)");
  // Nothing to decide: a fast tier of nothing, or of everything.
  CHECK(run({.fast_share = 0}).seconds > 0);
  CHECK(run({.fast_share = 1, .page_bytes = huge_page_bytes}).seconds > 0);
  CHECK(sim::simulate(stream.reader(), simtest::plain_machine(), policy("all-fast"), {},
                      {.page_bytes = huge_page_bytes})
            .seconds > 0);
}

TEST("sim: a stream of huge pages is for huge pages alone") {
  const Scratch scratch;
  {
    Drawn drawn{scratch.file("a.tts")};
    drawn.make(20000);
    drawn.recorder().finish();
  }
  const Reader reader{scratch.file("a.tts")};
  const auto run = [&](std::uint64_t page_bytes) {
    return sim::simulate(reader, simtest::plain_machine(), policy("static-hot"), {},
                         {.fast_share = 0.25, .page_bytes = page_bytes, .coarse = true});
  };
  CHECK_THROWS(run(4096), "managed pages of 4096 bytes need a stream of such pages");
  const auto result = run(huge_page_bytes);
  CHECK_NEAR(result.metrics.at("footprint_bytes"), pages * 2097152.0, 0);
  CHECK_NEAR(result.metrics.at("fast_capacity_bytes"), pages / 4 * 2097152.0, 0);
  CHECK(result.metrics.at("fast_hit_ratio") > 0.3);
}
