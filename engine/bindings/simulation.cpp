// Replaying a stream under a policy on a simulated machine.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bind.hpp"
#include "convert.hpp"
#include "core/seam.hpp"
#include "progress.hpp"
#include "sim/estimates.hpp"
#include "sim/limits.hpp"
#include "sim/profile.hpp"
#include "sim/simulate.hpp"
#include "trace/kept_reader.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tt::bindings;

namespace {

nb::object member(const nb::dict& dict, const char* key, const std::string& where) {
  if (!dict.contains(key)) {
    throw nb::value_error(("machine: missing " + where + key).c_str());
  }
  return nb::borrow<nb::object>(dict[key]);
}

double number(const nb::dict& dict, const char* key, const std::string& where = "") {
  const auto value = member(dict, key, where);
  if (nb::isinstance<nb::bool_>(value) ||
      !(nb::isinstance<nb::int_>(value) || nb::isinstance<nb::float_>(value))) {
    throw nb::value_error(("machine: " + where + key + ": found " +
                           nb::cast<std::string>(nb::repr(value)) + ", expected a number")
                              .c_str());
  }
  return nb::cast<double>(value);
}

tt::sim::TierProfile to_tier(const nb::dict& dict, const std::string& where) {
  tt::sim::TierProfile tier;
  tier.latency_ns = number(dict, "latency_ns", where);
  tier.read_gbps = number(dict, "read_gbps", where);
  tier.total_gbps = number(dict, "total_gbps", where);
  std::vector<tt::sim::LoadedCurve> curves;
  for (const auto& entry : nb::cast<nb::list>(member(dict, "loaded", where))) {
    const auto of = nb::cast<nb::dict>(entry);
    tt::sim::LoadedCurve curve{
        number(of, "reads", where + "loaded."), number(of, "peak", where + "loaded."), {}};
    for (const auto& point : nb::cast<nb::list>(member(of, "points", where + "loaded."))) {
      const auto pair = nb::cast<std::vector<double>>(point);
      if (pair.size() != 2) {
        throw nb::value_error(
            ("machine: " + where + "loaded: expected [utilisation, factor]").c_str());
      }
      curve.points.emplace_back(pair[0], pair[1]);
    }
    curves.push_back(std::move(curve));
  }
  tier.loaded = tt::sim::LoadedLatency{std::move(curves)};
  tier.granule_bytes = number(dict, "granule_bytes", where);
  return tier;
}

tt::sim::MachineProfile to_machine(const nb::dict& dict) {
  tt::sim::MachineProfile machine;
  machine.name = nb::cast<std::string>(member(dict, "name", ""));
  machine.ghz = number(dict, "ghz");
  machine.cores = static_cast<unsigned>(number(dict, "cores"));
  machine.threads = static_cast<unsigned>(number(dict, "threads"));
  machine.llc_bytes = number(dict, "llc_mib") * (1 << 20);
  machine.tiers[0] = to_tier(nb::cast<nb::dict>(member(dict, "fast", "")), "fast.");
  machine.tiers[1] = to_tier(nb::cast<nb::dict>(member(dict, "slow", "")), "slow.");
  for (const auto& estimate : tt::sim::estimates()) {
    // tiering.work_ns.probe is the key `probe` of work_ns of tiering.
    nb::dict place = dict;
    std::string where, key{estimate.name};
    for (std::size_t dot; (dot = key.find('.')) != std::string::npos; key.erase(0, dot + 1)) {
      place = nb::cast<nb::dict>(member(place, key.substr(0, dot).c_str(), where));
      where += key.substr(0, dot + 1);
    }
    if (place.contains(key.c_str()) || tt::sim::default_of(estimate) == 0)
      estimate.field(machine) = number(place, key.c_str(), where);
  }
  return machine;
}

/// What the engine would refuse of a machine: [(name, what it must be)].
nb::list machine_problems(const nb::dict& dict) {
  nb::list found;
  for (const char* role : {"fast", "slow"}) {
    const std::string where = std::string(role) + ".";
    try {
      to_tier(nb::cast<nb::dict>(member(dict, role, "")), where);
    } catch (const std::invalid_argument& error) {
      found.append(nb::make_tuple(where + "loaded", error.what()));
    }
  }
  if (nb::len(found) == 0)
    for (const auto& [name, wanted] : tt::sim::problems(to_machine(dict)))
      found.append(nb::make_tuple(name, wanted));
  return found;
}

template <typename Map>
nb::dict to_dict(const Map& map) {
  nb::dict out;
  for (const auto& [name, value] : map) out[name.c_str()] = value;
  return out;
}

/// Rows of tables, in their order: [{"table": name, "cells": {column: value}}].
nb::list to_list(const tt::Rows& rows) {
  nb::list out;
  for (const auto& [table, cells] : rows) {
    nb::dict row;
    row["table"] = table;
    nb::dict values;
    for (const auto& [column, value] : cells)
      values[column.c_str()] =
          std::visit([](const auto& cell) { return nb::object(nb::cast(cell)); }, value);
    row["cells"] = values;
    out.append(row);
  }
  return out;
}

nb::dict to_dict(const tt::sim::PlacedObject& object) {
  nb::dict out;
  out["site"] = object.site;
  out["score"] = object.score;
  out["bytes"] = object.bytes;
  out["slot"] = object.slot;
  return out;
}

std::vector<tt::sim::PlacedObject> to_placement(const nb::list& objects) {
  std::vector<tt::sim::PlacedObject> placement;
  for (const auto& item : objects) {
    const auto object = nb::cast<nb::dict>(item);
    placement.push_back({nb::cast<std::string>(object["site"]), nb::cast<double>(object["score"]),
                         nb::cast<double>(object["bytes"]),
                         nb::cast<std::uint32_t>(object["slot"])});
  }
  return placement;
}

nb::dict simulate(const std::filesystem::path& path, const nb::dict& machine,
                  const std::string& policy, const nb::dict& knobs, double fast_share,
                  std::uint64_t fast_bytes, double threads, std::uint64_t page_bytes, bool mixed,
                  bool coarse, bool start_slow, double score_after, std::uint64_t seed,
                  const std::optional<nb::list>& placement, bool profile,
                  std::optional<double> deadline_seconds, const nb::object& progress) {
  const auto hardware = to_machine(machine);
  const auto& info = tt::policy(policy);
  const auto given = to_knobs(knobs);
  bool failed = false;
  tt::sim::RunOptions options{.fast_share = fast_share,
                              .fast_bytes = fast_bytes,
                              .threads = threads,
                              .page_bytes = page_bytes,
                              .mixed = mixed,
                              .coarse = coarse,
                              .start_slow = start_slow,
                              .score_after = score_after,
                              .seed = seed,
                              .deadline_seconds = deadline_seconds,
                              .progress = progress_function(progress, failed)};
  if (placement) options.placement = to_placement(*placement);
  tt::sim::RunResult result;
  std::vector<tt::sim::PlacedObject> found;
  enum class Ending { finished, stopped, late } ending = Ending::finished;
  {
    nb::gil_scoped_release release;
    try {
      const auto kept = tt::trace::kept_reader(path);
      const tt::trace::Reader& reader = *kept;
      if (profile) {
        auto profiled = tt::sim::profile(reader, hardware, info, given, options);
        result = std::move(profiled.run);
        found = std::move(profiled.placement);
      } else {
        result = tt::sim::simulate(reader, hardware, info, given, options);
      }
    } catch (const tt::sim::Interrupted&) {
      ending = Ending::stopped;
    } catch (const tt::sim::DeadlineExceeded&) {
      ending = Ending::late;
    }
  }
  if (ending == Ending::stopped) raise_stopped(failed);
  if (ending == Ending::late) {
    PyErr_SetString(PyExc_TimeoutError, "the simulation did not finish before its deadline");
    throw nb::python_error();
  }
  nb::dict out;
  out["seconds"] = result.seconds;
  out["total_seconds"] = result.total_seconds;
  out["operations"] = result.operations;
  nb::dict latency;
  for (const auto& [kind, summary] : result.latency) {
    nb::dict entry;
    entry["operations"] = summary.operations;
    entry["mean"] = summary.mean;
    entry["p50"] = summary.p50;
    entry["p90"] = summary.p90;
    entry["p99"] = summary.p99;
    entry["p999"] = summary.p999;
    latency[kind.c_str()] = entry;
  }
  out["latency"] = latency;
  out["metrics"] = to_dict(result.metrics);
  out["breakdown"] = to_dict(result.breakdown);
  out["series"] = to_dict(result.series);
  out["rows"] = to_list(result.rows);
  if (profile) {
    nb::list objects;
    for (const auto& object : found) objects.append(to_dict(object));
    out["placement"] = objects;
  }
  return out;
}

}  // namespace

void tt::bind_simulation(nb::module_& m) {
  m.def(
      "estimates",
      [] {
        nb::list out;
        for (const auto& estimate : tt::sim::estimates()) {
          nb::dict entry;
          entry["name"] = std::string(estimate.name);
          const double value = tt::sim::default_of(estimate);
          entry["default"] = value == 0 ? nb::none() : nb::cast(value);
          entry["low"] = estimate.low;
          entry["high"] = estimate.high;
          entry["relative"] = estimate.relative;
          entry["source"] = std::string(estimate.source);
          out.append(entry);
        }
        return out;
      },
      "The machine's figures that are estimates, with the range in which each plausibly lies.");
  m.def("machine_problems", &machine_problems, "machine"_a,
        "What `simulate` would refuse of a machine: pairs of a name and what it must be.");
  m.def("simulate", &simulate, "path"_a, nb::kw_only(), "machine"_a, "policy"_a, "knobs"_a,
        "fast_share"_a, "fast_bytes"_a = 0, "threads"_a = 0.0, "page_bytes"_a = 0,
        "mixed"_a = false, "coarse"_a = false, "start_slow"_a = false, "score_after"_a = 0.0,
        "seed"_a = 0, "placement"_a = nb::none(), "profile"_a = false,
        "deadline_seconds"_a = nb::none(), "progress"_a = nb::none(),
        "Replays a stream under a policy on a machine. TimeoutError beyond the deadline. "
        "`placement`: "
        "of a policy that profiles, from an earlier run with `profile`, which returns it; without "
        "one, the run is profiled first.");
}
