// SPDX-License-Identifier: MIT

#include "live/damon.hpp"

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "live/mover.hpp"
#include "live/process_stat.hpp"

namespace tt::live {
namespace {

const std::string context_folder = kdamonds + "0/contexts/0/";
const std::string state = kdamonds + "0/state";
// Since 6.17 the kernel watches itself by default, and keeps others out.
const std::string stat_enabled = "/sys/module/damon_stat/parameters/enabled";

std::string microseconds(Nanos time) { return std::to_string(time.count() / 1000); }

std::string first_word(const std::string& text) {
  return text.substr(0, text.find_first_of(" \n"));
}

/// What names the processes to watch: files and what is written to them, in order.
std::vector<std::pair<std::string, std::string>> targets(std::span<const int> pids) {
  const std::string folder = context_folder + "targets/";
  std::vector<std::pair<std::string, std::string>> out{
      {folder + "nr_targets", std::to_string(pids.size())}};
  for (std::size_t i = 0; i < pids.size(); ++i)
    out.emplace_back(folder + std::to_string(i) + "/pid_target", std::to_string(pids[i]));
  return out;
}

}  // namespace

void Damon::write(const std::string& path, const std::string& text, const char* hint) {
  if (const int error = kernel_.write(path, text); error != 0)
    throw NotAllowed("DAMON: writing " + text + " to " + path + ": " +
                     std::generic_category().message(error) + hint);
}

void Damon::noted(int error, const std::string& path) const {
  if (error != 0)
    throw NotAllowed("DAMON: " + path + ": " + std::generic_category().message(error));
}

std::string Damon::read(const std::string& path, const char* hint) {
  std::string text;
  if (const int error = kernel_.read(path, text); error != 0)
    throw NotAllowed("DAMON: reading " + path + ": " + std::generic_category().message(error) +
                     hint);
  return first_word(text);
}

void Damon::start(std::span<const int> pids) {
  stop();
  try {
    set_up(pids);
  } catch (...) {
    stop();
    throw;
  }
}

void Damon::set_up(std::span<const int> pids) {
  const std::string used =
      read(kdamonds + "nr_kdamonds", "; it takes root, and a kernel with CONFIG_DAMON_SYSFS");
  if (used != "0")
    throw NotAllowed("DAMON is in use by somebody else: " + kdamonds + "nr_kdamonds is " + used +
                     "; end what uses it, write 0 there, or take `tierd run --source hints`");
  std::string format;
  int error = kernel_.read("/sys/kernel/tracing/events/damon/damon_aggregated/format", format);
  if (error != 0)
    error = kernel_.read("/sys/kernel/debug/tracing/events/damon/damon_aggregated/format", format);
  if (error != 0)
    throw NotAllowed(
        "DAMON: its tracepoint damon_aggregated: " + std::generic_category().message(error) +
        "; it takes root and a mounted tracefs (mount -t tracefs none /sys/kernel/tracing)");
  lost_before_ = lost();
  decoder_ = std::make_unique<DamonDecoder>(TraceFormat{format});

  std::string stat;
  if (kernel_.read(stat_enabled, stat) == 0 && first_word(stat) == "Y")
    noted(changes_.replace(stat_enabled, "N"), stat_enabled);
  noted(changes_.write(kdamonds + "nr_kdamonds", "1", "0"), kdamonds + "nr_kdamonds");
  write(kdamonds + "0/contexts/nr_contexts", "1");
  write(context_folder + "operations", "vaddr", "; it takes a kernel with CONFIG_DAMON_VADDR");
  const std::string attributes = context_folder + "monitoring_attrs/";
  write_intervals();
  write(attributes + "intervals/update_us", microseconds(options_.update));
  write(attributes + "nr_regions/min", std::to_string(options_.min_regions));
  write(attributes + "nr_regions/max", std::to_string(options_.max_regions));
  for (const auto& [path, text] : targets(pids)) write(path, text);
  // It cannot be taken away while it runs.
  noted(changes_.write(state, "on", "off"), state);
  pids_.assign(pids.begin(), pids.end());
  written_ = true;
  thread_ = std::stoi(read(kdamonds + "0/pid"));
  error = kernel_.trace(TraceFormat{format}.id(), thread_, DamonDecoder::sample_type, ring_);
  if (error != 0)
    throw NotAllowed("DAMON: a ring for its tracepoint: " + std::generic_category().message(error) +
                     "; it takes CAP_PERFMON, and on Debian and Ubuntu sysctl "
                     "kernel.perf_event_paranoid=2");
}

int Damon::commit(std::span<const int> pids) {
  for (const auto& [path, text] : targets(pids))
    if (const int error = kernel_.write(path, text); error != 0) return error;
  // This returns when the kernel has taken them: what is in the ring is by the old numbers.
  return kernel_.write(state, "commit");
}

int Damon::follow(std::span<const int> pids) {
  if (written_ && std::ranges::equal(pids, pids_)) return 0;
  if (pids.empty()) {
    stop();
    return 0;
  }
  std::string text;
  const bool on = runs() && kernel_.read(state, text) == 0 && first_word(text) == "on";
  if (!on) {
    start(pids);
    return 0;
  }
  // Else what else is committed would find some of the refused ones.
  written_ = false;
  if (const int error = commit(pids); error != 0) return error;
  written_ = true;
  pids_.assign(pids.begin(), pids.end());
  ring_->read(bytes_);
  ring_->take(bytes_.size());
  decoder_->forget();
  return 0;
}

void Damon::write_intervals() {
  const std::string intervals = context_folder + "monitoring_attrs/intervals/";
  write(intervals + "sample_us", microseconds(options_.sampling * stretched_));
  write(intervals + "aggr_us", microseconds(aggregation()));
}

void Damon::stretch(unsigned times) {
  if (times == stretched_) return;
  stretched_ = times;
  if (!runs()) return;
  write_intervals();
  write(state, "commit");
}

bool Damon::thread_time(Nanos& out) {
  out = time_before_;
  if (!runs()) return true;
  const auto stat = process_stat(kernel_, thread_);
  if (stat) out += stat->processor;
  return stat.has_value();
}

void Damon::stop() {
  if (Nanos time{}; thread_time(time)) time_before_ = time;  // its thread ends
  ring_.reset();
  pids_.clear();
  // What cannot be undone has ended by itself, with its last process.
  (void)changes_.undo();
}

std::vector<DamonAggregation> Damon::collect() {
  if (ring_ == nullptr) return {};
  ring_->read(bytes_);
  ring_->take(decoder_->feed(bytes_));
  return decoder_->take();
}

}  // namespace tt::live
