// SPDX-License-Identifier: MIT

// The Python module tuner._engine: a thin translation between Python's plain data and the engine.
// No logic lives here; every check of a value is the engine's own. bind.hpp lists the parts; this
// file has what is about the engine itself.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bind.hpp"
#include "build_id.hpp"
#include "core/isa.hpp"
#include "server.hpp"

NB_MODULE(_engine, m) {
  m.doc() = "The tiering engine: policies, access streams and the simulated tiered machine.";
  m.def("version", [] { return TT_VERSION; }, "Version of the engine (that of the package).");
  m.def(
      "ids",
      [] {
        nanobind::dict out;
        for (const auto& [name, id] : build_ids) out[name] = id;
        return out;
      },
      "Hashes of the sources that the engine was built from: of its policies, of its simulator, "
      "and "
      "of the whole.");
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
  tt::bind_policies(m);
  tt::bind_kernels(m);
  tt::bind_streams(m);
  tt::bind_recordings(m);
  tt::bind_perf(m);
  tt::bind_simulation(m);
  tt::bind_server(m);
}
