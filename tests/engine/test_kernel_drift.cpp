// SPDX-License-Identifier: MIT

// drift: how many accesses the window gets, that it moves by accesses, and what one is to memory.
#include <algorithm>
#include <vector>

#include "check.hpp"
#include "kernels/kernel.hpp"
#include "scratch.hpp"
#include "stream_sums.hpp"
#include "trace/reader.hpp"

using namespace tt;
using namespace tt::trace;
using check::Scratch;
using test::common;
using test::hottest;
using test::Lines;
using test::lines;
using test::loads;
using test::sum;

namespace {

kernels::RecordRequest small(const std::filesystem::path& file) {
  kernels::RecordRequest request;
  request.workload = "drift";
  request.input = "test";
  request.scale = 1024;  // 4,096 pages, 512 hot
  request.threads = 12;
  request.llc_bytes = 4096;  // next to no hits, so that every access is in the stream
  request.seed = 3;
  request.file = file;
  request.parameters["accesses_g"] = 1.0;  // 976,563 simulated
  request.parameters["turnover_g"] = 0.0;
  return request;
}

double share_of(const std::vector<double>& counts, const std::vector<std::size_t>& pages) {
  double found = 0;
  for (const std::size_t page : pages) found += counts[page];
  return found / sum(counts);
}

}  // namespace

TEST("drift: a window that stays gets its share, uniformly") {
  const Scratch scratch;
  const StreamInfo info = kernels::record("drift", small(scratch.file("d.tts")));
  const Reader reader{scratch.file("d.tts")};
  reader.verify();
  CHECK_EQ(info.pages, 4096u);
  CHECK_EQ(info.operations, 976563u);
  const auto counts = loads(reader, 0, 1);
  const auto hot = hottest(counts, 512);
  // 0.9 to the window and an eighth of the uniform 0.1 too.
  CHECK_NEAR(share_of(counts, hot), 0.9125, 0.002);
  const double mean = 0.9125 * sum(counts) / 512;
  for (const std::size_t page : hot) CHECK_NEAR(counts[page], mean, 6 * std::sqrt(mean));
  // In a random order: not side by side, and spread over the memory.
  CHECK(hot.back() - hot.front() > 3500);
  const auto lower = std::ranges::count_if(hot, [](std::size_t page) { return page < 2048; });
  CHECK_NEAR(static_cast<double>(lower), 256, 60);
  CHECK_NEAR(common(hottest(loads(reader, 0, 0.2), 512), hottest(loads(reader, 0.8, 1), 512)), 1,
             0);
}

TEST("drift: the window is another one after a turnover, half another after half of one") {
  const Scratch scratch;
  auto request = small(scratch.file("d.tts"));
  request.parameters["turnover_g"] = 0.5;
  request.parameters["block_ms"] = 1.0;
  (void)kernels::record("drift", request);
  const Reader reader{scratch.file("d.tts")};
  // What is hot within a twentieth of the run, in which a tenth of the window changes.
  const auto at = [&](double from) { return hottest(loads(reader, from, from + 0.05), 512); };
  const auto start = at(0);
  CHECK_NEAR(common(start, at(0.25)), 0.5, 0.1);
  CHECK(common(start, at(0.55)) < 0.03);
  CHECK(common(start, at(0.95)) < 0.03);
  CHECK(common(at(0.5), at(0.55)) > 0.8);
}

TEST("drift: the window moves by accesses, whatever the scale and the dependence") {
  const Scratch scratch;
  const auto at_half = [&](double scale, double mlp) {
    auto request = small(scratch.file("d.tts"));
    request.scale = scale;
    request.parameters["mlp"] = mlp;
    request.parameters["turnover_g"] = 0.5;
    request.parameters["block_ms"] = 1.0;
    request.parameters["memory_gib"] = 16.0 * scale / 1024;  // as many pages
    request.parameters["hot_gib"] = 2.0 * scale / 1024;
    (void)kernels::record("drift", request);
    const Reader reader{request.file};
    return common(hottest(loads(reader, 0, 0.05), 512), hottest(loads(reader, 0.25, 0.3), 512));
  };
  const double expected = at_half(1024, 5);
  CHECK_NEAR(at_half(1024, 1), expected, 0.03);
  CHECK_NEAR(at_half(512, 5), expected, 0.03);
}

TEST("drift: a window of everything, or of nothing, is uniform") {
  const Scratch scratch;
  for (const double hot_gib : {0.0, 16.0}) {
    auto request = small(scratch.file("d.tts"));
    request.parameters["hot_gib"] = hot_gib;
    request.parameters["turnover_g"] = 0.3;
    (void)kernels::record("drift", request);
    const auto counts = loads(Reader{request.file}, 0, 1);
    const double mean = sum(counts) / 4096;
    const auto [least, most] = std::ranges::minmax(counts);
    CHECK(least > mean - 6 * std::sqrt(mean) && most < mean + 6 * std::sqrt(mean));
  }
}

TEST("drift: an access reads one line, and writes it in the share of stores") {
  const Scratch scratch;
  const auto written = [&](double store_share) {
    auto request = small(scratch.file("d.tts"));
    request.parameters["store_share"] = store_share;
    const StreamInfo info = kernels::record("drift", request);
    const Reader reader{request.file};
    CHECK_EQ(info.classes[0].mlp, 5.0);
    const Lines all = lines(reader);
    CHECK_EQ(all.set_up, static_cast<double>(info.pages * 64));
    CHECK_NEAR(all.read / static_cast<double>(info.operations), 1, 0.01);
    return all.written / all.read;
  };
  CHECK_EQ(written(0), 0.0);
  CHECK_NEAR(written(0.3), 0.3, 0.005);
  CHECK_NEAR(written(1), 1, 0.001);
}

TEST("drift: huge pages are hot throughout") {
  const Scratch scratch;
  auto request = small(scratch.file("d.tts"));
  request.page_bytes = huge_page_bytes;
  request.scale = 64;  // 128 huge pages, 16 hot
  request.parameters["accesses_g"] = 0.03;
  const StreamInfo info = kernels::record("drift", request);
  CHECK_EQ(info.pages, 128u);
  const auto counts = loads(Reader{request.file}, 0, 1);
  CHECK_NEAR(share_of(counts, hottest(counts, 16)), 0.9125, 0.005);
}

TEST("drift: bad parameters are refused with their place") {
  const Scratch scratch;
  const auto with = [&](const char* name, kernels::Value value) {
    auto request = small(scratch.file("a.tts"));
    request.parameters[name] = std::move(value);
    return kernels::record("drift", request);
  };
  CHECK_THROWS(with("hot_gib", 17.0), "drift: parameter hot_gib: found 17, allowed 0 to 16");
  CHECK_THROWS(with("hot_gib", 0.001), "hot_gib: less than a page at scale 1024");
  CHECK_THROWS(with("memory_gib", 0.0), "memory_gib: found 0");
  CHECK_THROWS(with("mlp", 11.0), "mlp: found 11, allowed 1 to 10");
  CHECK_THROWS(with("mlp", 0.5), "mlp: found 0.5, allowed 1 to 10");
  CHECK_THROWS(with("turnover_g", -1.0), "turnover_g: found -1");
  CHECK_THROWS(with("store_share", 1.5), "store_share: found 1.5, allowed 0 to 1");
  CHECK_EQ(scratch.files(), 0u);
}
