// SPDX-License-Identifier: MIT

#include "record/blocks.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "trace/overlap.hpp"

namespace tt::record {
namespace {

trace::StreamInfo scaled(trace::StreamInfo info, const BlocksOptions& options) {
  for (const double value : {options.scale, options.threads, options.nominal_latency_ns})
    if (!std::isfinite(value) || value <= 0)
      throw std::invalid_argument("scale, threads and latency of a recording are positive");
  info.scale = options.scale;
  return info;
}

}  // namespace

Blocks::Blocks(std::filesystem::path file, trace::StreamInfo info, const BlocksOptions& options)
    : info_(scaled(std::move(info), options)),
      thread_ns_(options.scale / std::max(1.0, options.threads)),
      space_(info_.page_bytes, 1),
      block_(info_),
      writer_(std::move(file), info_) {
  for (const trace::StreamClass& entry : info_.classes)
    for (const double waits : {1.0, trace::store_stall})  // loads, stores
      entry_ns_.push_back(std::max(entry.issue_ns, waits * options.nominal_latency_ns / entry.mlp) *
                          thread_ns_);
}

std::uint32_t Blocks::map(const std::string& site, std::uint64_t bytes) {
  const trace::Event mapped = space_.map(site, bytes);
  block_.events().push_back(mapped);
  return mapped.first;
}

void Blocks::unmap(std::uint32_t page, std::uint64_t count) {
  // A block's events come before its accesses, so what was touched so far is closed first.
  end_block();
  const trace::Event range = space_.unmapping(std::uint64_t{page} * space_.held_bytes(), count);
  space_.free(range);
  block_.events().push_back(range);
}

void Blocks::set_timed(bool timed) {
  if (timed != timed_) end_block();
  timed_ = timed;
}

void Blocks::miss(std::uint32_t stream_class, AccessKind kind, std::uint32_t page,
                  std::uint64_t count) {
  space_.touch(page, block_.events());
  const std::size_t way = stream_class * 2 + index(kind);
  const double fetched = kind == AccessKind::store ? info_.classes[stream_class].store_fill : 1.0;
  while (count > 0) {
    const auto part =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(count, trace::Coalesced::max_count));
    block_.add(way, page, part, space_.pages());
    block_.add_time(0, static_cast<std::uint32_t>(part * fetched + 0.5) * entry_ns_[way]);
    count -= part;
  }
}

void Blocks::compute(double nanoseconds) {
  block_.add_compute(0, nanoseconds);
  block_.add_time(0, nanoseconds * thread_ns_);
}

void Blocks::sampled(double compute_ns, std::vector<trace::OpAccess> accesses) {
  sampled_.push_back({compute_ns, std::move(accesses)});
}

void Blocks::end_block() {
  if (busy()) close();
}

void Blocks::close() {
  trace::Block closed = block_.describe(timed_);
  if (!info_.op_kinds.empty()) closed.operations = {&operations_, 1};
  for (const Sampled& operation : sampled_)
    closed.sampled.push_back({0, operation.compute_ns, operation.accesses});
  writer_.write(closed);
  if (timed_) timed_ns_ += closed.nominal_ns;
  block_.clear();
  operations_ = 0;
  sampled_.clear();
}

trace::StreamInfo Blocks::finish() {
  if (busy() || !block_.empty()) close();
  info_.pages = space_.pages();
  info_.objects = space_.objects();
  info_.nominal_seconds = timed_ns_ * 1e-9;
  return writer_.finish(info_);
}

}  // namespace tt::record
