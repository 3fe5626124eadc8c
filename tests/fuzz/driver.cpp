// SPDX-License-Identifier: MIT

// Fuzz driver: mutates inputs, keeps those that reach code in a new way, stops at the first
// finding.
//
//   fuzz TARGET [--corpus DIR] [--seconds N | --runs N] [--seed S] [--keep DIR]
//
// Coverage is the compiler's (-fsanitize-coverage=trace-pc): a counter per place in the engine,
// in the classes 1, 2, 3, 4-7, 8-15, ... as AFL (Zalewski, 2013) made common. An input that sets a
// class for the first time is kept and mutated further. Without instrumentation it still mutates
// the corpus. --runs is repeatable to the byte: same corpus, same seed, same inputs.
//
// A finding is a sanitizer's report, an exception that a target does not expect, or an input that
// takes longer than 20 seconds. The input is left in the scratch folder, which is named at the end
// of the output.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <string_view>

#include "fuzz.hpp"

namespace {

constexpr std::size_t map_bytes = 1 << 16;
alignas(64) std::array<std::uint8_t, map_bytes> hits{};

}  // namespace

// Called by the instrumented engine at every place; must not be instrumented itself.
extern "C" void __sanitizer_cov_trace_pc();
extern "C" void __sanitizer_cov_trace_pc() {
  const auto place = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  std::uint8_t& count = hits[(place ^ place >> 16) % map_bytes];
  if (count < 255) ++count;
}

// A header that claims much must not be believed: an allocation of more than 512 MiB is a finding.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=512:allocator_may_return_null=0:hard_rss_limit_mb=3000:"
         "handle_sigill=1";  // a check that traps is a finding, whose input is kept
}

namespace {

using namespace tt;
using namespace tt::fuzz;

constexpr unsigned longest_seconds = 20;
constexpr std::size_t largest_input = 1 << 17;

std::uint8_t class_of(std::uint8_t count) {
  if (count <= 3) return static_cast<std::uint8_t>(count == 0 ? 0 : 1 << (count - 1));
  return static_cast<std::uint8_t>(1 << std::min<int>(7, std::bit_width(unsigned{count})));
}

/// What has been reached so far.
class Coverage {
 public:
  static void start() { hits.fill(0); }
  /// Takes in the last run; whether it reached something new.
  bool add() {
    bool fresh = false;
    for (std::size_t word = 0; word < map_bytes; word += 8) {
      std::uint64_t any = 0;
      std::memcpy(&any, hits.data() + word, 8);
      if (any == 0) continue;
      for (std::size_t i = word; i < word + 8; ++i) {
        const std::uint8_t now = class_of(hits[i]);
        if ((now & ~seen_[i]) == 0) continue;
        places_ += seen_[i] == 0;
        seen_[i] |= now;
        fresh = true;
      }
    }
    return fresh;
  }
  [[nodiscard]] std::size_t places() const { return places_; }

 private:
  std::array<std::uint8_t, map_bytes> seen_{};
  std::size_t places_ = 0;
};

std::uint64_t interesting(Rng& rng, std::size_t size) {
  switch (rng.below(8)) {
    case 0:
      return 0;
    case 1:
      return ~std::uint64_t{0};
    case 2:
      return std::uint64_t{1} << rng.below(64);
    case 3:
      return (std::uint64_t{1} << rng.below(64)) - 1;
    case 4:
      return size - rng.below(std::min<std::size_t>(size + 1, 256));
    case 5:
      return rng.below(256);
    case 6: {
      static constexpr std::array values = {std::numeric_limits<double>::quiet_NaN(),
                                            std::numeric_limits<double>::infinity(),
                                            -1.0,
                                            1e300,
                                            1e-300,
                                            1e18,
                                            -0.0,
                                            0.5};
      return std::bit_cast<std::uint64_t>(values[rng.below(values.size())]);
    }
    default:
      return rng.next();
  }
}

void mutate_once(Bytes& bytes, const std::vector<Bytes>& corpus, Rng& rng) {
  const std::size_t size = bytes.size();
  if (size == 0) {
    bytes.resize(1 + rng.below(64));
    return;
  }
  // Fields lie at multiples of four, and interesting ones in front.
  std::size_t at = rng.below(rng.below(3) == 0 ? std::min<std::size_t>(size, 512) : size);
  const auto place = [&bytes](std::size_t i) {
    return bytes.begin() + static_cast<std::ptrdiff_t>(i);
  };
  switch (rng.below(10)) {
    case 0:
      bytes[at] = static_cast<char>(bytes[at] ^ 1 << rng.below(8));
      break;
    case 1:
      bytes[at] = static_cast<char>(rng.next());
      break;
    case 2:
      poke<std::uint64_t>(bytes, at & ~std::size_t{7}, interesting(rng, size));
      break;
    case 3:
      poke(bytes, at & ~std::size_t{3}, static_cast<std::uint32_t>(interesting(rng, size)));
      break;
    case 4:
      poke(bytes, at & ~std::size_t{1}, static_cast<std::uint16_t>(interesting(rng, size)));
      break;
    case 5: {
      const auto step = static_cast<std::uint64_t>(rng.below(17)) - 8;
      const std::size_t field = at & ~std::size_t{7};
      poke(bytes, field, peek<std::uint64_t>(bytes, field) + step);
      break;
    }
    case 6: {  // copy a piece over another place
      const std::size_t length = 1 + rng.below(std::min<std::size_t>(size, 128));
      const std::size_t from = rng.below(size - length + 1), to = rng.below(size - length + 1);
      std::memmove(bytes.data() + to, bytes.data() + from, length);
      break;
    }
    case 7: {  // remove a piece
      if (rng.below(2) == 0) at &= ~std::size_t{63};
      const std::size_t length = std::min(size - at, std::size_t{16} << rng.below(4));
      bytes.erase(place(at), place(at + length));
      break;
    }
    case 8: {  // repeat a piece, or cut the end off
      if (rng.below(3) == 0) {
        bytes.resize(at);
        break;
      }
      at &= ~std::size_t{15};
      const Bytes piece(place(at), place(std::min(size, at + (std::size_t{16} << rng.below(4)))));
      bytes.insert(place(at), piece.begin(), piece.end());
      break;
    }
    default: {  // the end of another input
      const Bytes& other = corpus[rng.below(corpus.size())];
      if (other.size() > at) {
        bytes.resize(at);
        bytes.insert(bytes.end(), other.begin() + static_cast<std::ptrdiff_t>(at), other.end());
      }
    }
  }
  if (bytes.size() > largest_input) bytes.resize(largest_input);
}

struct Options {
  const Target* target = nullptr;
  std::filesystem::path corpus, keep;
  double seconds = 600;
  std::uint64_t runs = ~std::uint64_t{0};
  std::uint64_t seed = 1;
};

Options parse(int argc, char** argv) {
  Options out;
  const auto usage = [] {
    std::fprintf(
        stderr,
        "usage: fuzz stream|spool|import|perf [--corpus DIR] [--seconds N | --runs N] [--seed S] "
        "[--keep DIR]\n");
    std::exit(2);
  };
  if (argc < 2 || argc % 2 != 0) usage();
  for (const Target* target : targets())
    if (std::string_view{argv[1]} == target->name) out.target = target;
  if (out.target == nullptr) usage();
  for (int i = 2; i < argc; i += 2) {
    const std::string_view option = argv[i];
    const char* value = argv[i + 1];
    if (option == "--corpus")
      out.corpus = value;
    else if (option == "--keep")
      out.keep = value;
    else if (option == "--seconds")
      out.seconds = std::strtod(value, nullptr);
    else if (option == "--runs")
      out.runs = std::strtoull(value, nullptr, 10);
    else if (option == "--seed")
      out.seed = std::strtoull(value, nullptr, 10);
    else
      usage();
  }
  return out;
}

double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void too_long(int) {
  static constexpr std::string_view text = "fuzz: finding: an input takes too long\n";
  (void)!write(2, text.data(), text.size());
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const Target& target = *options.target;
  std::string name = (std::filesystem::temp_directory_path() / "tt-fuzz-XXXXXX").string();
  const std::filesystem::path scratch = mkdtemp(name.data());
  std::printf("fuzz %s: seed %llu, scratch folder %s\n", target.name,
              static_cast<unsigned long long>(options.seed), scratch.c_str());
  std::fflush(stdout);
  std::signal(SIGALRM, too_long);

  std::vector<Bytes> corpus = target.seeds();
  if (!options.corpus.empty()) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(options.corpus))
      files.push_back(entry.path());
    std::ranges::sort(files);
    for (const auto& file : files) corpus.push_back(read_file(file));
  }
  Coverage coverage;
  Rng rng{options.seed};
  std::uint64_t runs = 0, accepted = 0;
  const auto run = [&](const Bytes& input) {
    write_file(scratch / "input", input);
    alarm(longest_seconds);
    Coverage::start();
    try {
      accepted += target.run(input, scratch);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "fuzz: finding: %s\nthe input is %s\n", error.what(),
                   (scratch / "input").c_str());
      std::exit(1);
    }
    alarm(0);
    ++runs;
    return coverage.add();
  };
  const double started = now();
  double told = started;
  for (const Bytes& input : corpus) run(input);
  const std::size_t seeds = corpus.size();
  while (runs < options.runs && now() - started < options.seconds) {
    // Half of the time one of the latest: they are where something new was found.
    const std::size_t span =
        rng.below(2) == 0 ? corpus.size() : std::min<std::size_t>(corpus.size(), 16);
    Bytes input = corpus[corpus.size() - 1 - rng.below(span)];
    for (std::uint64_t i = 0, count = 1 + rng.below(8); i < count; ++i)
      mutate_once(input, corpus, rng);
    target.refit(input, rng);
    if (run(input)) {
      corpus.push_back(input);
      if (!options.keep.empty()) {
        std::filesystem::create_directories(options.keep);
        write_file(options.keep / (std::string(target.name) + std::to_string(runs)), input);
      }
    }
    if (now() - told >= 30) {
      told = now();
      std::printf("%.0f s: %llu runs, %llu accepted, %zu places, corpus %zu\n", told - started,
                  static_cast<unsigned long long>(runs), static_cast<unsigned long long>(accepted),
                  coverage.places(), corpus.size());
      std::fflush(stdout);
    }
  }
  std::printf(
      "%s: no finding in %llu runs (%.0f s), %llu accepted, %zu places reached, %zu inputs "
      "kept beside %zu seeds\n",
      target.name, static_cast<unsigned long long>(runs), now() - started,
      static_cast<unsigned long long>(accepted), coverage.places(), corpus.size() - seeds, seeds);
  std::filesystem::remove_all(scratch);
  return 0;
}
