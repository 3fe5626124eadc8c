// SPDX-License-Identifier: MIT

#include "live/session.hpp"

#include <cerrno>
#include <cstring>
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

std::string mebibytes(std::uint64_t pages) {
  return std::to_string(pages * base_page_bytes >> 20) + " MiB";
}

}  // namespace

Session::Session(KernelCalls& kernel, const Options& options, std::ostream* journal,
                 std::ostream* series)
    : kernel_(kernel),
      samples_({}, options.seed),
      memory_(kernel, options.nodes, memory_options(options), &samples_),
      damons_(kernel, beside(options.changes, ".damon")),
      balancing_(kernel, beside(options.changes, ".balancing")),
      damon_(kernel, damons_, options.damon),
      policy_name_(options.policy),
      series_(series) {
  const PolicyInfo& info = policy(options.policy);
  const Knobs knobs = resolve(info.knobs, options.knobs);
  require_needs(info, knobs, Need::samples, "a running process");
  const PolicyContext context{memory_, knobs, nullptr, options.seed};
  policy_ = journal == nullptr ? info.make(context) : journaled(info, context, *journal);
}

Session::~Session() = default;

void Session::start(Target target) {
  target_ = std::move(target);
  if (const int error = target_.find(kernel_); error != 0)
    throw NotAllowed(target_.text() + ": " + std::strerror(error));
  if (target_.over()) throw NotAllowed(target_.text() + ": not there");
  // The kernel's own balancing would move pages back, and count them against the program.
  const std::string balancing = "/proc/sys/kernel/numa_balancing";
  const int error = balancing_.replace(balancing, "0");
  if (error != 0 && error != ENOENT)
    throw NotAllowed(balancing + ": " + std::strerror(error) +
                     "; it takes CAP_SYS_ADMIN, or `sysctl kernel.numa_balancing=0` before");
  memory_.follow(target_.pids());
  if (!target_.pids().empty()) damon_.start(target_.pids());
  meter_ = std::make_unique<Meter>(kernel_, memory_, *policy_, series_);
  loop_ = std::make_unique<Loop>(
      kernel_, memory_, *policy_,
      [this](const LiveMemory&, Nanos, std::vector<Sample>& out) { collect(out); },
      [this](LiveMemory&) { return follow(); }, Loop::Options{}, kernel_.now());
}

/// Which processes there are. One that ends between this and what is told of it is left out next.
bool Session::follow() {
  const std::vector<int> before = target_.pids();
  const int error = target_.find(kernel_);
  if (error != 0) unseen_ = error;
  memory_.follow(target_.pids());
  samples_.follow(target_.pids());
  unwatched_ = damon_.follow(target_.pids());
  return target_.pids() != before;
}

Nanos Session::turn() {
  const Nanos wait = loop_->turn();
  meter_->turn(loop_->now(), damon_.thread(), damon_.lost());
  const int error = loop_->look_error();
  if (error == EPERM || error == EACCES)
    throw NotAllowed(std::string{"looking at the process's pages: "} + std::strerror(error) +
                     "; it takes CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, or a process of the same "
                     "user");
  if (error != 0) unseen_ = error;
  return wait;
}

void Session::collect(std::vector<Sample>& out) {
  for (const DamonAggregation& each : damon_.collect())
    if (each.whole)
      samples_.draw(each, damon_.pid(each), seconds(damon_.options().aggregation), memory_, out);
}

Status Session::status() const {
  Status out{policy_name_, target_.text(), "samples estimated from DAMON's regions", {}};
  meter_->figures(loop_->now(), out.figures);
  out.figures.push_back({"look_error", "errno of the last look at a process that failed",
                         static_cast<double>(unseen_)});
  out.figures.push_back({"unwatched_error", "errno for which processes are not watched yet",
                         static_cast<double>(unwatched_)});
  return out;
}

std::string Session::summary() const {
  const MoveCounts& moves = memory_.moves();
  std::string out = mebibytes(memory_.blocks().used(Tier::fast)) + " in the fast tier, " +
                    mebibytes(memory_.blocks().used(Tier::slow)) + " in the slow one; moved " +
                    mebibytes(moves.moved[index(Tier::fast)]) + " up and " +
                    mebibytes(moves.moved[index(Tier::slow)]) + " down in " +
                    std::to_string(moves.calls) + " calls, the longest of " +
                    std::to_string(moves.longest.count() / 1000) +
                    " us; samples were estimated from DAMON's regions";
  for (const auto& [error, pages] : moves.failed)
    if (pages > 0)
      out += "; " + std::to_string(pages) + " pages refused (" + std::strerror(error) + ")";
  if (moves.no_room > 0) out += "; no room for " + std::to_string(moves.no_room) + " pages";
  if (unseen_ != 0)
    out +=
        std::string{"; not every look at the process succeeded ("} + std::strerror(unseen_) + ")";
  if (unwatched_ != 0)
    out += std::string{"; DAMON refuses the processes that came last ("} +
           std::strerror(unwatched_) + ")";
  if (damon_.lost() > 0) out += "; " + std::to_string(damon_.lost()) + " records of DAMON lost";
  return out;
}

}  // namespace tt::live
