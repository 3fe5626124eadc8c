// SPDX-License-Identifier: MIT

#include "convert.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <variant>

namespace nb = nanobind;

namespace tt::bindings {
namespace {

// bool before int: Python's bool is an int.
KnobValue to_knob(const std::string& name, nb::handle value) {
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value);
  if (nb::isinstance<nb::int_>(value)) return nb::cast<std::int64_t>(value);
  if (nb::isinstance<nb::float_>(value)) return nb::cast<double>(value);
  if (nb::isinstance<nb::str>(value)) return nb::cast<std::string>(value);
  throw nb::value_error(("knob " + name + ": found " + nb::cast<std::string>(nb::repr(value)) +
                         ", expected a number, true or false, or a name")
                            .c_str());
}

std::string hex(std::uint64_t value) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(value));
  return digits.data();
}

}  // namespace

nb::object to_python(const KnobValue& value) {
  return std::visit([](const auto& v) -> nb::object { return nb::cast(v); }, value);
}

KnobMap to_knobs(const nb::dict& given) {
  KnobMap knobs;
  for (const auto& [key, value] : given) {
    auto name = nb::cast<std::string>(key);
    auto converted = to_knob(name, value);
    knobs.emplace(std::move(name), std::move(converted));
  }
  return knobs;
}

nb::dict to_python(const trace::StreamInfo& info) {
  nb::dict out;
  out["workload"] = info.workload;
  out["input"] = info.input;
  out["parameters"] = info.parameters;
  out["seed"] = info.seed;
  out["scale"] = info.scale;
  out["page_bytes"] = info.page_bytes;
  out["pages"] = info.pages;
  out["blocks"] = info.blocks;
  out["accesses"] = info.accesses;
  out["entries"] = info.entries;
  out["operations"] = info.operations;
  out["nominal_seconds"] = info.nominal_seconds;
  out["identity"] = hex(info.identity);
  nb::list classes;
  for (const auto& c : info.classes) {
    nb::dict entry;
    entry["name"] = c.name;
    entry["mlp"] = c.mlp;
    entry["issue_ns"] = c.issue_ns;
    entry["store_fill"] = c.store_fill;
    entry["prefetched"] = c.prefetched;
    entry["translation"] = c.translation;
    entry["store_events"] = c.store_events;
    classes.append(entry);
  }
  out["classes"] = classes;
  nb::list objects;
  for (const auto& object : info.objects) {
    nb::dict entry;
    entry["site"] = object.site;
    entry["pages"] = object.pages;
    objects.append(entry);
  }
  out["objects"] = objects;
  nb::list kinds;
  for (const auto& kind : info.op_kinds) kinds.append(kind.name);
  out["op_kinds"] = kinds;
  return out;
}

}  // namespace tt::bindings
