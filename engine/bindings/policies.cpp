// SPDX-License-Identifier: MIT

// Policies and their knobs, as plain data.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "bind.hpp"
#include "convert.hpp"
#include "core/knob.hpp"
#include "core/seam.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tt::bindings;

namespace {

nb::object describe(const std::optional<tt::KnobCondition>& condition) {
  if (!condition) return nb::none();
  nb::dict out;
  nb::list values;
  for (const auto& value : condition->values) values.append(to_python(value));
  out["parent"] = condition->parent;
  out["values"] = values;
  return out;
}

nb::dict describe(const tt::KnobDecl& knob) {
  nb::dict out;
  out["name"] = knob.name;
  out["type"] = std::string(tt::name(knob.type));
  out["default"] = to_python(knob.initial);
  const bool numeric = knob.type == tt::KnobType::integer || knob.type == tt::KnobType::real;
  out["min"] = numeric ? nb::cast(knob.min) : nb::none();
  out["max"] = numeric ? nb::cast(knob.max) : nb::none();
  out["log"] = knob.log;
  out["unit"] = std::string(tt::name(knob.unit));
  out["meaning"] = knob.meaning;
  out["source"] = knob.source;
  out["choices"] = nb::cast(knob.choices);
  out["condition"] = describe(knob.condition);
  return out;
}

nb::list list_policies() {
  nb::list out;
  for (const auto& policy : tt::policies()) {
    nb::dict entry;
    entry["name"] = policy.name;
    entry["family"] = policy.family;
    entry["summary"] = policy.summary;
    entry["citation"] = policy.citation;
    entry["addresses"] = policy.addresses;
    nb::dict traits;
    traits["page_bytes"] = policy.traits.page_bytes;
    traits["unbounded_fast"] = policy.traits.unbounded_fast;
    traits["profiled"] = policy.traits.profiled;
    traits["profiled_when"] = describe(policy.traits.profiled_when);
    traits["needs"] = tt::names(policy.traits.needs);
    entry["traits"] = traits;
    nb::list knobs;
    for (const auto& knob : policy.knobs) knobs.append(describe(knob));
    entry["knobs"] = knobs;
    out.append(entry);
  }
  return out;
}

nb::dict resolve_knobs(const std::string& policy, const nb::dict& given) {
  nb::dict out;
  const auto knobs = tt::resolve(tt::policy(policy).knobs, to_knobs(given));
  for (const auto& [name, value] : knobs.values()) out[name.c_str()] = to_python(value);
  return out;
}

}  // namespace

void tt::bind_policies(nb::module_& m) {
  (void)policies();  // throws for two of one name: nobody gets further than the import
  m.def("policies", &list_policies, "All policies with their knobs, as plain data.");
  m.def("resolve", &resolve_knobs, "policy"_a, "knobs"_a,
        "Completes knobs with defaults and checks them. ValueError names knob, found and allowed.");
}
