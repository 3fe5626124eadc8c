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

Session::Session(KernelCalls& kernel, const Options& options, std::ostream* journal)
    : kernel_(kernel),
      damons_(kernel, beside(options.changes, ".damon")),
      balancing_(kernel, beside(options.changes, ".balancing")),
      source_(make_source(options.source, kernel, damons_, options.damon, options.seed)),
      memory_(kernel, options.nodes, memory_options(options), source_.get()),
      share_(options.cpu) {
  const PolicyInfo& info = policy(options.policy);
  const Knobs knobs = resolve(info.knobs, options.knobs);
  require_needs(info, knobs, source_->serves(), "a running process");
  refuse_alto(info, knobs);
  const PolicyContext context{memory_, knobs, nullptr, options.seed};
  policy_ = journal == nullptr ? info.make(context) : journaled(info, context, *journal);
}

Session::~Session() = default;

void Session::start(int pid) {
  memory_.add(pid);
  // The kernel's own balancing would move pages back, and count them against the program.
  const std::string balancing = "/proc/sys/kernel/numa_balancing";
  const int error = balancing_.replace(balancing, "0");
  if (error != 0 && error != ENOENT)
    throw NotAllowed(balancing + ": " + std::strerror(error) + "; it takes root");
  source_->start(memory_.pids());
  share_.begin(kernel_.now(), used());
  loop_ = std::make_unique<Loop>(
      kernel_, memory_, *policy_,
      [this](const LiveMemory& memory, Nanos now, std::vector<Sample>& out) {
        source_->collect(memory, now, out);
      },
      Loop::Options{}, kernel_.now());
}

Nanos Session::turn() {
  const Nanos wait = loop_->turn();
  const int error = loop_->look_error();
  if (error == EPERM || error == EACCES)
    throw NotAllowed(std::string{"looking at the process's pages: "} + std::strerror(error) +
                     "; it takes CAP_SYS_PTRACE, or a process of the same user");
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

std::string Session::summary() const {
  const MoveCounts& moves = memory_.moves();
  std::string out = mebibytes(memory_.blocks().used(Tier::fast)) + " in the fast tier, " +
                    mebibytes(memory_.blocks().used(Tier::slow)) + " in the slow one; moved " +
                    mebibytes(moves.moved[index(Tier::fast)]) + " up and " +
                    mebibytes(moves.moved[index(Tier::slow)]) + " down in " +
                    std::to_string(moves.calls) + " calls, the longest of " +
                    std::to_string(moves.longest.count() / 1000) + " us; " + source_->text();
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
  if (unseen_ != 0)
    out +=
        std::string{"; not every look at the process succeeded ("} + std::strerror(unseen_) + ")";
  return out;
}

}  // namespace tt::live
