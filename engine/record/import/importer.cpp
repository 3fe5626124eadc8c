// SPDX-License-Identifier: MIT

#include "record/import/importer.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tt::record {

void Uncertainty::summarise(bool of_all, ImportSummary& summary) const {
  std::vector<Page> pages;
  pages.reserve(pages_.size());
  for (const auto& [number, page] : pages_) pages.push_back(page);
  // By content, so that the sums do not depend on the order of a hash table.
  std::ranges::sort(pages, [](const Page& a, const Page& b) {
    return std::pair(a.accesses, a.observed) > std::pair(b.accesses, b.observed);
  });
  double all = 0;
  for (const Page& page : pages) {
    all += page.accesses;
    summary.observed += page.observed;
  }
  double sum = 0, error = 0;
  bool hot = true;
  for (const Page& page : pages) {
    const double sampled = of_all ? std::min(1.0, page.observed / page.accesses) : 0;
    error += page.accesses * std::sqrt((1 - sampled) / page.observed);
    sum += page.accesses;
    if (hot && sum >= all / 2) {
      summary.hot_error_share = error / sum;
      hot = false;
    }
  }
  summary.accesses = all;
  summary.error_share = all > 0 ? error / all : 0;
}

void Importer::start(bool wall_time, double threads, std::vector<trace::StreamClass> classes) {
  AssemblerOptions assembler;
  assembler.block_ms = options.block_ms;
  assembler.scale = static_cast<double>(options.scale);
  info_.scale = assembler.scale;
  assembler.threads = summary.threads = threads;
  assembler.wall_time = wall_time;
  assembler.nominal_latency_ns = options.nominal_latency_ns;
  assembler.seed = options.seed;
  info_.classes = std::move(classes);
  stream_.emplace(file_, std::move(info_), assembler);
}

trace::StreamInfo Importer::finish() {
  summary.lines = lines.number();
  summary.processes = std::max<std::size_t>(1, processes.size());
  if (summary.samples == 0)
    throw ImportError(lines.name() + ": no access in " + std::to_string(summary.lines) + " lines" +
                      (summary.skipped > 0
                           ? ", of which " + std::to_string(summary.skipped) + " were skipped"
                           : "") +
                      "; there is nothing to play");
  return stream_->finish();
}

}  // namespace tt::record
