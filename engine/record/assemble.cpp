// SPDX-License-Identifier: MIT

#include "record/assemble.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <queue>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "record/spool_reader.hpp"

namespace tt::record {
namespace {

/// Plays the records of a spool into an assembler, until the spool's clock passes a given time.
class Player {
 public:
  Player(SpoolReader& spool, std::uint32_t number) : spool_(spool), number_(number) {}

  [[nodiscard]] std::uint64_t time() const { return time_; }
  [[nodiscard]] bool done() const { return spool_.done(); }

  void play(Assembler& to, std::uint64_t until) {
    to.process(number_);
    to.time(time_);
    while (!spool_.done()) {
      const std::uint64_t at = spool_.position();
      const Record record = spool_.take();
      try {
        switch (record.type()) {
          case RecordType::time:
            time_ = std::max(time_, record.value);
            if (time_ > until) return;
            to.time(time_);
            break;
          case RecordType::site:
            site_ = spool_.text(record.value);
            break;
          case RecordType::map:
            to.map(record.address(), record.value, site_.empty() ? "unknown" : site_, shared_,
                   offset_);
            site_.clear();
            shared_ = offset_ = 0;
            break;
          case RecordType::shared:
            shared_ = record.value;
            offset_ = record.address();
            break;
          case RecordType::unmap:
            to.unmap(record.address(), record.value);
            break;
          case RecordType::discard:
            to.discard(record.address(), record.value);
            break;
          case RecordType::access:
            to.access(record.address(), record.store() ? AccessKind::store : AccessKind::load,
                      record.stream_class(), std::bit_cast<double>(record.value));
            break;
          case RecordType::compute:
            to.compute(std::bit_cast<double>(record.value));
            break;
          case RecordType::phase:
            to.phase(record.value != 0);
            break;
          case RecordType::operations_begin:
            to.operations_begin();
            break;
          case RecordType::operation_access:
            to.operation_access(static_cast<std::uint32_t>(record.value >> 32), record.address(),
                                record.store() ? AccessKind::store : AccessKind::load,
                                record.stream_class(), static_cast<std::uint32_t>(record.value));
            break;
          case RecordType::operation:
            to.operation(static_cast<std::uint32_t>(record.address()), record.stream_class(),
                         std::bit_cast<double>(record.value));
            break;
          case RecordType::operations:
            to.operations(record.value);
            break;
          default:
            throw std::invalid_argument("of an unknown type");
        }
      } catch (const std::invalid_argument& error) {
        throw spool_.bad("record " + std::to_string(at) + ": " + error.what());
      }
    }
  }

 private:
  SpoolReader& spool_;
  std::uint32_t number_;
  std::uint64_t time_ = 0;
  std::string site_;  // of the next map, as are these
  std::uint64_t shared_ = 0, offset_ = 0;
};

/// Threads of processes that ran at the same time add up; the spools are in order of birth.
std::uint64_t most_threads(const std::vector<std::unique_ptr<SpoolReader>>& spools) {
  std::uint64_t most = 0;
  std::uint64_t running = 0;
  std::multimap<std::uint64_t, std::uint64_t> ends;  // of those that run: time, threads
  for (const auto& spool : spools) {
    const SpoolHeader& header = spool->header();
    while (!ends.empty() && ends.begin()->first <= header.start_ns) {
      running -= ends.begin()->second;
      ends.erase(ends.begin());
    }
    const std::uint64_t threads = std::max(1U, header.threads);
    ends.emplace(std::max(header.last_ns, header.start_ns + 1), threads);
    running += threads;
    most = std::max(most, running);
  }
  return most;
}

double plausible(double value, double limit) {
  return std::isfinite(value) && value > 0 ? std::min(value, limit) : 0;
}

}  // namespace

trace::StreamInfo assemble(const std::filesystem::path& folder, const std::filesystem::path& file,
                           trace::StreamInfo info, AssemblerOptions options, SpoolSummary& summary,
                           const std::function<bool(double)>& progress) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".spool") paths.push_back(entry.path());
  if (paths.empty())
    throw std::runtime_error(folder.string() + ": no process was recorded (no *.spool)");

  std::vector<std::unique_ptr<SpoolReader>> spools;
  for (const auto& path : paths)
    spools.push_back(std::make_unique<SpoolReader>(path, options.consume));
  // Order of birth, so that the result does not depend on process numbers.
  std::ranges::stable_sort(spools, [](const auto& a, const auto& b) {
    return std::pair(a->header().start_ns, a->header().pid) <
           std::pair(b->header().start_ns, b->header().pid);
  });
  summary = {};
  for (const auto& spool : spools) {
    const SpoolHeader& header = spool->header();
    const auto state = static_cast<SpoolState>(header.state.load());
    ++summary.processes;
    summary.records += spool->size();
    summary.dropped += header.dropped;
    summary.sampled += plausible(header.sampled, 1e18);
    summary.error_share = std::max(summary.error_share, plausible(header.error_share, 1e6));
    summary.operations += header.operations;
    summary.abandoned += header.operations_abandoned;
    summary.unbegun += header.operations_unbegun;
    summary.probes += header.probes;
    options.last_operation_ns = std::max(options.last_operation_ns, header.last_operation_ns);
    options.operation_level = std::max(options.operation_level, header.operation_level);
    summary.disk_full |= state == SpoolState::disk_full;
    // One without records is of a process that ended while its sampler was starting.
    if ((state == SpoolState::open || state == SpoolState::failed) && spool->size() > 0)
      summary.open.push_back(header.pid);
  }
  summary.threads = most_threads(spools);
  if (options.threads == 0) options.threads = static_cast<double>(summary.threads);
  options.operations = summary.operations > 0;
  if (options.operations) info.op_kinds = {{operation_kind}};

  Assembler to{file, std::move(info), options};
  std::vector<Player> players;
  for (std::size_t i = 0; i < spools.size(); ++i)
    players.emplace_back(*spools[i], static_cast<std::uint32_t>(i));
  using Next = std::pair<std::uint64_t, std::size_t>;  // time, player
  std::priority_queue<Next, std::vector<Next>, std::greater<>> waiting;
  for (std::size_t i = 0; i < players.size(); ++i) waiting.emplace(spools[i]->header().start_ns, i);
  // Short stretches, so that progress is reported and an interrupt noticed.
  constexpr std::uint64_t stretch_ns = 100'000'000;
  while (!waiting.empty()) {
    const auto [time, i] = waiting.top();
    waiting.pop();
    const std::uint64_t others = waiting.empty() ? time + stretch_ns : waiting.top().first;
    players[i].play(to, std::min(std::max(others, time), time + stretch_ns));
    spools[i]->release();
    if (!players[i].done())
      waiting.emplace(players[i].time(), i);
    else if (!waiting.empty())
      to.ended();  // the process is over, the recording is not
    std::uint64_t played = 0;
    for (const auto& spool : spools) played += spool->position();
    if (progress &&
        !progress(static_cast<double>(played) / static_cast<double>(summary.records + 1)))
      throw std::runtime_error(file.string() + ": interrupted");
  }
  return to.finish();
}

}  // namespace tt::record
