// SPDX-License-Identifier: MIT

// roms: a stand-in for SPEC CPU 2017's 654.roms; see ocean_model.hpp for what is computed.
#include <cstdint>

#include "kernels/kernel.hpp"
#include "kernels/ocean_model.hpp"
#include "kernels/parameters.hpp"

namespace tt::kernels {
namespace {

trace::StreamInfo record_roms(const RecordRequest& request) {
  const ParameterReader read{request};
  const Grid grid = Grid::miniature(read.number("cells_x", 4, 1e6), read.number("cells_y", 4, 1e6),
                                    read.number("layers", 4, 1e4), request.scale, 4);
  const auto steps = static_cast<std::uint64_t>(read.number("steps", 1, 1e6));
  OceanModel::Options options;
  options.fast = static_cast<std::uint64_t>(read.number("fast_steps", 1, 1e4));

  trace::StreamInfo info = describe(request);
  info.lanes = {{"ocean", 1}};
  // Sweeps in memory order along rows of many lines: the prefetchers keep most of the 10 to 12 line
  // buffers of a core busy. A line's eight values take some tens of floating-point operations, a
  // few ns with vectors, which overlap.
  info.classes = {{"sweep", 9, 4}};
  trace::Recorder recorder{request.file, info, recorder_options(request)};

  recorder.set_timed(false);
  OceanModel ocean{recorder, grid, options, request.seed};
  recorder.set_timed(true);
  Progress progress{request};
  for (std::uint64_t i = 0; i < steps; ++i) {
    progress.at(static_cast<double>(i) / static_cast<double>(steps));
    ocean.step();
  }
  return recorder.finish();
}

const RegisterKernel registered{
    {"roms",
     "an ocean model: three-dimensional sweeps and, between them, fast two-dimensional sub-steps",
     {{"cells_x", 16400.0, "cells", "along the channel"},
      {"cells_y", 2060.0, "cells", "across"},
      {"layers", 30.0, "count", "from floor to surface"},
      {"steps", 150.0, "count", "three-dimensional time steps"},
      {"fast_steps", 20.0, "count", "two-dimensional sub-steps of each"},
      block_ms_parameter(50)},
     &record_roms}};

}  // namespace
}  // namespace tt::kernels
