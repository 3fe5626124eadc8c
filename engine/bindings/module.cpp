// The Python module tuner._engine: a thin translation between Python's plain data and the engine.
// No logic lives here; every check of a value is the engine's own.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <tuple>

#include "bind.hpp"
#include "build_id.hpp"
#include "core/isa.hpp"
#include "core/seam.hpp"
#include "kernels/kernel.hpp"
#include "record/assemble.hpp"
#include "record/import.hpp"
#include "sim/profile.hpp"
#include "sim/simulate.hpp"
#include "trace/characteristics.hpp"
#include "trace/stream.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using KnobMap = std::map<std::string, tt::KnobValue, std::less<>>;

nb::object to_python(const tt::KnobValue& value) {
  return std::visit([](const auto& v) -> nb::object { return nb::cast(v); }, value);
}

// bool before int: Python's bool is an int.
tt::KnobValue to_knob(const std::string& name, nb::handle value) {
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value);
  if (nb::isinstance<nb::int_>(value)) return nb::cast<std::int64_t>(value);
  if (nb::isinstance<nb::float_>(value)) return nb::cast<double>(value);
  if (nb::isinstance<nb::str>(value)) return nb::cast<std::string>(value);
  throw nb::value_error(("knob " + name + ": found " + nb::cast<std::string>(nb::repr(value)) +
                         ", expected a number, true or false, or a name")
                            .c_str());
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
  tier.write_gbps = number(dict, "write_gbps", where);
  tier.total_gbps = number(dict, "total_gbps", where);
  tier.store_stall = number(dict, "store_stall", where);
  for (const auto& point : nb::cast<nb::list>(member(dict, "loaded", where))) {
    const auto pair = nb::cast<std::vector<double>>(point);
    if (pair.size() != 2) {
      throw nb::value_error(
          ("machine: " + where + "loaded: expected [utilisation, factor]").c_str());
    }
    tier.loaded.emplace_back(pair[0], pair[1]);
  }
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
  const auto tiering = nb::cast<nb::dict>(member(dict, "tiering", ""));
  const std::string where = "tiering.";
  machine.migration_fixed_us = number(tiering, "migration_fixed_us", where);
  machine.migration_copy_gbps = number(tiering, "migration_copy_gbps", where);
  machine.migration_shootdown_us = number(tiering, "migration_shootdown_us", where);
  machine.sample_assist_ns = number(tiering, "sample_assist_ns", where);
  machine.sample_drain_ns = number(tiering, "sample_drain_ns", where);
  machine.huge_page_gain = number(tiering, "huge_page_gain", where);
  machine.daemon_core_share = number(tiering, "daemon_core_share", where);
  machine.sample_queue = number(tiering, "sample_queue", where);
  const auto work = nb::cast<nb::dict>(member(tiering, "work_ns", where));
  static constexpr std::array<const char*, tt::work_count> names = {
      "tracker_update", "tracker_lookup", "cooling_step", "scan_step", "threshold_pass",
      "pte_scan",       "lru_step",       "probe",        "sort_step"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool has_default = machine.work_ns[i] > 0;
    if (has_default && !work.contains(names[i])) continue;
    machine.work_ns[i] = number(work, names[i], "tiering.work_ns.");
  }
  const auto optional = [&](double& field, const char* key) {
    if (tiering.contains(key)) field = number(tiering, key, where);
  };
  optional(machine.hint_fault_us, "hint_fault_us");
  optional(machine.pte_ns, "pte_ns");
  optional(machine.tlb_flush_us, "tlb_flush_us");
  return machine;
}

nb::dict to_python(const tt::KnobDecl& knob) {
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
  if (knob.condition) {
    nb::dict condition;
    nb::list values;
    for (const auto& value : knob.condition->values) values.append(to_python(value));
    condition["parent"] = knob.condition->parent;
    condition["values"] = values;
    out["condition"] = condition;
  } else {
    out["condition"] = nb::none();
  }
  return out;
}

nb::list policies() {
  nb::list out;
  for (const auto& policy : tt::policies()) {
    nb::dict entry;
    entry["name"] = policy.name;
    entry["family"] = policy.family;
    entry["summary"] = policy.summary;
    entry["citation"] = policy.citation;
    nb::dict traits;
    traits["page_bytes"] = policy.traits.page_bytes;
    traits["write_protected_moves"] = policy.traits.write_protected_moves;
    traits["mover_threads"] = policy.traits.mover_threads;
    traits["unbounded_fast"] = policy.traits.unbounded_fast;
    traits["needs"] = tt::names(policy.traits.needs);
    entry["traits"] = traits;
    nb::list knobs;
    for (const auto& knob : policy.knobs) knobs.append(to_python(knob));
    entry["knobs"] = knobs;
    out.append(entry);
  }
  return out;
}

nb::dict resolve(const std::string& policy, const nb::dict& given) {
  nb::dict out;
  const auto knobs = tt::resolve(tt::policy(policy).knobs, to_knobs(given));
  for (const auto& [name, value] : knobs.values()) out[name.c_str()] = to_python(value);
  return out;
}

std::string hex(std::uint64_t value) {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(value));
  return digits.data();
}

nb::dict to_python(const tt::trace::StreamInfo& info) {
  nb::dict out;
  out["workload"] = info.workload;
  out["input"] = info.input;
  out["parameters"] = info.parameters;
  out["seed"] = info.seed;
  out["scale"] = info.scale;
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
    entry["lane"] = c.lane;
    entry["store_fill"] = c.store_fill;
    classes.append(entry);
  }
  out["classes"] = classes;
  nb::list lanes;
  for (const auto& lane : info.lanes) {
    nb::dict entry;
    entry["name"] = lane.name;
    entry["thread_share"] = lane.thread_share;
    lanes.append(entry);
  }
  out["lanes"] = lanes;
  nb::list objects;
  for (const auto& object : info.objects) {
    nb::dict entry;
    entry["site"] = object.site;
    entry["first_page"] = object.first_page;
    entry["pages"] = object.pages;
    objects.append(entry);
  }
  out["objects"] = objects;
  nb::list kinds;
  for (const auto& kind : info.op_kinds) kinds.append(kind.name);
  out["op_kinds"] = kinds;
  return out;
}

nb::list kernels() {
  nb::list out;
  for (const auto& kernel : tt::kernels::kernels()) {
    nb::dict entry;
    entry["name"] = kernel.name;
    entry["summary"] = kernel.summary;
    nb::list parameters;
    for (const auto& parameter : kernel.parameters) {
      nb::dict item;
      item["name"] = parameter.name;
      item["default"] =
          std::visit([](const auto& v) -> nb::object { return nb::cast(v); }, parameter.initial);
      item["unit"] = parameter.unit;
      item["meaning"] = parameter.meaning;
      parameters.append(item);
    }
    entry["parameters"] = parameters;
    out.append(entry);
  }
  return out;
}

std::string stream_id(const std::string& name) {
  for (const auto& kernel : tt::kernels::kernels()) {
    if (kernel.name != name) continue;
    for (const auto& [file, id] : stream_ids)
      if (kernel.file == file) return id;
  }
  throw nb::value_error(("unknown kernel " + name).c_str());
}

tt::kernels::Parameters to_parameters(const nb::dict& given) {
  tt::kernels::Parameters out;
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string>(key);
    if (nb::isinstance<nb::bool_>(value)) {
      out.emplace(name, nb::cast<bool>(value));
    } else if (nb::isinstance<nb::int_>(value)) {
      out.emplace(name, nb::cast<std::int64_t>(value));
    } else if (nb::isinstance<nb::float_>(value)) {
      out.emplace(name, nb::cast<double>(value));
    } else if (nb::isinstance<nb::str>(value)) {
      out.emplace(name, nb::cast<std::string>(value));
    } else if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
      out.emplace(name, nb::cast<std::vector<double>>(value));
    } else {
      throw nb::value_error(("parameter " + name + ": found " +
                             nb::cast<std::string>(nb::repr(value)) +
                             ", expected a number, text, true or false, or a list of numbers")
                                .c_str());
    }
  }
  return out;
}

// Runs under the released GIL; takes it to answer signals and to tell the caller. An exception of
// the callback (or Ctrl-C) stops the engine and is raised again by the wrapper.
std::function<bool(double)> progress_function(const nb::object& callback, bool& failed) {
  return [&callback, &failed](double fraction) {
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) {
      failed = true;
      return false;
    }
    if (callback.is_none()) return true;
    try {
      return nb::cast<bool>(callback(fraction));
    } catch (nb::python_error& error) {
      error.restore();
      failed = true;
      return false;
    }
  };
}

// What a stopped run raises: the pending Python exception, or KeyboardInterrupt where the callback
// itself asked to stop.
[[noreturn]] void raise_stopped(bool failed) {
  if (!failed) PyErr_SetString(PyExc_KeyboardInterrupt, "stopped by the progress callback");
  throw nb::python_error();
}

nb::dict record(const std::string& kernel, const std::string& workload, const std::string& input,
                const nb::dict& parameters, double scale, double threads, double llc_bytes,
                std::uint64_t seed, const std::filesystem::path& path, const nb::object& progress) {
  bool failed = false;
  tt::kernels::RecordRequest request{.workload = workload,
                                     .input = input,
                                     .parameters = to_parameters(parameters),
                                     .scale = scale,
                                     .threads = threads,
                                     .llc_bytes = llc_bytes,
                                     .seed = seed,
                                     .file = path,
                                     .progress = progress_function(progress, failed)};
  tt::trace::StreamInfo info;
  bool stopped = false;
  {
    nb::gil_scoped_release release;
    try {
      info = tt::kernels::record(kernel, std::move(request));
    } catch (const tt::kernels::Interrupted&) {
      stopped = true;
    }
  }
  if (stopped) raise_stopped(failed);
  return to_python(info);
}

nb::tuple assemble(const std::filesystem::path& folder, const std::filesystem::path& path,
                   const std::string& workload, const std::string& input,
                   const std::string& parameters, const nb::list& classes, bool wall_time,
                   double block_ms, double nominal_latency_ns, double set_up_s,
                   const nb::object& progress) {
  tt::trace::StreamInfo info{.workload = workload, .input = input, .parameters = parameters};
  for (const auto& item : classes) {
    const auto [name, mlp, issue_ns, store_fill] =
        nb::cast<std::tuple<std::string, double, double, double>>(item);
    info.classes.push_back(
        {.name = name, .mlp = mlp, .issue_ns = issue_ns, .store_fill = store_fill});
  }
  info.lanes.push_back({.name = "all"});
  const tt::record::AssemblerOptions options{.block_ms = block_ms,
                                             .threads = 0,
                                             .wall_time = wall_time,
                                             .nominal_latency_ns = nominal_latency_ns,
                                             .consume = true,
                                             .set_up_s = set_up_s};
  bool failed = false;
  bool stopped = false;
  const auto report = progress_function(progress, failed);
  const auto watch = [&](double fraction) { return !(stopped = !report(fraction)); };
  tt::record::SpoolSummary summary;
  {
    nb::gil_scoped_release release;
    try {
      info = tt::record::assemble(folder, path, std::move(info), options, summary, watch);
    } catch (...) {
      if (!stopped) throw;
    }
  }
  if (stopped) raise_stopped(failed);
  nb::dict seen;
  seen["processes"] = summary.processes;
  seen["records"] = summary.records;
  seen["dropped"] = summary.dropped;
  seen["threads"] = summary.threads;
  seen["sampled"] = summary.sampled;
  seen["error_share"] = summary.error_share;
  seen["disk_full"] = summary.disk_full;
  seen["cut_short"] = summary.cut_short;
  return nb::make_tuple(to_python(info), seen);
}

template <typename T>
nb::bytes to_bytes(const std::vector<T>& values) {
  return nb::bytes(values.data(), values.size() * sizeof(T));
}

nb::dict characteristics(const std::filesystem::path& path, std::uint64_t rows,
                         std::uint64_t columns) {
  tt::trace::Characteristics found;
  {
    nb::gil_scoped_release release;
    const tt::trace::Reader reader(path);
    found = tt::trace::characterise(reader, {rows, columns});
  }
  nb::dict out;
  out["pages"] = found.pages;
  out["timed_pages"] = found.timed_pages;
  out["peak_pages"] = found.peak_pages;
  out["seconds"] = found.seconds;
  nb::list timed;
  for (const auto& [from, to] : found.timed) timed.append(nb::make_tuple(from, to));
  out["timed"] = timed;
  out["loads"] = found.accesses[index(tt::AccessKind::load)];
  out["stores"] = found.accesses[index(tt::AccessKind::store)];
  out["set_up_accesses"] = found.set_up_accesses;
  nb::list hottest;
  for (std::size_t i = 0; i < found.hottest.size(); ++i)
    hottest.append(nb::make_tuple(tt::trace::hot_shares[i], found.hottest[i]));
  out["hottest"] = hottest;
  nb::list curve;
  for (const auto& [pages, accesses] : found.curve) curve.append(nb::make_tuple(pages, accesses));
  out["curve"] = curve;
  nb::list sites;
  for (const auto& site : found.sites) {
    nb::dict entry;
    entry["site"] = site.site;
    entry["objects"] = site.objects;
    entry["freed"] = site.freed;
    entry["pages"] = site.pages;
    entry["peak_pages"] = site.peak_pages;
    entry["first_touch"] = site.first_touch;
    entry["last_touch"] = site.last_touch;
    entry["last_free"] = site.last_free;
    nb::list accesses;
    for (const auto& [loads, stores] : site.accesses)
      accesses.append(nb::make_tuple(loads, stores));
    entry["accesses"] = accesses;
    entry["set_up_accesses"] = site.set_up_accesses;
    sites.append(entry);
  }
  out["sites"] = sites;
  nb::list extents;
  for (const auto& [site, first, pages] : found.extents)
    extents.append(nb::make_tuple(found.sites[site].site, first, pages));
  out["extents"] = extents;
  nb::dict heat;
  heat["rows"] = found.heat.rows;
  heat["pages_per_row"] = found.heat.pages_per_row;
  heat["edges"] = found.heat.edges;
  heat["accesses"] = to_bytes(found.heat.accesses);
  heat["pages"] = to_bytes(found.heat.pages);
  out["heat"] = heat;
  return out;
}

nb::tuple import_trace(const nb::callable& read, const std::string& name,
                       const std::filesystem::path& path, const std::string& format,
                       const std::string& workload, const std::string& input,
                       const std::string& parameters, double period, double threads,
                       double ns_per_instruction, double llc_bytes, double block_ms,
                       double nominal_latency_ns) {
  const tt::record::ImportOptions options{.format = tt::record::import_format(format),
                                          .period = period,
                                          .threads = threads,
                                          .ns_per_instruction = ns_per_instruction,
                                          .llc_bytes = llc_bytes,
                                          .block_ms = block_ms,
                                          .nominal_latency_ns = nominal_latency_ns};
  // An exception of read() (or Ctrl-C) goes through the importer, which tidies up, to the caller.
  const tt::record::ImportSource source = [&read](char* buffer, std::size_t size) {
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    const auto bytes = nb::cast<nb::bytes>(read(size));
    if (bytes.size() > size) throw nb::value_error("read() gave more than was asked for");
    std::memcpy(buffer, bytes.c_str(), bytes.size());
    return bytes.size();
  };
  tt::trace::StreamInfo info;
  info.workload = workload;
  info.input = input;
  info.parameters = parameters;
  tt::record::ImportSummary summary;
  {
    nb::gil_scoped_release release;
    info = tt::record::import_trace(source, name, path, std::move(info), options, summary);
  }
  nb::dict out;
  out["lines"] = summary.lines;
  out["samples"] = summary.samples;
  out["no_address"] = summary.no_address;
  out["cached"] = summary.cached;
  out["processes"] = summary.processes;
  out["threads"] = summary.threads;
  out["observed"] = summary.observed;
  out["accesses"] = summary.accesses;
  out["error_share"] = summary.error_share;
  out["hot_error_share"] = summary.hot_error_share;
  return nb::make_tuple(to_python(info), out);
}

template <typename Map>
nb::dict to_dict(const Map& map) {
  nb::dict out;
  for (const auto& [name, value] : map) out[name.c_str()] = value;
  return out;
}

nb::dict simulate(const std::filesystem::path& path, const nb::dict& machine,
                  const std::string& policy, const nb::dict& knobs, double fast_share,
                  std::uint64_t fast_bytes, double threads, std::uint64_t page_bytes,
                  std::uint64_t seed, std::optional<double> deadline_seconds,
                  const nb::object& progress) {
  const auto profile = to_machine(machine);
  const auto& info = tt::policy(policy);
  const auto given = to_knobs(knobs);
  bool failed = false;
  tt::sim::RunOptions options{.fast_share = fast_share,
                              .fast_bytes = fast_bytes,
                              .threads = threads,
                              .page_bytes = page_bytes,
                              .seed = seed,
                              .deadline_seconds = deadline_seconds,
                              .progress = progress_function(progress, failed)};
  tt::sim::RunResult result;
  enum class Ending { finished, stopped, late } ending = Ending::finished;
  {
    nb::gil_scoped_release release;
    try {
      const tt::trace::Reader reader(path);
      result = tt::sim::simulate(reader, profile, info, given, options);
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
  return out;
}

}  // namespace

NB_MODULE(_engine, m) {
  tt::bind_perf(m);
  m.doc() = "The tiering engine: policies, access streams and the simulated tiered machine.";
  m.def("version", [] { return TT_VERSION; }, "Version of the engine (that of the package).");
  m.def(
      "build_id", [] { return TT_BUILD_ID; }, "Hash of the sources that the engine was built of.");
  m.def(
      "isa", [] { return std::string(tt::name(tt::isa())); },
      "Instruction set that the hot loops use. ValueError when TIERTUNE_ISA names none of "
      "supported_isas().");
  m.def(
      "supported_isas",
      [] {
        std::vector<std::string> names;
        for (const tt::Isa isa : tt::supported_isas()) names.emplace_back(tt::name(isa));
        return names;
      },
      "Those that this processor runs, the portable one first.");
  m.def("stream_id", &stream_id, "kernel"_a,
        "Hash of the sources that make a kernel's access streams: its own and the recorder's.");
  m.def("policies", &policies, "All policies with their knobs, as plain data.");
  m.def("resolve", &resolve, "policy"_a, "knobs"_a,
        "Completes knobs with defaults and checks them. ValueError names knob, found and allowed.");
  m.def("kernels", &kernels, "All workload kernels with their parameters, as plain data.");
  m.def("record", &record, "kernel"_a, nb::kw_only(), "workload"_a, "input"_a, "parameters"_a,
        "scale"_a, "threads"_a, "llc_bytes"_a, "seed"_a, "path"_a, "progress"_a = nb::none(),
        "Runs a kernel and writes its access stream to path. progress(fraction) may return False "
        "to stop. Returns the stream's description.");
  m.def("assemble", &assemble, "folder"_a, "path"_a, nb::kw_only(), "workload"_a, "input"_a,
        "parameters"_a, "classes"_a, "wall_time"_a, "block_ms"_a, "nominal_latency_ns"_a,
        "set_up_s"_a = 0.0, "progress"_a = nb::none(),
        "Turns the spools of a recording into a stream, and uses them up; classes are (name, mlp, "
        "issue_ns, "
        "store_fill). Returns the stream's description and what the spools say of themselves. "
        "RuntimeError names the file and what is wrong with it.");
  m.def(
      "stream_info",
      [](const std::filesystem::path& path) {
        const tt::trace::Reader reader(path);
        return to_python(reader.info());
      },
      "path"_a, "Description of a stream. RuntimeError names the file and what is wrong with it.");
  m.def(
      "verify_stream",
      [](const std::filesystem::path& path) {
        nb::gil_scoped_release release;
        const tt::trace::Reader reader(path);
        reader.verify();
      },
      "path"_a, "Checks every block of a stream. RuntimeError as stream_info.");
  m.def("characteristics", &characteristics, "path"_a, "rows"_a = 0, "columns"_a = 0,
        "How a stream uses its memory (see trace/characteristics.hpp). With rows and columns also "
        "its allocation sites and a heat map: uint64 accesses and uint32 pages, column by column.");
  m.def("import_trace", &import_trace, "read"_a, nb::kw_only(), "name"_a, "path"_a, "format"_a,
        "workload"_a, "input"_a, "parameters"_a, "period"_a, "threads"_a, "ns_per_instruction"_a,
        "llc_bytes"_a, "block_ms"_a, "nominal_latency_ns"_a,
        "Makes a stream of what another tool saw. read(size) yields the next bytes of its output. "
        "Returns the stream's description and a summary. RuntimeError names line, found and "
        "expected.");
  m.def("simulate", &simulate, "path"_a, nb::kw_only(), "machine"_a, "policy"_a, "knobs"_a,
        "fast_share"_a, "fast_bytes"_a = 0, "threads"_a = 0.0, "page_bytes"_a = 0, "seed"_a = 0,
        "deadline_seconds"_a = nb::none(), "progress"_a = nb::none(),
        "Replays a stream under a policy on a machine. TimeoutError beyond the deadline.");
}
