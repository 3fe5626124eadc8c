// SPDX-License-Identifier: MIT

// Streams that rot, or are cut short under their readers: an error, never another result; and that
// what was written is on the disk, as the umask wants it.
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "core/seam.hpp"
#include "fuzz.hpp"
#include "scratch.hpp"
#include "scripted.hpp"
#include "sim/simulate.hpp"
#include "sim_streams.hpp"
#include "trace/kept_reader.hpp"
#include "trace/mapping.hpp"
#include "trace/reader.hpp"

using namespace tt;
using check::Scratch;

namespace {

/// What the next calls of fsync() are recorded in.
struct Synced {
  std::filesystem::path name;
  std::vector<std::string> calls;
};
Synced* synced = nullptr;

/// Result of a trial of a file that nobody has verified; empty: refused by an error that names it.
std::string replayed(const std::filesystem::path& file) {
  sim::RunOptions options;
  options.fast_share = 0.2;
  options.coarse = true;
  try {
    const trace::Reader reader{file};
    const sim::RunResult found =
        sim::simulate(reader, simtest::full_machine(), tt::policy("hybridtier"), {}, options);
    std::string text = std::to_string(found.seconds) + " " + std::to_string(found.operations);
    for (const auto& [name, value] : found.metrics) text += " " + std::to_string(value);
    for (const auto& [name, value] : found.breakdown) text += " " + std::to_string(value);
    return text;
  } catch (const std::runtime_error& error) {
    if (std::string_view{error.what()}.find(file.string()) == std::string_view::npos)
      check::fail(__FILE__, __LINE__, error.what());
    return {};
  }
}

void cut(const std::filesystem::path& file, std::uintmax_t bytes) {
  std::filesystem::resize_file(file, bytes);
}

}  // namespace

// Takes the place of the C library's in this program.
extern "C" int fsync(int file) {
  if (synced != nullptr) {
    struct stat status{};
    ::fstat(file, &status);
    synced->calls.emplace_back(std::string(S_ISDIR(status.st_mode) ? "folder" : "file") +
                               (std::filesystem::exists(synced->name) ? ", named" : ""));
  }
  return static_cast<int>(::syscall(SYS_fsync, file));
}

TEST("rotten stream: any flipped bit is refused by a trial, or changes nothing") {
  const Scratch scratch;
  const auto file = scratch.file("a.tts");
  fuzz::Bytes bytes = fuzz::stream_target().seeds()[2];
  fuzz::write_file(file, bytes);
  const std::string good = replayed(file);
  CHECK(!good.empty());
  std::size_t refused = 0;
  Rng rng{1};
  for (char& byte : bytes) {
    const char before = byte;
    byte = static_cast<char>(byte ^ 1 << rng.below(8));
    fuzz::write_file(file, bytes);
    const std::string found = replayed(file);
    refused += found.empty();
    if (!found.empty() && found != good)
      check::fail(__FILE__, __LINE__, "accepted at " + std::to_string(&byte - bytes.data()));
    byte = before;
  }
  // Nobody reads the page totals, which lie between these two places (trace/layout.hpp).
  const auto totals = fuzz::peek<std::uint64_t>(bytes, 40);
  const auto tables = fuzz::peek<std::uint64_t>(bytes, 48);
  CHECK_EQ(refused, bytes.size() - (tables - totals));
}

TEST("rotten stream: a page number beyond the end is refused, whatever the checksums say") {
  const Scratch scratch;
  const auto file = scratch.file("a.tts");
  fuzz::Bytes bytes = fuzz::stream_target().seeds()[2];
  fuzz::write_file(file, bytes);
  trace::Block block;
  const trace::Reader good{file};
  good.read(1, block);
  const std::uint32_t page = block.segments[0].pages[40];
  // The first place of the file with the same bytes around it.
  const std::string_view all{bytes.data(), bytes.size()};
  const auto* entry = reinterpret_cast<const char*>(&block.segments[0].pages[30]);
  const std::size_t at = all.find({entry, 60}) + 40;
  CHECK_EQ(fuzz::peek<std::uint32_t>(bytes, at), page);
  fuzz::poke<std::uint32_t>(bytes, at, 300);
  Rng rng{0};
  for (int i = 0; i < 20; ++i) fuzz::stream_target().refit(bytes, rng);
  const auto other = scratch.file("b.tts");
  fuzz::write_file(other, bytes);
  const trace::Reader reader{other};
  CHECK_THROWS(reader.read(1, block), "b.tts: corrupt stream: block 1: a page number");
  CHECK(replayed(other).empty());
}

TEST("cut stream: reading on is an error that says so") {
  const Scratch scratch;
  const auto file = scratch.file("a.tts");
  const fuzz::Bytes bytes = fuzz::stream_target().seeds()[3];
  for (const std::size_t left : {std::size_t{0}, std::size_t{1}, bytes.size() / 2}) {
    fuzz::write_file(file, bytes);
    const trace::Reader reader{file};
    trace::Block block;
    reader.read(0, block);
    reader.confirm();
    cut(file, left);
    // What lies in the part of a page that is left stays; the rest of the page reads as zeros.
    bool refused = false;
    try {
      for (std::uint64_t b = 0; b < reader.info().blocks; ++b) reader.read(b, block);
      for (const auto total : reader.page_totals()) refused = refused && total > 0;
    } catch (const std::runtime_error& error) {
      refused = std::string_view{error.what()}.find("a.tts: ") != std::string_view::npos;
    }
    CHECK(refused);
  }
}

TEST("cut stream: in the middle of a replay, also of its last block") {
  constexpr int blocks = 20;
  for (const int after : {1, blocks / 2, blocks}) {
    simtest::TempStream file;
    simtest::write_even(file, 40'000, blocks);
    int ticks = 0;
    std::size_t seen = 0;
    simtest::Hooks what;
    what.period = from_millis(0.5);  // several in a block
    what.start = [](Memory& memory) {
      memory.set_sampling({.loads = {SamplingRequest::Mode::period, 1000}, .stores = {}});
    };
    what.samples = [&](Memory&, std::span<const Sample> samples, Nanos) { seen += samples.size(); };
    what.tick = [&](Memory&, Nanos) {
      if (++ticks == after) cut(file.path(), 0);
    };
    CHECK_THROWS(simtest::run(file, simtest::plain_machine(), what, simtest::share(0.5)),
                 ": truncated stream: it was cut short while it was read");
    CHECK(ticks >= after);
    CHECK(seen > 0);
  }
}

TEST("cut stream: the bus errors of others stay theirs") {
  const Scratch scratch;
  const auto file = scratch.file("a.tts");
  fuzz::write_file(file, fuzz::stream_target().seeds()[2]);
  for (const bool sent : {false, true}) {
    const pid_t child = ::fork();
    if (child == 0) {
      const trace::Reader reader{file};
      if (sent) {
        (void)::raise(SIGBUS);
      } else {
        const auto* const foreign = static_cast<const volatile char*>(
            ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, ::memfd_create("empty", 0), 0));
        (void)*foreign;
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    // Sanitizers have a handler of their own, which reports it and exits.
    CHECK(WIFSIGNALED(status) ? WTERMSIG(status) == SIGBUS : WEXITSTATUS(status) != 0);
  }
}

TEST("kept reader: as long as the file is the same") {
  using std::chrono::system_clock;
  const Scratch scratch;
  const auto file = scratch.file("a.tts");
  const auto later = system_clock::now() + std::chrono::hours{1};
  const fuzz::Bytes bytes = fuzz::stream_target().seeds()[2];
  fuzz::write_file(file, bytes);
  const auto first = trace::kept_reader(file, later);
  CHECK(trace::kept_reader(file, later) == first);
  fuzz::write_file(scratch.file("b.tts"), bytes);
  std::filesystem::rename(scratch.file("b.tts"), file);
  const auto second = trace::kept_reader(file, later);
  CHECK(second != first);
  CHECK(trace::kept_reader(file, later) == second);
  cut(file, 100);
  CHECK_THROWS(trace::kept_reader(file, later), "a.tts: truncated");
  std::filesystem::remove(file);
  CHECK_THROWS(trace::kept_reader(file, later), "a.tts: cannot open");
}

TEST("kept reader: not of a file that has just been changed") {
  const Scratch scratch;
  const auto file = scratch.file("a.tts");
  fuzz::write_file(file, fuzz::stream_target().seeds()[2]);
  const auto then = std::chrono::system_clock::time_point{
      std::chrono::nanoseconds{trace::stamp_of(file).changed_ns}};
  const auto first = trace::kept_reader(file, then + std::chrono::milliseconds{500});
  CHECK(trace::kept_reader(file, then + std::chrono::seconds{2}) != first);
}

TEST("writer: the umask decides who may read") {
  const Scratch scratch;
  for (const mode_t mask : {0022U, 0002U, 0077U, 0000U}) {
    const mode_t before = ::umask(mask);
    simtest::TempStream file;
    simtest::write_even(file, 8, 1);
    ::umask(before);
    struct stat status{};
    CHECK_EQ(::stat(file.path().c_str(), &status), 0);
    CHECK_EQ(status.st_mode & 0777U, 0666U & ~mask);
  }
}

TEST("writer: the content is on the disk before the name, and the name before it returns") {
  simtest::TempStream file;
  Synced recorded{file.path(), {}};
  synced = &recorded;
  simtest::write_even(file, 8, 1);
  synced = nullptr;
  CHECK_EQ(recorded.calls.size(), 2U);
  CHECK_EQ(recorded.calls.front(), "file");
  CHECK_EQ(recorded.calls.back(), "folder, named");
}
