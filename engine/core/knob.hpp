// SPDX-License-Identifier: MIT

// Knobs: what can be set about a policy, declared once.
//
// A declaration (KnobDecl) stands in the file of the policy, or of the part, that reads the knob.
// It holds its type, default, hard limits, scale, unit, meaning and source. The CLI, the
// configuration spaces, the documentation and the simulator's scaling read it from here. Knobs
// holds the values of one run. The range within which a study searches is neither: it stands in
// spaces/*.yaml.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace tt {

enum class KnobType : std::uint8_t { integer, real, boolean, choice };

/// The unit decides how the simulator applies a full-scale value to a miniature of scale R
/// (one simulated page stands for R real pages; see sim/scale.hpp).
enum class Unit : std::uint8_t {
  none,               // flags, choices, counters, bits: unchanged
  ratio,              // unchanged
  count_per_page,     // unchanged: a page's own history is that of the full system
  extreme_per_page,   // a trigger on the *hottest* page: corrected by order statistics
  milliseconds,       // unchanged: virtual time is full-scale time
  seconds,            // unchanged
  cycles,             // unchanged
  events_per_sample,  // unchanged
  samples_per_page,   // unchanged
  pages,              // divided by R
  samples,            // divided by R
  mebibytes,          // divided by R
  gib_per_second,     // divided by R
  hertz,              // system-wide rate: divided by R
  cores,              // threads' time per time, shared by all pages: divided by R
};
[[nodiscard]] std::string_view name(Unit unit);
[[nodiscard]] std::string_view name(KnobType type);

using KnobValue = std::variant<bool, std::int64_t, double, std::string>;
using KnobMap = std::map<std::string, KnobValue, std::less<>>;  // by name

/// The knob is active only while `parent` has one of `values` (e.g. aol.low while aol.enabled).
struct KnobCondition {
  std::string parent;
  std::vector<KnobValue> values;
};

struct KnobDecl {
  std::string name;
  KnobType type = KnobType::real;
  KnobValue initial;  // the default
  double min = 0;     // hard limits, inclusive; numeric types only
  double max = 0;
  bool log = false;  // search on a logarithmic scale
  Unit unit = Unit::none;
  std::string meaning;  // one line
  std::string source;   // paper and section or table; "artifact" where only code says it
  std::vector<std::string> choices;  // KnobType::choice only
  std::optional<KnobCondition> condition;

  /// The same knob, active only while `parent` has the value.
  [[nodiscard]] KnobDecl when(std::string parent, KnobValue value = true) &&;
};

/// Declarations in two or three lines:
///
///     using namespace knob;
///     return list(
///         integer("hot_threshold", 5, {1, 65535}, count_per_page, "§3.1",
///                 "count from which a page is hot"),
///         real("sampling_frequency", 1e5, {100, 1e7, log}, hertz, "§4", "samples per second")
///             .when("sampling"),
///         migrate::watermark_knobs("§5"));  // those of a part
namespace knob {

using enum Unit;

inline constexpr bool log = true;
/// Hard limits, inclusive, and the scale on which to search between them.
struct Limits {
  double min, max;
  bool log = false;
};

[[nodiscard]] KnobDecl integer(std::string name, std::int64_t initial, Limits limits, Unit unit,
                               std::string source, std::string meaning);
[[nodiscard]] KnobDecl real(std::string name, double initial, Limits limits, Unit unit,
                            std::string source, std::string meaning);
[[nodiscard]] KnobDecl flag(std::string name, bool initial, std::string source,
                            std::string meaning);
/// The first choice is the default.
[[nodiscard]] KnobDecl choice(std::string name, std::vector<std::string> choices,
                              std::string source, std::string meaning);

/// One list of single declarations and of lists, in their order.
template <typename... Parts>
[[nodiscard]] std::vector<KnobDecl> list(Parts&&... parts) {
  std::vector<KnobDecl> all;
  const auto append = [&]<typename Part>(Part&& part) {
    if constexpr (std::is_same_v<std::remove_cvref_t<Part>, KnobDecl>) {
      all.push_back(std::forward<Part>(part));
    } else {
      all.insert(all.end(), part.begin(), part.end());
    }
  };
  (append(std::forward<Parts>(parts)), ...);
  return all;
}

}  // namespace knob

/// Values of all knobs of one policy, by name. Numbers are kept as double after scaling: a limit
/// of "32 pages" on a miniature of scale 64 is half a page per period, which a policy honours by
/// carrying the remainder over, not by rounding.
class Knobs {
 public:
  [[nodiscard]] double real(std::string_view name) const;           // integer or real knob
  [[nodiscard]] std::int64_t integer(std::string_view name) const;  // rounded to nearest
  [[nodiscard]] bool flag(std::string_view name) const;
  [[nodiscard]] const std::string& choice(std::string_view name) const;
  [[nodiscard]] bool has(std::string_view name) const;
  void set(std::string name, KnobValue value);
  [[nodiscard]] const KnobMap& values() const { return values_; }

 private:
  [[nodiscard]] const KnobValue& at(std::string_view name) const;
  KnobMap values_;
};

/// Completes `given` with defaults and checks every value against its declaration.
/// Throws std::invalid_argument naming the knob, what was found and what is allowed (with the
/// nearest known name for a typo).
[[nodiscard]] Knobs resolve(std::span<const KnobDecl> declared, const KnobMap& given);

/// Whether the knob that it names is active and has one of the values.
[[nodiscard]] bool holds(const KnobCondition& condition, std::span<const KnobDecl> declared,
                         const Knobs& knobs);

/// One-line rendering of a value: 5, 0.25, true, paper.
[[nodiscard]] std::string to_string(const KnobValue& value);

}  // namespace tt
