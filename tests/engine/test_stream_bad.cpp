// SPDX-License-Identifier: MIT

// Bad input: files that are not what they claim to be are an error, and nothing else. The fuzzer
// (tests/fuzz) looks for more; its corpus runs here once.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "check.hpp"
#include "core/seam.hpp"
#include "fuzz.hpp"
#include "scratch.hpp"
#include "sim/simulate.hpp"
#include "sim_streams.hpp"
#include "trace/checksum.hpp"
#include "trace/reader.hpp"
#include "trace/stream.hpp"
#include "trace/writer.hpp"

using namespace tt;
using check::Scratch;

namespace {

constexpr std::size_t at_checksum = 184;

/// Where the header has its figures (trace/layout.hpp).
struct Field {
  const char* name;
  std::size_t at;
};
constexpr Field fields[] = {{"file_bytes", 16},    {"blocks", 24},        {"index_offset", 32},
                            {"totals_offset", 40}, {"tables_offset", 48}, {"tables_bytes", 56},
                            {"pages", 88}};

void sign(fuzz::Bytes& bytes) {
  fuzz::poke(bytes, at_checksum,
             trace::checksum(std::as_bytes(std::span(bytes)).first(at_checksum)));
}

std::vector<fuzz::Bytes> corpus(const char* name) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(TT_FUZZ_CORPUS) / name))
    files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<fuzz::Bytes> out;
  for (const auto& file : files) out.push_back(fuzz::read_file(file));
  return out;
}

}  // namespace

TEST("bad input: a header that claims much is not believed") {
  const Scratch scratch;
  const auto file = scratch.file("a.tts");
  const fuzz::Bytes good = fuzz::stream_target().seeds()[2];
  for (const Field& field : fields)
    for (const std::uint64_t claim :
         {std::uint64_t{0}, std::uint64_t{1} << 20, std::uint64_t{1} << 32, std::uint64_t{1} << 40,
          std::uint64_t{1} << 61, ~std::uint64_t{0}, ~std::uint64_t{0} - 63}) {
      fuzz::Bytes bytes = good;
      fuzz::poke(bytes, field.at, claim);
      sign(bytes);
      fuzz::write_file(file, bytes);
      bool refused = false;
      try {
        trace::Reader{file}.verify();
      } catch (const std::runtime_error& error) {
        refused = std::string_view{error.what()}.find("a.tts: ") != std::string_view::npos;
      }
      if (!refused) check::fail(__FILE__, __LINE__, field.name + (": " + std::to_string(claim)));
    }
}

TEST("bad input: what has no end is refused at once") {
  CHECK_THROWS(trace::Reader{"/dev/zero"}, "/dev/zero: not an access stream");
  const Scratch scratch;
  const auto pipe = scratch.file("pipe");
  CHECK_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  CHECK_THROWS(trace::Reader{pipe}, "pipe: not an access stream (no regular file)");
}

TEST("bad input: times that are none") {
  const Scratch scratch;
  const auto file = scratch.file("a.tts");
  trace::StreamInfo info;
  info.lanes = {{"all", 1}};
  info.op_kinds = {{"get"}};
  for (const int which : {0, 1, 2})
    for (const double time : {-1.0, std::nan(""), HUGE_VAL}) {
      const double compute[1] = {which == 0 ? time : 1};
      const std::uint64_t operations[1] = {1};
      trace::Block block;
      block.compute_ns = compute;
      block.operations = operations;
      block.nominal_ns = which == 1 ? time : 1;
      block.sampled = {{0, which == 2 ? time : 1, {}}};
      trace::Writer writer{file, info};
      writer.write(block);
      writer.finish(info);
      CHECK_THROWS(trace::Reader{file}.verify(), "time is negative");
    }
}

TEST("bad input: a stream that would play for ever") {
  for (const bool timed : {false, true})
    for (const double issue_ns :
         {0.0, 1.7e308}) {  // the second one is infinite with the lane's own
      const simtest::TempStream file;
      simtest::StreamWriter writer{file, simtest::one_class(8, 1, 1, issue_ns)};
      simtest::map_and_touch(writer, 0, 8);
      writer.parts.push_back({0, AccessKind::load, {1}, {9}});
      writer.compute() = {1e200};
      writer.block(timed, 1e6);
      writer.finish();
      const trace::Reader reader{file.path()};
      reader.verify();
      CHECK_THROWS(sim::simulate(reader, simtest::plain_machine(), tt::policy("hybridtier"), {},
                                 {.coarse = true}),
                   "more than 1,000,000 virtual seconds");
    }
}

TEST("bad input: a deadline holds within a block, however long") {
  const simtest::TempStream file;
  simtest::StreamWriter writer{file, simtest::one_class(8, 1)};
  simtest::map_and_touch(writer, 0, 8);
  writer.compute() = {3.9e14};  // on four threads: about 97,000 seconds, a row of the series each
  writer.block(true, 1e6);
  writer.finish();
  sim::RunOptions options;
  options.coarse = true;
  options.deadline_seconds = 1e-9;
  bool late = false;
  try {
    (void)sim::simulate(trace::Reader{file.path()}, simtest::plain_machine(),
                        tt::policy("first-touch"), {}, options);
  } catch (const sim::DeadlineExceeded&) {
    late = true;
  }
  CHECK(late);
}

TEST("bad input: refitting an untouched stream changes nothing") {
  // Keeps the fuzzer's idea of the layout at that of the reader.
  for (const fuzz::Bytes& seed : fuzz::stream_target().seeds()) {
    Rng rng{1};
    for (int i = 0; i < 16; ++i) {
      fuzz::Bytes bytes = seed;
      fuzz::stream_target().refit(bytes, rng);
      CHECK(bytes == seed);
    }
  }
}

TEST("bad input: the fuzzer's corpus") {
  const Scratch scratch;
  for (const fuzz::Target* target : fuzz::targets()) {
    std::size_t accepted = 0;
    for (const fuzz::Bytes& seed : target->seeds()) accepted += target->run(seed, scratch.path);
    CHECK_EQ(accepted, target->seeds().size());
    const std::vector<fuzz::Bytes> inputs = corpus(target->name);
    CHECK(inputs.size() >= 10);
    for (const fuzz::Bytes& input : inputs) (void)target->run(input, scratch.path);
  }
}

TEST("bad input: a few mutations of every seed") {
  const Scratch scratch;
  Rng rng{7};
  for (const fuzz::Target* target : fuzz::targets())
    for (const fuzz::Bytes& seed : target->seeds())
      for (int i = 0; i < 20 && seed.size() < 20'000; ++i) {
        fuzz::Bytes bytes = seed;
        for (int n = 0; n < 3; ++n)
          fuzz::poke<std::uint32_t>(bytes, rng.below(bytes.size()) & ~std::size_t{3},
                                    static_cast<std::uint32_t>(rng.next()));
        target->refit(bytes, rng);
        (void)target->run(bytes, scratch.path);
      }
}
