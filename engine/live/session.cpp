// SPDX-License-Identifier: MIT

#include "live/session.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "live/journal.hpp"

namespace tt::live {
namespace {

LiveMemory::Options memory_options(const Session::Options& options) {
  LiveMemory::Options out;
  out.fast_limit = options.fast_limit;
  return out;
}

std::filesystem::path beside(std::filesystem::path path, const char* ending) {
  if (!path.empty()) path += ending;
  return path;
}

/// Alto goes by counts of outstanding reads. Without them it would admit all, and not say so.
void refuse_alto(const PolicyInfo& info, const Knobs& knobs) {
  const bool has =
      std::ranges::find(info.knobs, "aol.enabled", &KnobDecl::name) != info.knobs.end();
  if (has && knobs.flag("aol.enabled"))
    throw std::invalid_argument(
        "aol.enabled: found true; of a running process nobody here counts outstanding reads");
}

std::string percent(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %%", 100 * share);
  return text.data();
}

std::string mebibytes(std::uint64_t pages) {
  return std::to_string(pages * base_page_bytes >> 20) + " MiB";
}

}  // namespace

Session::Session(KernelCalls& kernel, const Options& options,
                 std::span<std::ostream* const> journals, std::ostream* series)
    : kernel_(kernel),
      source_changes_(kernel, beside(options.changes, ".source")),
      balancing_(kernel, beside(options.changes, ".balancing")),
      source_(make_source(options.source, kernel, source_changes_, options.damon, options.seed,
                          options.writes)),
      sampling_(*source_, options.nodes.of.size() - 1),
      policy_name_(options.policy),
      series_(series),
      share_(options.cpu) {
  const PolicyInfo& info = policy(options.policy);
  const Knobs knobs = resolve(info.knobs, options.knobs);
  require_needs(info, knobs, source_->serves(), "a running process");
  refuse_alto(info, knobs);
  for (std::size_t i = 0; i + 1 < options.nodes.of.size(); ++i) {
    SampleSource* const source = &sampling_.of(i);
    steps_.push_back(i == 0 ? std::make_unique<Step>(LiveMemory{kernel, options.nodes,
                                                                memory_options(options), source})
                            : std::make_unique<Step>(LiveMemory{steps_.back()->memory, source}));
    const PolicyContext context{steps_.back()->memory, knobs, nullptr, options.seed};
    steps_.back()->policy =
        journals.empty() ? info.make(context) : journaled(info, context, *journals[i]);
  }
}

Session::~Session() = default;

void Session::start(Target target) {
  target_ = std::move(target);
  if (const int error = target_.find(kernel_); error != 0)
    throw NotAllowed(target_.text() + ": " + std::strerror(error));
  // The kernel's own balancing would move pages back, and count them against the program; of one
  // that was started for hinting faults it moves none.
  const std::string wanted = source_->takes_balancing() ? "1" : "0";
  const int error = balancing_.replace(balancing_file, wanted);
  if (error != 0 && (error != ENOENT || source_->takes_balancing()))
    throw NotAllowed(balancing_file + ": " + std::strerror(error) +
                     "; it takes CAP_SYS_ADMIN, or `sysctl kernel.numa_balancing=" + wanted +
                     "` before");
  // Where nothing is moved by it, balancing looks more and more seldom: once a minute in the end.
  if (source_->takes_balancing()) scans_seldom_ = balancing_.replace(scan_period_file, "1000");
  top().follow(target_.pids());
  if (!target_.pids().empty()) source_->start(target_.pids());
  share_.begin(kernel_.now(), used());
  std::vector<Loop::Step> steps;
  for (const auto& step : steps_) steps.push_back({step->memory, *step->policy});
  meter_ = std::make_unique<Meter>(kernel_, steps, series_);
  loop_ = std::make_unique<Loop>(
      kernel_, steps,
      [this](const LiveMemory& memory, Nanos now, std::vector<Sample>& out) {
        source_->collect(memory, now, out);
      },
      [this](LiveMemory&) { return follow(); }, Loop::Options{}, kernel_.now());
}

/// Which processes there are. One that ends between this and what is told of it is left out next.
bool Session::follow() {
  const std::vector<int> before = target_.pids();
  const int error = target_.find(kernel_);
  if (error != 0) unseen_ = error;
  top().follow(target_.pids());
  unwatched_ = source_->follow(target_.pids());
  return target_.pids() != before;
}

Nanos Session::turn() {
  const Nanos wait = loop_->turn();
  if (const Nanos now = loop_->now(); meter_->due(now)) {
    Nanos monitor{};
    (void)source_->kernel_time(monitor);  // 0 where it is not known, as the summary tells
    meter_->second(now, monitor, source_->lost());
  }
  const int error = loop_->look_error();
  if (error == EPERM || error == EACCES)
    throw NotAllowed(std::string{"looking at the process's pages: "} + std::strerror(error) +
                     "; it takes CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, or a process of the same "
                     "user");
  if (error != 0) unseen_ = error;
  if (const Nanos now = kernel_.now(); share_.due(now) && share_.update(now, used()))
    source_->spare(share_.times());
  return wait;
}

Nanos Session::used() {
  Nanos kernels{};
  kernel_time_known_ = source_->kernel_time(kernels);
  return kernel_.processor_time() + kernels;
}

Status Session::status() const {
  Status out{policy_name_, target_.text(), source_->text(), {}};
  meter_->figures(loop_->now(), out.figures);
  out.figures.push_back({"look_error", "errno of the last look at a process that failed",
                         static_cast<double>(unseen_)});
  out.figures.push_back({"unwatched_error", "errno for which processes are not watched yet",
                         static_cast<double>(unwatched_)});
  // A figure of hinting faults alone: nobody else lets the kernel's balancing look.
  if (source_->takes_balancing())
    out.figures.push_back({"scan_period_error",
                           "errno for which the kernel looks at accesses as seldom as once a "
                           "minute; 0 if it does not",
                           static_cast<double>(scans_seldom_)});
  return out;
}

std::string Session::summary() const {
  MoveCounts moves;
  for (const auto& step : steps_) moves += step->memory.moves();
  const std::size_t levels = steps_.size() + 1;
  std::string out;
  for (std::size_t level = 0; level < levels; ++level) {
    const std::string name = level == 0    ? "the fast tier, "
                             : levels == 2 ? "the slow one"
                                           : level_name(level, levels);
    out += mebibytes(steps_.front()->memory.blocks().used(static_cast<Level>(level))) + " in " +
           name + (level > 0 && level + 1 < levels ? ", " : "");
  }
  out += "; moved " + mebibytes(moves.moved[index(Tier::fast)]) + " up and " +
         mebibytes(moves.moved[index(Tier::slow)]) + " down in " + std::to_string(moves.calls) +
         " calls, the longest of " + std::to_string(moves.longest.count() / 1000) + " us; " +
         source_->text();
  if (share_.share() > 0) out += "; " + percent(share_.share()) + " of a processor used";
  if (!kernel_time_known_) out += ", without what the kernel's thread takes";
  if (share_.limit() > 0) {
    out += ", of " + percent(share_.limit()) + " allowed";
    if (share_.times() > 1)
      out += ": sampled " + std::to_string(share_.times()) + " times as seldom for that";
    if (share_.exceeded()) out += "; at last it took more than that";
  }
  for (const auto& [error, pages] : moves.failed)
    if (pages > 0)
      out += "; " + std::to_string(pages) + " pages refused (" + std::strerror(error) + ")";
  if (moves.no_room > 0) out += "; no room for " + std::to_string(moves.no_room) + " pages";
  if (scans_seldom_ != 0)
    out += "; the kernel looks at accesses as seldom as once a minute (" + scan_period_file + ": " +
           std::strerror(scans_seldom_) + ")";
  if (unseen_ != 0)
    out +=
        std::string{"; not every look at the process succeeded ("} + std::strerror(unseen_) + ")";
  if (unwatched_ != 0)
    out += std::string{"; the processes that came last are not watched ("} +
           std::strerror(unwatched_) + ")";
  return out;
}

}  // namespace tt::live
