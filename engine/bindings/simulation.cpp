// SPDX-License-Identifier: MIT

// Replaying a stream under a policy on a simulated machine.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bind.hpp"
#include "convert.hpp"
#include "core/seam.hpp"
#include "keys.hpp"
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

tt::sim::TierProfile to_tier(Keys keys) {
  tt::sim::TierProfile tier;
  tier.latency_ns = keys.get<double>("latency_ns");
  tier.read_gbps = keys.get<double>("read_gbps");
  tier.total_gbps = keys.get<double>("total_gbps");
  std::vector<tt::sim::LoadedCurve> curves;
  for (const auto& entry : keys.get<nb::list>("loaded")) {
    if (!nb::isinstance<nb::dict>(entry)) keys.fail("loaded", "expected a list of mappings");
    Keys of = keys.item("loaded", nb::borrow<nb::dict>(entry));
    tt::sim::LoadedCurve curve{of.get<double>("reads"), of.get<double>("peak"), {}};
    for (const auto& point : of.get<nb::list>("points")) {
      std::vector<double> pair;
      if (!nb::try_cast(point, pair) || pair.size() != 2)
        of.fail("points", "expected a list of [utilisation, factor]");
      curve.points.emplace_back(pair[0], pair[1]);
    }
    curves.push_back(std::move(curve));
  }
  tier.loaded = tt::sim::LoadedLatency{std::move(curves)};
  tier.granule_bytes = keys.get<double>("granule_bytes");
  return tier;
}

/// A document of a machine also says what the simulator does not ask for.
tt::sim::MachineProfile to_machine(const nb::dict& document) {
  Keys keys{document, "machine"};
  tt::sim::MachineProfile machine;
  machine.name = keys.get<std::string>("name");
  machine.ghz = keys.get<double>("ghz");
  machine.cores = static_cast<unsigned>(keys.get<double>("cores"));
  machine.threads = static_cast<unsigned>(keys.get<double>("threads"));
  machine.llc_bytes = keys.get<double>("llc_mib") * (1 << 20);
  machine.tiers[0] = to_tier(keys.inside("fast"));
  machine.tiers[1] = to_tier(keys.inside("slow"));
  for (const auto& estimate : tt::sim::estimates()) {
    // tiering.work_ns.probe is the key `probe` of work_ns of tiering.
    Keys place = keys;
    std::string key{estimate.name};
    for (std::size_t dot; (dot = key.find('.')) != std::string::npos; key.erase(0, dot + 1))
      place = place.inside(key.substr(0, dot));
    if (place.has(key.c_str()) || tt::sim::default_of(estimate) == 0)
      estimate.field(machine) = place.get<double>(key.c_str());
  }
  return machine;
}

/// What the engine would refuse of a machine: [(name, what it must be)].
nb::list machine_problems(const nb::dict& document) {
  Keys keys{document, "machine"};
  nb::list found;
  for (const char* role : {"fast", "slow"}) {
    try {
      to_tier(keys.inside(role));
    } catch (const std::invalid_argument& error) {
      found.append(nb::make_tuple(std::string(role) + ".loaded", error.what()));
    }
  }
  if (nb::len(found) == 0)
    for (const auto& [name, wanted] : tt::sim::problems(to_machine(document)))
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

std::vector<tt::sim::PlacedObject> to_placement(const Keys& run, const nb::list& objects) {
  std::vector<tt::sim::PlacedObject> placement;
  for (const auto& item : objects) {
    if (!nb::isinstance<nb::dict>(item)) run.fail("placement", "expected a list of mappings");
    Keys keys = run.item("placement", nb::borrow<nb::dict>(item));
    const auto slot = keys.get<std::uint64_t>("slot");
    if (slot > std::numeric_limits<std::uint32_t>::max())
      keys.fail("slot", "found " + std::to_string(slot) + ", allowed are 0 to 2^32 - 1");
    placement.push_back({keys.get<std::string>("site"), keys.get<double>("score"),
                         keys.get<double>("bytes"), static_cast<std::uint32_t>(slot)});
    keys.refuse_others();
  }
  return placement;
}

/// What is to be run, as Python's keywords say it.
struct Run {
  tt::sim::MachineProfile machine;
  const tt::PolicyInfo* policy = nullptr;
  tt::KnobMap knobs;
  tt::sim::RunOptions options;
  bool profile = false;
  nb::object progress = nb::none();
};

Run to_run(const nb::dict& given) {
  Keys keys{given, "simulate"};
  Run run;
  run.machine = to_machine(keys.get<nb::dict>("machine"));
  run.policy = &tt::policy(keys.get<std::string>("policy"));
  run.knobs = to_knobs(keys.get<nb::dict>("knobs"));
  auto& options = run.options;
  options.fast_share = keys.get<double>("fast_share");
  keys.take("fast_bytes", options.fast_bytes);
  keys.take("threads", options.threads);
  keys.take("page_bytes", options.page_bytes);
  keys.take("mixed", options.mixed);
  keys.take("coarse", options.coarse);
  keys.take("start_slow", options.start_slow);
  keys.take("score_after", options.score_after);
  keys.take("seed", options.seed);
  if (keys.has("placement"))
    options.placement = to_placement(keys, keys.get<nb::list>("placement"));
  keys.take("deadline_seconds", options.deadline_seconds);
  keys.take("profile", run.profile);
  keys.take("progress", run.progress);
  keys.refuse_others();
  return run;
}

nb::dict to_dict(const tt::sim::RunResult& result) {
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
  return out;
}

nb::dict simulate(const std::filesystem::path& path, const nb::kwargs& given) {
  Run run = to_run(given);
  bool failed = false;
  run.options.progress = progress_function(run.progress, failed);
  tt::sim::ProfileResult found;
  enum class Ending { finished, stopped, late } ending = Ending::finished;
  {
    nb::gil_scoped_release release;
    try {
      const auto kept = tt::trace::kept_reader(path);
      if (run.profile) {
        found = tt::sim::profile(*kept, run.machine, *run.policy, run.knobs, run.options);
      } else {
        found.run = tt::sim::simulate(*kept, run.machine, *run.policy, run.knobs, run.options);
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
  nb::dict out = to_dict(found.run);
  if (run.profile) {
    nb::list objects;
    for (const auto& object : found.placement) objects.append(to_dict(object));
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
  m.def("simulate", &simulate, "path"_a, "options"_a,
        "Replays a stream under a policy on a machine. Keywords: machine, policy, knobs and "
        "fast_share, and those of to_run() in engine/bindings/simulation.cpp that have defaults. "
        "ValueError that names the key for one that is unknown, missing or of a wrong type; "
        "TimeoutError beyond `deadline_seconds`. `placement`: of a policy that profiles, from an "
        "earlier run with `profile`, which returns it; without one, the run is profiled first.");
}
