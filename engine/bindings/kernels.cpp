// SPDX-License-Identifier: MIT

// Workload kernels, and the streams that they make.
#include "kernels/kernel.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bind.hpp"
#include "build_id.hpp"
#include "convert.hpp"
#include "progress.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tt::bindings;

namespace {

nb::list list_kernels() {
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

nb::dict make_stream(const std::string& kernel, const std::string& workload,
                     const std::string& input, const nb::dict& parameters, double scale,
                     double threads, double llc_bytes, std::uint64_t seed,
                     const std::filesystem::path& path, std::uint64_t page_bytes,
                     const nb::object& progress) {
  bool failed = false;
  tt::kernels::RecordRequest request{.workload = workload,
                                     .input = input,
                                     .parameters = to_parameters(parameters),
                                     .scale = scale,
                                     .page_bytes = page_bytes,
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
    } catch (const tt::kernels::StreamInterrupted&) {
      stopped = true;
    }
  }
  if (stopped) raise_stopped(failed);
  return to_python(info);
}

}  // namespace

void tt::bind_kernels(nb::module_& m) {
  m.def("kernels", &list_kernels, "All workload kernels with their parameters, as plain data.");
  m.def("stream_id", &stream_id, "kernel"_a,
        "Hash of the sources that make a kernel's access streams: its own and the recorder's.");
  m.def("record", &make_stream, "kernel"_a, nb::kw_only(), "workload"_a, "input"_a, "parameters"_a,
        "scale"_a, "threads"_a, "llc_bytes"_a, "seed"_a, "path"_a,
        "page_bytes"_a = tt::trace::base_page_bytes, "progress"_a = nb::none(),
        "Runs a kernel and writes its access stream to path. progress(fraction) may return False "
        "to stop. Returns the stream's description.");
}
