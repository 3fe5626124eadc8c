// SPDX-License-Identifier: MIT

// Speed of the recorder: the cache filter, coalescing and blocks that every stream is made through.
// Prints one JSON object: millions of lines touched per second of processor time, medians of five
// rounds.
//
//   recorder.scattered   single lines, half Zipf-like and half uniform, over 1 GiB
//   recorder.sequential  64 KiB at a time
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "core/rng.hpp"
#include "trace/recorder.hpp"

namespace {

using namespace tt;

constexpr std::uint64_t bytes = std::uint64_t{1} << 30;

/// M lines/s of work(recorder, address of 1 GiB), which touches `lines`.
double rate(std::uint64_t lines,
            const std::function<void(trace::Recorder&, trace::Address)>& work) {
  const auto file =
      std::filesystem::temp_directory_path() / ("bench_recorder_" + std::to_string(::getpid()));
  std::vector<double> rates;
  for (int round = 0; round < 5; ++round) {
    trace::StreamInfo info;
    info.workload = "bench";
    info.classes = {{"all", 4, 5, 0}};
    info.lanes = {{"all", 1}};
    trace::RecorderOptions options;
    options.scale = 64;
    trace::Recorder recorder{file, info, options};
    const trace::Address at = recorder.map("heap", bytes);
    const std::clock_t start = std::clock();
    work(recorder, at);
    rates.push_back(static_cast<double>(lines) * CLOCKS_PER_SEC / 1e6 /
                    static_cast<double>(std::clock() - start));
    (void)recorder.finish();
    std::filesystem::remove(file);
  }
  std::ranges::sort(rates);
  return rates[rates.size() / 2];
}

double scattered() {
  constexpr std::size_t touches = std::size_t{1} << 23;
  std::vector<trace::Address> offsets(touches);
  Rng rng{1};
  for (std::size_t i = 0; i < touches; ++i) {
    const double u = rng.uniform();
    const double place = i % 2 == 0 ? u : u * u * u * u;
    offsets[i] = static_cast<trace::Address>(place * static_cast<double>(bytes)) / 64 * 64;
  }
  return rate(touches, [&](trace::Recorder& recorder, trace::Address at) {
    for (std::size_t i = 0; i < touches; ++i) {
      if (i % 8 == 0)
        recorder.store(0, at + offsets[i], 8);
      else
        recorder.load(0, at + offsets[i], 8);
    }
  });
}

double sequential() {
  constexpr std::uint64_t piece = 64 << 10;
  return rate(2 * bytes / 64, [&](trace::Recorder& recorder, trace::Address at) {
    for (int pass = 0; pass < 2; ++pass)
      for (std::uint64_t offset = 0; offset < bytes; offset += piece)
        recorder.load(0, at + offset, piece);
  });
}

}  // namespace

int main() {
  try {
    std::printf("{\"recorder.scattered\": %.6g, ", scattered());
    std::printf("\"recorder.sequential\": %.6g}\n", sequential());
  } catch (const std::exception& error) {
    std::cerr << "bench_recorder: " << error.what() << "\n";
    return 1;
  }
}
