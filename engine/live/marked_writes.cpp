// SPDX-License-Identifier: MIT

#include "live/marked_writes.hpp"

#include <cstring>

namespace tt::live {

using Event = SamplingRequest::Event;
using Mode = SamplingRequest::Mode;

SamplingRequest MarkedWrites::grant(const SamplingRequest& request) {
  SamplingRequest granted = of_->grant(request);
  const Event& asked = request.stores;
  wanted_ = asked.mode != Mode::off && granted.loads.mode != Mode::off;
  if (!wanted_) return granted;
  const double coarser = granted.loads.coarser_than(request.loads);
  granted.stores = {asked.mode,
                    asked.mode == Mode::period ? asked.value * coarser : asked.value / coarser};
  return granted;
}

void MarkedWrites::collect(const LiveMemory& memory, Nanos now, std::vector<Sample>& out) {
  const std::size_t from = out.size();
  of_->collect(memory, now, out);
  if (!wanted_) return;
  written_.look(memory.pids());
  const Blocks& blocks = memory.blocks();
  for (Sample& sample : std::span{out}.subspan(from)) {
    if (!written_.contains(blocks.pid(sample.page), blocks.address(sample.page))) continue;
    sample.kind = AccessKind::store;
    ++stores_;
  }
}

std::string MarkedWrites::text() const {
  std::string out = of_->text();
  if (wanted_)
    out += "; " + std::to_string(stores_) +
           " of them count as stores, of pages that were written to in the second before";
  if (written_.error() != 0)
    out += std::string{"; which pages of some process are written to is not told ("} +
           std::strerror(written_.error()) + ")";
  return out;
}

}  // namespace tt::live
