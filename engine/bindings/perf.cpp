// SPDX-License-Identifier: MIT

// Recording by perf events, for tuner/record/samplers/pebs.py.
#include "record/perf_recorder.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>

#include <string>
#include <vector>

#include "bind.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using tt::record::PerfEvent;
using tt::record::PerfFilter;
using tt::record::PerfRecorder;

namespace {

template <typename T>
T field(const nb::dict& dict, const char* key) {
  return nb::cast<T>(dict[key]);
}

PerfEvent to_event(const nb::dict& dict) {
  const auto filter = field<std::string>(dict, "filter");
  PerfEvent event{.name = field<std::string>(dict, "name"),
                  .type = field<std::uint32_t>(dict, "type"),
                  .config = field<std::uint64_t>(dict, "config"),
                  .config1 = field<std::uint64_t>(dict, "config1"),
                  .config2 = field<std::uint64_t>(dict, "config2"),
                  .leader = field<std::uint64_t>(dict, "leader"),
                  .period = field<std::uint64_t>(dict, "period"),
                  .precise = field<std::uint32_t>(dict, "precise")};
  if (filter == "loads")
    event.filter = PerfFilter::loads;
  else if (filter == "stores")
    event.filter = PerfFilter::stores;
  else if (filter == "operations")
    event.filter = PerfFilter::operations;
  else if (filter == "faults")
    event.filter = PerfFilter::faults;
  else
    throw nb::value_error(("perf event " + event.name + ": no filter '" + filter + "'").c_str());
  return event;
}

}  // namespace

void tt::bind_perf(nb::module_& m) {
  nb::class_<PerfRecorder>(m, "PerfRecorder",
                           "Records perf events of a process that is about to begin a program.")
      .def(
          "__init__",
          [](PerfRecorder* self, int pid, const nb::list& events,
             const std::filesystem::path& folder, const std::string& sampler,
             std::uint64_t begin_ns) {
            std::vector<PerfEvent> all;
            for (const auto& event : events) all.push_back(to_event(nb::cast<nb::dict>(event)));
            new (self) PerfRecorder(pid, all, folder, sampler, begin_ns);
          },
          "pid"_a, "events"_a, "folder"_a, "sampler"_a, "begin_ns"_a,
          "RuntimeError names the event and what is wrong.")
      .def(
          "stop",
          [](PerfRecorder& self) {
            tt::record::PerfCounts counts;
            {
              nb::gil_scoped_release release;
              counts = self.stop();
            }
            nb::dict out;
            out["samples"] = counts.samples;
            out["filtered"] = counts.filtered;
            out["lost"] = counts.lost;
            return out;
          },
          "Reads what is left, closes the spools, and tells what was seen.");
}
