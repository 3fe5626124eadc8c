// SPDX-License-Identifier: MIT

// The filter is a template on what its inner loop has to know; make_cbf() picks the instance and
// dispatch is once per batch.
#include "track/cbf.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/math.hpp"
#include "track/lines.hpp"
#include "track/quad_line.hpp"

namespace tt::track {
namespace {

__extension__ using Wide = unsigned __int128;
constexpr std::uint64_t high_product(std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint64_t>((static_cast<Wide>(a) * b) >> 64);
}

/// Takes a uniform digit in [0, base) off the top of `fraction`, read as a number in [0, 1).
constexpr std::uint64_t take_digit(std::uint64_t& fraction, std::uint64_t base) {
  const Wide product = static_cast<Wide>(fraction) * base;
  fraction = static_cast<std::uint64_t>(product);
  return static_cast<std::uint64_t>(product >> 64);
}

/// Counters of Bits bits each, packed into bytes.
template <unsigned Bits>
struct Packed {
  static constexpr std::uint32_t max = (1U << Bits) - 1;
  static constexpr std::uint64_t per_line = line_bytes * 8 / Bits;

  static std::uint32_t read(const std::uint8_t* base, std::uint64_t index) {
    if constexpr (Bits == 4) return (base[index >> 1] >> ((index & 1) * 4)) & max;
    if constexpr (Bits == 8) return base[index];
    if constexpr (Bits == 16) {
      std::uint16_t value;
      std::memcpy(&value, base + index * 2, sizeof value);
      return value;
    }
  }
  /// Adds `delta`, which the caller knows to fit. An addition, not a store of the new byte: two
  /// slices may share a byte at their border.
  static void add(std::uint8_t* base, std::uint64_t index, std::uint32_t delta) {
    if constexpr (Bits == 4)
      base[index >> 1] = static_cast<std::uint8_t>(base[index >> 1] + (delta << ((index & 1) * 4)));
    if constexpr (Bits == 8) base[index] = static_cast<std::uint8_t>(base[index] + delta);
    if constexpr (Bits == 16) {
      const auto value = static_cast<std::uint16_t>(read(base, index) + delta);
      std::memcpy(base + index * 2, &value, sizeof value);
    }
  }
  static void halve_line(std::uint8_t* line) {
    constexpr std::uint64_t keep = ~std::uint64_t{0} / max * (max >> 1);
    for (std::size_t at = 0; at < line_bytes; at += sizeof(std::uint64_t)) {
      std::uint64_t word;
      std::memcpy(&word, line + at, sizeof word);
      word = (word >> 1) & keep;
      std::memcpy(line + at, &word, sizeof word);
    }
  }
};

/// Which lines the halving under way has reached. A line is halved by the sweep or by the first
/// increment that needs it, whichever comes first; its mark keeps the other from halving it again.
class Sweep {
 public:
  explicit Sweep(std::uint64_t lines) : marks_((lines + 63) / 64), lines_(lines), cursor_(lines) {}

  [[nodiscard]] bool active() const { return cursor_ < lines_; }
  [[nodiscard]] std::uint64_t left() const { return lines_ - cursor_; }
  /// Every sweep ends with all marks equal, so the next needs only the opposite meaning.
  void begin() {
    done_ = !done_;
    cursor_ = 0;
  }
  [[nodiscard]] bool pending(std::uint64_t line) const {
    return (((marks_[line / 64] >> (line % 64)) & 1) != 0) != done_;
  }
  void mark(std::uint64_t line) { marks_[line / 64] ^= std::uint64_t{1} << (line % 64); }
  std::uint64_t next() { return cursor_++; }
  [[nodiscard]] std::uint64_t bytes() const { return marks_.size() * sizeof(std::uint64_t); }

 private:
  std::vector<std::uint64_t> marks_;
  std::uint64_t lines_;
  std::uint64_t cursor_;
  bool done_ = false;
};

template <unsigned Bits, unsigned K, bool Blocked>
class Cbf final : public Tracker {
  using Cells = Packed<Bits>;
  static constexpr std::uint64_t line_slice = Cells::per_line / K;
  /// The usual case has a fast path of its own, with its own places in the line.
  static constexpr bool quad = Blocked && K == 4;

  /// Standard layout: start and stride of double hashing (Kirsch and Mitzenmacher, 2006).
  struct HashKey {
    std::uint64_t start;
    std::uint64_t stride;
  };
  using Key = std::conditional_t<Blocked, LineKey, HashKey>;

 public:
  Cbf(std::uint64_t lines, bool conservative, std::uint64_t seed)
      : array_(lines),
        base_(array_.data()),
        lines_(lines),
        slice_(lines * Cells::per_line / K),
        salt_(mix64(seed)),
        conservative_(conservative),
        sweep_(lines) {}

  void increment(std::span<const PageId> batch) override {
    update(batch, [](PageId page) { return page; }, [](PageId) { return 1U; });
  }
  void increment(std::span<const PageCount> batch) override {
    update(
        batch, [](const PageCount& entry) { return entry.page; },
        [](const PageCount& entry) { return entry.count; });
  }

  void get(std::span<const PageId> pages, std::span<std::uint32_t> out) const override {
    if (out.size() < pages.size()) throw std::invalid_argument("get: out is shorter than pages");
    for_each_chunk<Key>(
        pages, [&](PageId page) { return stage<false>(page); },
        [&](std::span<const Key> keys, std::size_t begin) {
          for (std::size_t i = 0; i < keys.size(); ++i) out[begin + i] = read(keys[i]);
        });
  }
  [[nodiscard]] std::uint32_t get(PageId page) const override { return read(locate(page)); }

  void begin_cooling() override {
    cool(sweep_.left());
    sweep_.begin();
  }
  std::uint64_t cool(std::uint64_t lines) override {
    const std::uint64_t count = std::min(lines, sweep_.left());
    for (std::uint64_t i = 0; i < count; ++i) settle(sweep_.next());
    return count;
  }
  [[nodiscard]] bool cooling() const override { return sweep_.active(); }
  [[nodiscard]] std::uint64_t lines() const override { return lines_; }
  [[nodiscard]] std::uint32_t max_count() const override { return Cells::max; }
  [[nodiscard]] std::uint64_t bytes() const override {
    return lines_ * line_bytes + sweep_.bytes();
  }

 private:
  [[nodiscard]] Key locate(PageId page) const {
    std::uint64_t hash = mix64(page.value ^ salt_);
    if constexpr (Blocked) {
      const std::uint64_t line = take_digit(hash, lines_);
      return {line, hash};
    } else {
      return {hash, mix64(hash ^ 0x9e3779b97f4a7c15ULL) | 1};
    }
  }

  /// Calls visit(base, index) for the page's k counters: counter `index` from `base`.
  template <typename Visit>
  void for_each_counter(Key key, Visit visit) const {
    if constexpr (Blocked) {
      std::uint8_t* line = base_ + key.line * line_bytes;
      for (unsigned i = 0; i < K; ++i)
        visit(i, line, i * line_slice + take_digit(key.digits, line_slice));
    } else {
      for (unsigned i = 0; i < K; ++i)
        visit(i, base_, i * slice_ + high_product(key.start + i * key.stride, slice_));
    }
  }

  template <bool Write>
  Key stage(PageId page) const {
    const Key key = locate(page);
    if constexpr (Blocked) {
      __builtin_prefetch(base_ + key.line * line_bytes, Write);
    } else {
      for_each_counter(key, [](unsigned, const std::uint8_t* base, std::uint64_t index) {
        __builtin_prefetch(base + index * Bits / 8, Write);
      });
    }
    return key;
  }

  /// Halves a line that the halving under way has not reached yet.
  [[gnu::noinline]] void settle(std::uint64_t line) {
    if (!sweep_.pending(line)) return;
    Cells::halve_line(base_ + line * line_bytes);
    sweep_.mark(line);
  }

  /// Halvings that the counters of a line still miss: 1 until the sweep has reached it.
  [[nodiscard]] unsigned owed(std::uint64_t line) const {
    return sweep_.active() && sweep_.pending(line) ? 1 : 0;
  }

  [[nodiscard]] std::uint32_t read(Key key) const {
    // The least of the halves is the half of the least.
    if constexpr (quad) return QuadLine<Bits>::least(base_, key) >> owed(key.line);
    std::uint32_t least = Cells::max;
    for_each_counter(key, [&](unsigned, const std::uint8_t* base, std::uint64_t index) {
      if constexpr (Blocked)
        least = std::min(least, Cells::read(base, index));
      else
        least = std::min(least, Cells::read(base, index) >> owed(index / Cells::per_line));
    });
    if constexpr (Blocked) least >>= owed(key.line);
    return least;
  }

  void settle(Key key) {
    if constexpr (Blocked)
      settle(key.line);
    else
      for_each_counter(key, [&](unsigned, const std::uint8_t*, std::uint64_t index) {
        settle(index / Cells::per_line);
      });
  }

  void raise(Key key, std::uint32_t amount) {
    std::uint8_t* bases[K];
    std::uint64_t indices[K];
    std::uint32_t values[K];
    for_each_counter(key, [&](unsigned i, std::uint8_t* base, std::uint64_t index) {
      bases[i] = base;
      indices[i] = index;
      values[i] = Cells::read(base, index);
    });
    if (conservative_) {
      std::uint32_t least = values[0];
      for (unsigned i = 1; i < K; ++i) least = std::min(least, values[i]);
      const std::uint32_t target = least + std::min(amount, Cells::max - least);
      for (unsigned i = 0; i < K; ++i)
        Cells::add(bases[i], indices[i], std::max(values[i], target) - values[i]);
    } else {
      for (unsigned i = 0; i < K; ++i)
        Cells::add(bases[i], indices[i], std::min(amount, Cells::max - values[i]));
    }
  }

  template <typename Item, typename PageOf, typename AmountOf>
  void update(std::span<const Item> batch, PageOf page_of, AmountOf amount_of) {
    const bool cooling = sweep_.active();
    for_each_chunk<Key>(
        batch, [&](const Item& item) { return stage<true>(page_of(item)); },
        [&](std::span<const Key> keys, std::size_t begin) {
          if (cooling) [[unlikely]]
            for (const Key key : keys) settle(key);
          const auto amount = [&](std::size_t i) { return amount_of(batch[begin + i]); };
          if constexpr (quad) {
            if (conservative_)
              QuadLine<Bits>::template raise<true>(base_, keys, amount);
            else
              QuadLine<Bits>::template raise<false>(base_, keys, amount);
          } else {
            for (std::size_t i = 0; i < keys.size(); ++i) raise(keys[i], amount(i));
          }
        });
  }

  LineArray array_;
  std::uint8_t* base_;
  std::uint64_t lines_;
  std::uint64_t slice_;
  std::uint64_t salt_;
  bool conservative_;
  Sweep sweep_;
};

void check(bool condition, const std::string& message) {
  if (!condition) throw std::invalid_argument("counting Bloom filter: " + message);
}

void check_size(std::uint64_t pages, double error, unsigned hashes) {
  // 2^44 pages of 4 KiB are 64 PiB; the limit keeps the arithmetic exact.
  check(pages >= 1 && pages <= std::uint64_t{1} << 44, "pages must be in 1 .. 2^44");
  check(error >= 1e-9 && error < 1, "error must be in [1e-9, 1)");
  check(hashes >= 1 && hashes <= 8, "hashes must be in 1 .. 8");
}

/// Lines of the filter; checks all options.
std::uint64_t cbf_lines(const CbfOptions& options) {
  const unsigned bits = options.counter_bits;
  check(bits == 4 || bits == 8 || bits == 16, "counter_bits must be 4, 8 or 16");
  check(options.min_counters <= std::uint64_t{1} << 50, "min_counters must be at most 2^50");
  const std::uint64_t counters =
      std::max(cbf_counters(options.pages, options.error, options.hashes), options.min_counters);
  const std::uint64_t per_line = line_bytes * 8 / bits;
  return (counters + per_line - 1) / per_line;
}

template <unsigned Bits, unsigned K>
std::unique_ptr<Tracker> make(const CbfOptions& options, std::uint64_t lines) {
  if (options.blocked)
    return std::make_unique<Cbf<Bits, K, true>>(lines, options.conservative, options.seed);
  return std::make_unique<Cbf<Bits, K, false>>(lines, options.conservative, options.seed);
}

template <unsigned Bits, unsigned... Less>
std::unique_ptr<Tracker> make(const CbfOptions& options, std::uint64_t lines,
                              std::integer_sequence<unsigned, Less...>) {
  using Maker = std::unique_ptr<Tracker> (*)(const CbfOptions&, std::uint64_t);
  static constexpr Maker makers[] = {&make<Bits, Less + 1>...};
  return makers[options.hashes - 1](options, lines);
}

}  // namespace

std::uint64_t cbf_counters(std::uint64_t pages, double error, unsigned hashes) {
  check_size(pages, error, hashes);
  const double k = hashes;
  const double per_page = -k / math::log1p(-math::exp(math::log(error) / k));
  return static_cast<std::uint64_t>(std::ceil(static_cast<double>(pages) * per_page));
}

double cbf_false_positive_rate(const CbfOptions& options, std::uint64_t held) {
  const std::uint64_t lines = cbf_lines(options);
  const std::uint64_t per_line = line_bytes * 8 / options.counter_bits;
  const double k = options.hashes;
  const auto n = static_cast<double>(held);
  if (!options.blocked)
    return math::pow(-math::expm1(-n / static_cast<double>(lines * per_line / options.hashes)),
                     k);  // NOLINT
  const double mean = n / static_cast<double>(lines);
  const double free_after_one = 1 - 1 / static_cast<double>(per_line / options.hashes);
  const auto last = static_cast<std::uint64_t>(mean + 12 * std::sqrt(mean) + 30);
  double rate = 0;
  for (std::uint64_t j = 1; j <= last; ++j) {
    const auto x = static_cast<double>(j);
    const double poisson = math::exp(x * math::log(mean) - mean - math::log_gamma(x + 1));
    rate += poisson * math::pow(1 - math::pow(free_after_one, x), k);
  }
  return rate;
}

std::unique_ptr<Tracker> make_cbf(const CbfOptions& options) {
  const std::uint64_t lines = cbf_lines(options);
  constexpr std::make_integer_sequence<unsigned, 8> hashes;
  switch (options.counter_bits) {
    case 4:
      return make<4>(options, lines, hashes);
    case 8:
      return make<8>(options, lines, hashes);
    default:
      return make<16>(options, lines, hashes);
  }
}

}  // namespace tt::track
