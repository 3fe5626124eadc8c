// SPDX-License-Identifier: MIT

#include "live/damon.hpp"

#include <unistd.h>

#include <cerrno>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "live/mover.hpp"

namespace tt::live {
namespace {

const std::string kdamonds = "/sys/kernel/mm/damon/admin/kdamonds/";
// Since 6.17 the kernel watches itself by default, and keeps others out.
const std::string stat_enabled = "/sys/module/damon_stat/parameters/enabled";

std::string microseconds(Nanos time) { return std::to_string(time.count() / 1000); }

std::string first_word(const std::string& text) {
  return text.substr(0, text.find_first_of(" \n"));
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
                     "; end what uses it, or write 0 there");
  std::string format;
  int error = kernel_.read("/sys/kernel/tracing/events/damon/damon_aggregated/format", format);
  if (error != 0)
    error = kernel_.read("/sys/kernel/debug/tracing/events/damon/damon_aggregated/format", format);
  if (error != 0)
    throw NotAllowed(
        "DAMON: its tracepoint damon_aggregated: " + std::generic_category().message(error) +
        "; it takes root and a mounted tracefs (mount -t tracefs none /sys/kernel/tracing)");
  decoder_ = std::make_unique<DamonDecoder>(TraceFormat{format});

  std::string stat;
  if (kernel_.read(stat_enabled, stat) == 0 && first_word(stat) == "Y")
    noted(changes_.replace(stat_enabled, "N"), stat_enabled);
  noted(changes_.write(kdamonds + "nr_kdamonds", "1", "0"), kdamonds + "nr_kdamonds");
  const std::string context = kdamonds + "0/contexts/0/";
  write(kdamonds + "0/contexts/nr_contexts", "1");
  write(context + "operations", "vaddr", "; it takes a kernel with CONFIG_DAMON_VADDR");
  const std::string attributes = context + "monitoring_attrs/";
  write_intervals();
  write(attributes + "intervals/update_us", microseconds(options_.update));
  write(attributes + "nr_regions/min", std::to_string(options_.min_regions));
  write(attributes + "nr_regions/max", std::to_string(options_.max_regions));
  write(context + "targets/nr_targets", std::to_string(pids.size()));
  for (std::size_t i = 0; i < pids.size(); ++i)
    write(context + "targets/" + std::to_string(i) + "/pid_target", std::to_string(pids[i]));
  // It cannot be taken away while it runs.
  noted(changes_.write(kdamonds + "0/state", "on", "off"), kdamonds + "0/state");
  pids_.assign(pids.begin(), pids.end());
  thread_ = read(kdamonds + "0/pid");
  error =
      kernel_.trace(TraceFormat{format}.id(), std::stoi(thread_), DamonDecoder::sample_type, ring_);
  if (error != 0)
    throw NotAllowed("DAMON: a ring for its tracepoint: " + std::generic_category().message(error) +
                     "; it takes CAP_PERFMON");
}

void Damon::write_intervals() {
  const std::string intervals = kdamonds + "0/contexts/0/monitoring_attrs/intervals/";
  write(intervals + "sample_us", microseconds(options_.sampling * stretched_));
  write(intervals + "aggr_us", microseconds(aggregation()));
}

void Damon::stretch(unsigned times) {
  if (times == stretched_) return;
  stretched_ = times;
  if (!runs()) return;
  write_intervals();
  write(kdamonds + "0/state", "commit");
}

/// The 14th and 15th field of its stat, behind a name that may hold anything.
bool Damon::thread_time(Nanos& out) {
  std::string text;
  if (!runs() || kernel_.read("/proc/" + thread_ + "/stat", text) != 0) return false;
  const std::size_t name_ends = text.rfind(')');
  if (name_ends == std::string::npos) return false;
  std::istringstream fields{text.substr(name_ends + 1)};
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  std::uint64_t user = 0, system = 0;
  if (!(fields >> user >> system)) return false;
  out = from_seconds(static_cast<double>(user + system) /
                     static_cast<double>(::sysconf(_SC_CLK_TCK)));
  return true;
}

void Damon::stop() {
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
