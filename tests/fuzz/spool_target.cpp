// SPDX-License-Identifier: MIT

// Fuzz target: a recording's spools. An input is one spool, or two behind each other (the second
// one's place is found by its magic number).
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstddef>

#include "fuzz.hpp"
#include "record/assemble.hpp"
#include "record/spool.hpp"
#include "trace/reader.hpp"
#include "trace/stream.hpp"

namespace tt::fuzz {
namespace {

using namespace record;

constexpr std::size_t at_magic = offsetof(SpoolHeader, magic);
constexpr std::size_t at_version = offsetof(SpoolHeader, version);
constexpr std::size_t at_records = offsetof(SpoolHeader, records);

/// Where the second spool begins; the input's size if there is none.
std::size_t second(const Bytes& input) {
  for (std::size_t at = spool_header_bytes; at + 8 <= input.size(); at += 16)
    if (peek<std::uint64_t>(input, at) == spool_magic) return at;
  return input.size();
}

void refit(Bytes& input, Rng& rng) {
  if (rng.below(8) == 0) return;
  poke(input, at_magic, spool_magic);
  poke(input, at_version, spool_version);
  const std::size_t size = second(input);
  if (size >= spool_header_bytes && rng.below(4) != 0)
    poke<std::uint64_t>(input, at_records, (size - spool_header_bytes) / sizeof(Record));
  // Records of a type that there is.
  if (rng.below(2) == 0)
    for (std::size_t at = spool_header_bytes; at + sizeof(Record) <= size; at += sizeof(Record)) {
      auto record = peek<Record>(input, at);
      const auto type = static_cast<std::uint64_t>(record.type());
      if (type >= 1 && type <= 8) continue;
      record.word = (record.word & ~(0xffULL << 48)) | (1 + type % 8) << 48;
      poke(input, at, record);
    }
}

trace::StreamInfo description() {
  trace::StreamInfo info;
  info.workload = "fuzz";
  info.lanes = {{"threads", 1}};
  info.classes = {{"sequential", 8, 0, 0}, {"random", 2, 0, 0}};
  return info;
}

bool run(const Bytes& input, const std::filesystem::path& scratch) {
  const auto folder = scratch / "spools";
  const auto out = scratch / "out.tts";
  std::filesystem::create_directory(folder);
  const std::size_t split = second(input);
  const auto middle = input.begin() + static_cast<std::ptrdiff_t>(split);
  write_file(folder / "1.spool", Bytes(input.begin(), middle));
  if (split < input.size())
    write_file(folder / "2.spool", Bytes(middle, input.end()));
  else
    std::filesystem::remove(folder / "2.spool");
  std::filesystem::remove(out);
  AssemblerOptions options;
  options.threads = 0;
  options.wall_time = input.size() % 32 == 0;
  SpoolSummary summary;
  try {
    (void)assemble(folder, out, description(), options, summary);
  } catch (const std::runtime_error&) {
    if (std::filesystem::exists(out)) throw std::logic_error("a refused recording left a stream");
    return false;
  }
  trace::Reader{out}.verify();  // what it writes is a stream
  return true;
}

Bytes made(std::size_t accesses, std::uint64_t start_ns, const std::filesystem::path& file) {
  {
    SpoolWriter spool;
    if (spool.open(file.c_str(), "fuzz", start_ns) != 0)
      throw std::runtime_error(file.string() + ": cannot create");
    spool.header()->pid = static_cast<std::uint32_t>(start_ns);
    spool.header()->threads = 2;
    spool.header()->sampled = 10;
    spool.header()->error_share = 0.1;
    spool.time(start_ns);
    spool.map(0x10000000, 1 << 20, "main.c:7 malloc of a table");
    spool.map(0x20000000, 64 << 20, "");
    for (std::size_t i = 0; i < accesses; ++i) {
      spool.access(0x10000000 + i * 5000, i % 3 == 0, i % 2, 1.5 + static_cast<double>(i));
      spool.access(0x20000000 + i * 70000, false, 1, 1000);
      if (i % 4 == 3) spool.time(start_ns + i * 2'000'000);
    }
    spool.compute(1e6);
    spool.discard(0x10000000, 1 << 16);
    spool.phase(true);
    spool.unmap(0x20000000, 1 << 20);
    spool.access(0x7fff12345678, true, 0, 3);
  }
  Bytes out = read_file(file);
  out.resize(spool_header_bytes + peek<std::uint64_t>(out, at_records) * sizeof(Record));
  std::filesystem::remove(file);
  return out;
}

std::vector<Bytes> seeds() {
  std::string name = (std::filesystem::temp_directory_path() / "tt-seed-XXXXXX").string();
  const std::filesystem::path folder = mkdtemp(name.data());
  const auto file = folder / "seed.spool";
  std::vector<Bytes> out = {made(2, 0, file), made(40, 5'000'000, file)};
  Bytes both = out[0];
  both.insert(both.end(), out[1].begin(), out[1].end());
  out.push_back(both);
  std::filesystem::remove_all(folder);
  return out;
}

}  // namespace

const Target& spool_target() {
  static constexpr Target target{"spool", seeds, refit, run};
  return target;
}

}  // namespace tt::fuzz
