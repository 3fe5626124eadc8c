// SPDX-License-Identifier: MIT

// Streams of real programs: the spools of a recording, and traces of other tools.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind.hpp"
#include "convert.hpp"
#include "kernels/kernel.hpp"
#include "kernels/requests.hpp"
#include "progress.hpp"
#include "record/assemble.hpp"
#include "record/import.hpp"
#include "record/requests.hpp"
#include "record/restate.hpp"
#include "record/windows.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tt::bindings;

namespace {

/// Does the work without Python's lock, with what it asks whether to go on; raises what `progress`
/// has raised.
template <typename Work>
void watched(const nb::object& progress, const Work& work) {
  bool failed = false;
  bool stopped = false;
  const auto report = progress_function(progress, failed);
  const auto watch = [&](double fraction) { return !(stopped = !report(fraction)); };
  {
    nb::gil_scoped_release release;
    try {
      work(watch);
    } catch (...) {
      if (!stopped) throw;
    }
  }
  if (stopped) raise_stopped(failed);
}

nb::tuple assemble(const std::filesystem::path& folder, const std::filesystem::path& path,
                   const std::string& workload, const std::string& input,
                   const std::string& parameters, const nb::list& classes, bool wall_time,
                   double block_ms, double nominal_latency_ns, double set_up_s,
                   double offered_per_s, const nb::object& progress) {
  tt::trace::StreamInfo info{.workload = workload, .input = input, .parameters = parameters};
  for (const auto& item : classes) {
    const auto [name, mlp, issue_ns, store_fill, prefetched, translation] =
        nb::cast<std::tuple<std::string, double, double, double, double, double>>(item);
    info.classes.push_back({.name = name,
                            .mlp = mlp,
                            .issue_ns = issue_ns,
                            .store_fill = store_fill,
                            .prefetched = prefetched,
                            .translation = translation});
  }
  info.lanes.push_back({.name = "all"});
  const tt::record::AssemblerOptions options{.block_ms = block_ms,
                                             .threads = 0,
                                             .wall_time = wall_time,
                                             .nominal_latency_ns = nominal_latency_ns,
                                             .consume = true,
                                             .set_up_s = set_up_s,
                                             .offered_per_s = offered_per_s};
  tt::record::SpoolSummary summary;
  watched(progress, [&](const auto& watch) {
    info = tt::record::assemble(folder, path, std::move(info), options, summary, watch);
  });
  nb::dict seen;
  seen["processes"] = summary.processes;
  seen["records"] = summary.records;
  seen["dropped"] = summary.dropped;
  seen["threads"] = summary.threads;
  seen["sampled"] = summary.sampled;
  seen["error_share"] = summary.error_share;
  seen["operations"] = summary.operations;
  seen["abandoned"] = summary.abandoned;
  seen["unbegun"] = summary.unbegun;
  seen["probes"] = summary.probes;
  seen["disk_full"] = summary.disk_full;
  seen["open"] = nb::cast(summary.open);
  return nb::make_tuple(to_python(info), seen);
}

/// An exception of read() (or Ctrl-C) goes through what reads, which tidies up, to the caller.
tt::record::ImportSource source_of(const nb::callable& read) {
  return [&read](char* buffer, std::size_t size) {
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    const auto bytes = nb::cast<nb::bytes>(read(size));
    if (bytes.size() > size) throw nb::value_error("read() gave more than was asked for");
    std::memcpy(buffer, bytes.c_str(), bytes.size());
    return bytes.size();
  };
}

nb::tuple import_trace(const nb::callable& read, const std::string& name,
                       const std::filesystem::path& path, const std::string& format,
                       const std::string& workload, const std::string& input,
                       const std::string& parameters, double period, double threads,
                       double ns_per_instruction, double llc_bytes, double block_ms,
                       double nominal_latency_ns, std::uint64_t scale) {
  const tt::record::ImportOptions options{.format = tt::record::import_format(format),
                                          .period = period,
                                          .threads = threads,
                                          .ns_per_instruction = ns_per_instruction,
                                          .llc_bytes = llc_bytes,
                                          .block_ms = block_ms,
                                          .nominal_latency_ns = nominal_latency_ns,
                                          .scale = scale};
  const tt::record::ImportSource source = source_of(read);
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
  out["no_level"] = summary.no_level;
  out["unsure"] = summary.unsure;
  out["repeated"] = summary.repeated;
  out["skipped"] = summary.skipped;
  out["lost"] = summary.lost;
  out["late"] = summary.late;
  out["stood_for"] = summary.stood_for;
  out["period_known"] = summary.period_known;
  out["processes"] = summary.processes;
  out["threads"] = summary.threads;
  out["observed"] = summary.observed;
  out["accesses"] = summary.accesses;
  out["error_share"] = summary.error_share;
  out["hot_error_share"] = summary.hot_error_share;
  return nb::make_tuple(to_python(info), out);
}

nb::tuple import_requests(const nb::callable& read, const std::string& name,
                          const std::filesystem::path& path, const std::string& columns,
                          const std::string& workload, const std::string& input,
                          const std::string& parameters, double scale, double threads,
                          double llc_bytes, double block_ms, double nominal_latency_ns,
                          const std::string& store, double cache_bytes, double lru_refresh_s,
                          double op_ns, double client_ns, bool touch_value, bool populate,
                          std::optional<bool> look_aside, const nb::object& progress) {
  using tt::kernels::AnsweringStore;
  using tt::kernels::StoreOperation;
  if (store != "cachelib" && store != "redis")
    throw nb::value_error(("no store '" + store + "' (known: cachelib, redis)").c_str());
  bool failed = false;
  tt::kernels::ReplayOptions options{
      .info = {.workload = workload, .input = input, .parameters = parameters},
      .file = path,
      .scale = scale,
      .threads = threads,
      .llc_bytes = static_cast<std::uint64_t>(llc_bytes),
      .block_ms = block_ms,
      .nominal_latency_ns = nominal_latency_ns,
      .store = store == "redis" ? AnsweringStore::redis : AnsweringStore::cachelib,
      .cache_bytes = cache_bytes,
      .refresh_seconds = lru_refresh_s,
      .op_ns = op_ns,
      .client_ns = client_ns,
      .touch_value = touch_value,
      .populate = populate,
      .look_aside = look_aside,
      .progress = progress_function(progress, failed)};
  const tt::record::ImportSource source = source_of(read);
  std::vector<tt::kernels::StoreRequest> requests;
  tt::record::RequestSummary seen;
  tt::kernels::ReplaySummary done;
  tt::trace::StreamInfo info;
  bool stopped = false;
  {
    nb::gil_scoped_release release;
    tt::record::read_requests(
        source, name, columns, seen, [&](const tt::record::CacheRequest& request) {
          requests.push_back({.key = request.key,
                              .seconds = request.seconds,
                              .value_bytes = request.value_bytes,
                              .ttl = request.ttl,
                              .count = request.count,
                              .key_bytes = request.key_bytes,
                              .operation = static_cast<StoreOperation>(request.operation)});
        });
    try {
      info = tt::kernels::replay(requests, options, done);
    } catch (const tt::kernels::StreamInterrupted&) {
      stopped = true;
    }
  }
  if (stopped) raise_stopped(failed);
  nb::dict out;
  out["layout"] = seen.layout;
  out["lines"] = seen.lines;
  out["requests"] = seen.requests;
  out["unknown"] = seen.unknown;
  out["unknown_name"] = seen.unknown_name;
  out["empty"] = seen.empty;
  out["late"] = seen.late;
  out["with_ttl"] = seen.with_ttl;
  out["seconds"] = seen.seconds;
  out["times"] = seen.times;
  out["key_sizes"] = seen.key_sizes;
  out["operations"] = seen.operations;
  out["unused"] = seen.unused;
  out["replayed"] = done.requests;
  out["keys"] = done.keys;
  out["gets"] = done.gets;
  out["hits"] = done.hits;
  out["sets"] = done.sets;
  out["adds"] = done.adds;
  out["updates"] = done.updates;
  out["deletes"] = done.removes;
  out["deleted"] = done.removed;
  out["inserted"] = done.inserted;
  out["evicted"] = done.evicted;
  out["expired"] = done.expired;
  out["too_large"] = done.too_large;
  out["no_room"] = done.no_room;
  out["unsized"] = done.unsized;
  out["sized"] = done.sized;
  out["buckets"] = done.buckets;
  out["look_aside"] = done.look_aside;
  return nb::make_tuple(to_python(info), out);
}

nb::dict windows(const std::filesystem::path& path, std::size_t count) {
  tt::record::Windows found;
  {
    nb::gil_scoped_release release;
    const tt::trace::Reader reader(path);
    found = tt::record::windows(reader, count);
  }
  nb::list list;
  for (const auto& window : found.windows) {
    nb::dict entry;
    entry["from"] = window.from;
    entry["to"] = window.to;
    entry["begin_s"] = window.begin_s;
    entry["end_s"] = window.end_s;
    entry["accesses"] = window.accesses;
    list.append(entry);
  }
  nb::list rows;
  const std::size_t size = found.windows.size();
  for (std::size_t v = 0; v < size; ++v) {
    nb::list row;
    for (std::size_t w = 0; w < size; ++w) row.append(found.alike[v * size + w]);
    rows.append(row);
  }
  nb::dict out;
  out["windows"] = list;
  out["alike"] = rows;
  return out;
}

nb::dict restate(const std::filesystem::path& from, const std::filesystem::path& to,
                 const std::string& workload, const std::string& parameters, double factor,
                 double threads, std::uint64_t first, std::uint64_t end, std::uint64_t passes,
                 double most_block_ms, const nb::object& progress) {
  tt::trace::StreamInfo info;
  watched(progress, [&](const auto& watch) {
    info = tt::record::restate(from, to,
                               {.workload = workload,
                                .parameters = parameters,
                                .factor = factor,
                                .threads = threads,
                                .from = first,
                                .to = end,
                                .passes = passes,
                                .most_block_ms = most_block_ms},
                               watch);
  });
  return tt::bindings::to_python(info);
}

}  // namespace

void tt::bind_recordings(nb::module_& m) {
  m.def("assemble", &assemble, "folder"_a, "path"_a, nb::kw_only(), "workload"_a, "input"_a,
        "parameters"_a, "classes"_a, "wall_time"_a, "block_ms"_a, "nominal_latency_ns"_a,
        "set_up_s"_a = 0.0, "offered_per_s"_a = 0.0, "progress"_a = nb::none(),
        "Turns the spools of a recording into a stream, and uses them up; classes are (name, mlp, "
        "issue_ns, store_fill, prefetched, translation). Returns the stream's description and what "
        "the spools say of "
        "themselves. "
        "RuntimeError names the file and what is wrong with it.");
  m.def("import_trace", &import_trace, "read"_a, nb::kw_only(), "name"_a, "path"_a, "format"_a,
        "workload"_a, "input"_a, "parameters"_a, "period"_a, "threads"_a, "ns_per_instruction"_a,
        "llc_bytes"_a, "block_ms"_a, "nominal_latency_ns"_a, "scale"_a = 1,
        "Makes a stream of what another tool saw. read(size) yields the next bytes of its output. "
        "Returns the stream's description and a summary. RuntimeError names line, found and "
        "expected.");
  m.def("windows", &windows, "path"_a, "count"_a,
        "The timed part of a stream in windows, and how alike each two are (record/windows.hpp). "
        "RuntimeError as stream_info.");
  m.def(
      "restate", &restate, "from"_a, "to"_a, nb::kw_only(), "workload"_a, "parameters"_a,
      "factor"_a, "threads"_a, "first"_a, "end"_a, "passes"_a, "most_block_ms"_a,
      "progress"_a = nb::none(),
      "Writes a stream that stands for more memory, and in which blocks [first, end) come several "
      "times (record/restate.hpp). Returns its description. ValueError for what is not possible, "
      "RuntimeError as stream_info.");
  m.def("import_requests", &import_requests, "read"_a, nb::kw_only(), "name"_a, "path"_a,
        "columns"_a, "workload"_a, "input"_a, "parameters"_a, "scale"_a, "threads"_a, "llc_bytes"_a,
        "block_ms"_a, "nominal_latency_ns"_a, "store"_a, "cache_bytes"_a, "lru_refresh_s"_a,
        "op_ns"_a, "client_ns"_a, "touch_value"_a, "populate"_a, "look_aside"_a.none(),
        "progress"_a = nb::none(),
        "Makes a stream of the requests in a cache's trace, answered by a store. "
        "read(size) yields the next bytes of the trace; look_aside None: if nothing else inserts. "
        "Returns the stream's description and a summary. RuntimeError names line, found and "
        "expected; ValueError an impossible size.");
}
