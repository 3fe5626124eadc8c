// SPDX-License-Identifier: MIT

#include "core/knob.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>

#include "core/assert.hpp"

namespace tt {
namespace {

[[noreturn]] void bad(const std::string& message) { throw std::invalid_argument(message); }

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string type_name(const KnobValue& value) {
  static constexpr const char* names[] = {"boolean", "integer", "real", "text"};
  return names[value.index()];
}

KnobValue checked(const KnobDecl& knob, const KnobValue& value) {
  const auto wrong_type = [&](const char* wanted) {
    bad("knob " + knob.name + ": found " + to_string(value) + " (" + type_name(value) +
        "), expected " + wanted);
  };
  const auto in_range = [&](double number) {
    if (!(number >= knob.min && number <= knob.max)) {
      bad("knob " + knob.name + ": found " + to_string(value) + ", allowed " +
          to_string(KnobValue{knob.min}) + " to " + to_string(KnobValue{knob.max}));
    }
  };
  switch (knob.type) {
    case KnobType::boolean:
      if (!std::holds_alternative<bool>(value)) wrong_type("true or false");
      return value;
    case KnobType::integer: {
      if (const auto* real = std::get_if<double>(&value); real && *real == std::floor(*real)) {
        in_range(*real);
        return static_cast<std::int64_t>(*real);
      }
      if (!std::holds_alternative<std::int64_t>(value)) wrong_type("an integer");
      in_range(static_cast<double>(std::get<std::int64_t>(value)));
      return value;
    }
    case KnobType::real: {
      double number = 0;
      if (const auto* whole = std::get_if<std::int64_t>(&value)) {
        number = static_cast<double>(*whole);
      } else if (const auto* real = std::get_if<double>(&value)) {
        number = *real;
      } else {
        wrong_type("a number");
      }
      in_range(number);
      return number;
    }
    case KnobType::choice: {
      if (!std::holds_alternative<std::string>(value)) wrong_type("a name");
      const auto& text = std::get<std::string>(value);
      if (std::ranges::find(knob.choices, text) == knob.choices.end()) {
        std::string allowed;
        for (const auto& choice : knob.choices) allowed += (allowed.empty() ? "" : ", ") + choice;
        bad("knob " + knob.name + ": found " + text + ", allowed " + allowed);
      }
      return value;
    }
  }
  bad("knob " + knob.name + ": unknown type");
}

}  // namespace

std::string_view name(Unit unit) {
  switch (unit) {
    case Unit::none:
      return "";
    case Unit::ratio:
      return "ratio";
    case Unit::count_per_page:
      return "count/page";
    case Unit::extreme_per_page:
      return "count/hottest page";
    case Unit::milliseconds:
      return "ms";
    case Unit::seconds:
      return "s";
    case Unit::cycles:
      return "cycles";
    case Unit::events_per_sample:
      return "events/sample";
    case Unit::samples_per_page:
      return "samples/page";
    case Unit::pages:
      return "pages";
    case Unit::samples:
      return "samples";
    case Unit::mebibytes:
      return "MiB";
    case Unit::gib_per_second:
      return "GiB/s";
    case Unit::hertz:
      return "Hz";
    case Unit::cores:
      return "cores";
  }
  return "";
}

std::string_view name(KnobType type) {
  switch (type) {
    case KnobType::integer:
      return "integer";
    case KnobType::real:
      return "real";
    case KnobType::boolean:
      return "boolean";
    case KnobType::choice:
      return "choice";
  }
  return "";
}

KnobDecl KnobDecl::when(std::string parent, KnobValue value) && {
  condition = KnobCondition{std::move(parent), {std::move(value)}};
  return std::move(*this);
}

namespace knob {
namespace {

KnobDecl number(KnobType type, std::string name, KnobValue initial, Limits limits, Unit unit,
                std::string source, std::string meaning) {
  return {.name = std::move(name),
          .type = type,
          .initial = std::move(initial),
          .min = limits.min,
          .max = limits.max,
          .log = limits.log,
          .unit = unit,
          .meaning = std::move(meaning),
          .source = std::move(source)};
}

}  // namespace

KnobDecl integer(std::string name, std::int64_t initial, Limits limits, Unit unit,
                 std::string source, std::string meaning) {
  return number(KnobType::integer, std::move(name), initial, limits, unit, std::move(source),
                std::move(meaning));
}
KnobDecl real(std::string name, double initial, Limits limits, Unit unit, std::string source,
              std::string meaning) {
  return number(KnobType::real, std::move(name), initial, limits, unit, std::move(source),
                std::move(meaning));
}
KnobDecl flag(std::string name, bool initial, std::string source, std::string meaning) {
  return {.name = std::move(name),
          .type = KnobType::boolean,
          .initial = initial,
          .meaning = std::move(meaning),
          .source = std::move(source)};
}
KnobDecl choice(std::string name, std::vector<std::string> choices, std::string source,
                std::string meaning) {
  return {.name = std::move(name),
          .type = KnobType::choice,
          .initial = choices.at(0),
          .meaning = std::move(meaning),
          .source = std::move(source),
          .choices = std::move(choices)};
}

}  // namespace knob

const KnobValue& Knobs::at(std::string_view name) const {
  const auto it = values_.find(name);
  if (it == values_.end()) throw std::out_of_range("no knob named " + std::string(name));
  return it->second;
}

double Knobs::real(std::string_view name) const {
  const auto& value = at(name);
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
  return std::get<double>(value);
}
std::int64_t Knobs::integer(std::string_view name) const { return std::llround(real(name)); }
bool Knobs::flag(std::string_view name) const { return std::get<bool>(at(name)); }
const std::string& Knobs::choice(std::string_view name) const {
  return std::get<std::string>(at(name));
}
bool Knobs::has(std::string_view name) const { return values_.find(name) != values_.end(); }
void Knobs::set(std::string name, KnobValue value) {
  values_.insert_or_assign(std::move(name), std::move(value));
}

Knobs resolve(std::span<const KnobDecl> declared, const KnobMap& given) {
  Knobs result;
  for (const auto& knob : declared) {
    const auto it = given.find(knob.name);
    result.set(knob.name, it == given.end() ? knob.initial : checked(knob, it->second));
  }
  for (const auto& [given_name, value] : given) {
    if (result.has(given_name)) continue;
    const KnobDecl* nearest = nullptr;
    std::size_t best = 4;
    for (const auto& knob : declared) {
      if (const auto d = edit_distance(given_name, knob.name); d < best) {
        best = d;
        nearest = &knob;
      }
    }
    std::string known;
    for (const auto& knob : declared) known += (known.empty() ? "" : ", ") + knob.name;
    bad("unknown knob " + given_name +
        (nearest ? " (did you mean " + nearest->name + "?)" : std::string{}) +
        "; known: " + (known.empty() ? "none" : known));
  }
  return result;
}

bool holds(const KnobCondition& condition, std::span<const KnobDecl> declared, const Knobs& knobs) {
  const auto parent = std::ranges::find(declared, condition.parent, &KnobDecl::name);
  TT_ASSERT(parent != declared.end());  // the policy that declares the condition declares it
  const bool active = !parent->condition || holds(*parent->condition, declared, knobs);
  const KnobValue& value = knobs.values().find(condition.parent)->second;
  return active && std::ranges::find(condition.values, value) != condition.values.end();
}

std::string to_string(const KnobValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  std::ostringstream out;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    out << *whole;
  } else {
    out << std::get<double>(value);
  }
  return out.str();
}

}  // namespace tt
