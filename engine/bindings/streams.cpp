// SPDX-License-Identifier: MIT

// What is in a stream: its description, its integrity, how it uses memory.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "bind.hpp"
#include "convert.hpp"
#include "trace/characteristics.hpp"
#include "trace/overlap.hpp"
#include "trace/reader.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tt::bindings;

namespace {

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

}  // namespace

void tt::bind_streams(nb::module_& m) {
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
  m.def(
      "patterns",
      [] {
        nb::dict out;
        for (const auto& pattern : {tt::trace::random_pattern, tt::trace::sequential_pattern,
                                    tt::trace::dependent_pattern}) {
          nb::dict entry;
          entry["mlp"] = pattern.mlp;
          entry["prefetched"] = pattern.prefetched;
          entry["translation"] = pattern.translation;
          out[nb::str(pattern.name.data(), pattern.name.size())] = entry;
        }
        return out;
      },
      "What is assumed of recorded accesses, by their pattern (trace/overlap.hpp).");
  m.def("characteristics", &characteristics, "path"_a, "rows"_a = 0, "columns"_a = 0,
        "How a stream uses its memory (see trace/characteristics.hpp). With rows and columns also "
        "its allocation sites and a heat map: uint64 accesses and uint32 pages, column by column.");
}
