// SPDX-License-Identifier: MIT

#include "live/perf_samples.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "live/mover.hpp"
#include "perf/records.hpp"
#include "perf/spe.hpp"

namespace tt::live {
namespace {

using Mode = SamplingRequest::Mode;

constexpr double longest_period = 1U << 30;  // IBS counts 27 bits in steps of 16
constexpr double most_change = 8;            // of a period at a time, while rates jump

}  // namespace

PerfSamples::PerfSamples(KernelCalls& kernel, Pmu pmu, const Options& options)
    : kernel_(kernel), pmu_(std::move(pmu)), options_(options), longer_(options.calm) {
  for (std::size_t i = 0; i < pmu_.events.size(); ++i) {
    const Pmu::Event& event = pmu_.events[i];
    periods_.push_back(event.first_period);
    if (event.loads) kinds_[index(AccessKind::load)].event = i;
    if (event.stores) kinds_[index(AccessKind::store)].event = i;
  }
  for (Kind& kind : kinds_)
    if (kind.event) kind.wanted = static_cast<double>(event(kind).first_period);
}

void PerfSamples::start(std::span<const int> pids) {
  std::vector<std::unique_ptr<SampleRing>> rings;
  if (const std::string refused = open_rings(kernel_, pmu_, rings); !refused.empty())
    throw NotAllowed(pmu_.name + ": " + refused);
  periods_before_.clear();
  rings_ = std::move(rings);
  pids_.assign(pids.begin(), pids.end());
  find_threads();
  for (std::size_t i = 0; i < periods_.size(); ++i) periods_[i] = pmu_.events[i].first_period;
  set_periods();
}

int PerfSamples::follow(std::span<const int> pids) {
  pids_.assign(pids.begin(), pids.end());
  find_threads();
  // Nobody was there when the session began.
  if (rings_.empty() && !pids.empty()) start(pids);
  return 0;
}

void PerfSamples::spare(unsigned times) {
  spared_ = times;
  set_periods();
}

SamplingRequest PerfSamples::grant(const SamplingRequest& request) {
  longer_.ask(request);
  SamplingRequest granted;
  granted.loads = grant(kinds_[index(AccessKind::load)], request.loads);
  granted.stores = grant(kinds_[index(AccessKind::store)], request.stores);
  set_periods();
  return granted;
}

SamplingRequest::Event PerfSamples::grant(Kind& kind, const SamplingRequest::Event& asked) {
  kind.asked = {};
  kind.owed = 0;
  if (!kind.event || asked.mode == Mode::off || !(asked.value > 0)) return {};
  if (asked.mode == Mode::period) {
    const Pmu::Event& of = event(kind);
    kind.wanted = std::clamp(asked.value / of.stands_for, static_cast<double>(of.least_period),
                             longest_period);
    kind.asked = {Mode::period, kind.wanted * of.stands_for * stretched()};
  } else {
    kind.asked = {Mode::frequency, std::min(asked.value, options_.most_hertz)};
  }
  return kind.asked;
}

std::uint64_t PerfSamples::period(AccessKind kind) const {
  const Kind& of = kinds_[index(kind)];
  return of.event ? periods_[*of.event] : 0;
}

/// An event that counts for both kinds goes by the one that wants more; of the other, samples are
/// left out.
void PerfSamples::set_periods() {
  for (std::size_t i = 0; i < periods_.size(); ++i) {
    const Pmu::Event& event = pmu_.events[i];
    double wanted = longest_period;
    for (const Kind& kind : kinds_)
      if (kind.event == i) wanted = std::min(wanted, kind.wanted);
    wanted =
        std::clamp(wanted * stretched(), static_cast<double>(event.least_period), longest_period);
    const std::uint64_t period = static_cast<std::uint64_t>(wanted) / event.step * event.step;
    if (period == periods_[i]) continue;
    const std::uint64_t before = std::exchange(periods_[i], period);
    for (const auto& ring : rings_) {
      if (const int error = ring->set_period(i, period); error != 0) period_error_ = error;
      if (event.opened.area_bytes == 0) continue;
      std::deque<Period>& earlier = periods_before_[ring.get()];
      const std::uint64_t end = ring->area_written();
      if (earlier.empty() || earlier.back().end < end) earlier.push_back({end, before});
    }
  }
}

/// Samples are looked up together: a page is seldom in the cache, and while memory is waited for
/// others can be asked for.
inline void PerfSamples::count(HardwareSample::Fate fate, const LiveMemory& memory,
                               std::vector<Sample>& out) {
  using Fate = HardwareSample::Fate;
  if (fate != Fate::access) {
    ++(fate == Fate::cached ? cached_ : fate == Fate::other ? other_ : outside_);
    return;
  }
  const HardwareSample& found = waiting_[waiting_count_];
  memory.blocks().prefetch(found.pid, found.address);
  if (++waiting_count_ == waiting_.size()) look_up(memory, out);
}

void PerfSamples::sample(const perf_event_header& header, std::span<const std::byte> body,
                         const LiveMemory& memory, std::vector<Sample>& out) {
  using Fate = HardwareSample::Fate;
  HardwareSample& found = waiting_[waiting_count_];
  const Fate fate = pmu_.layout == SampleLayout::ibs     ? decode_ibs(header, body, found)
                    : pmu_.layout == SampleLayout::fault ? decode_fault(body, found)
                                                         : decode_data_source(header, body, found);
  count(fate, memory, out);
}

void PerfSamples::read_area(std::span<const std::byte> body, SampleRing* ring,
                            const LiveMemory& memory, std::vector<Sample>& out) {
  const auto found = perf::get<perf::AreaRecord>(body);
  constexpr std::uint64_t losses =
      PERF_AUX_FLAG_TRUNCATED | PERF_AUX_FLAG_PARTIAL | PERF_AUX_FLAG_COLLISION;
  bool whole = (found.flags & losses) == 0;
  if (ring == nullptr || !ring->read_area(found.begin, found.bytes, area_)) {
    whole = false;
  } else {
    const std::uint64_t period = period_at(ring, found.begin);
    const bool ends = perf::each_spe_record(area_, found.begin, [&](const perf::SpeRecord& record) {
      HardwareSample& sampled = waiting_[waiting_count_];
      const HardwareSample::Fate fate = decode_spe(record, pmu_.knows_sources, period, sampled);
      if (fate == HardwareSample::Fate::access) {
        const auto process = processes_.find(sampled.pid);
        if (process == processes_.end()) {
          ++foreign_;
          return;
        }
        sampled.pid = process->second;
      }
      count(fate, memory, out);
    });
    whole = whole && ends;
  }
  if (!whole) ++lost_;
  if (ring == nullptr) return;
  ring->take_area(found.begin + found.bytes);
  // The kernel has stopped the event, and does not start it again by itself.
  if ((found.flags & PERF_AUX_FLAG_TRUNCATED) != 0) resume_error_ = ring->resume();
}

std::uint64_t PerfSamples::period_at(SampleRing* ring, std::uint64_t begin) {
  std::deque<Period>& before = periods_before_[ring];
  while (!before.empty() && begin >= before.front().end) before.pop_front();
  return (before.empty() ? periods_.front() : before.front().period) + pmu_.events.front().jitter;
}

/// A processor's samples have the number of the thread alone. One that is not known yet counts as
/// another process's.
void PerfSamples::find_threads() {
  if (pmu_.layout != SampleLayout::spe) return;
  processes_.clear();
  std::vector<std::string> names;
  for (const int pid : pids_) {
    // It may have ended meanwhile.
    if (kernel_.folders("/proc/" + std::to_string(pid) + "/task", names) != 0) continue;
    for (const std::string& name : names) {
      int thread = 0;
      const char* const end = name.data() + name.size();
      if (std::from_chars(name.data(), end, thread).ptr == end) processes_[thread] = pid;
    }
  }
}

void PerfSamples::look_up(const LiveMemory& memory, std::vector<Sample>& out) {
  std::array<Sample, waiting_most> known;
  std::array<bool, waiting_most> is_known;
  const std::size_t count = std::exchange(waiting_count_, 0);
  for (std::size_t i = 0; i < count; ++i) {
    const HardwareSample& found = waiting_[i];
    is_known[i] = memory.sample(found.pid, found.address, found.kind, known[i]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const HardwareSample& found = waiting_[i];
    if (is_known[i] && takes_balancing()) {
      // It tells of a page as the processor maps it: of all parts of a huge page alike.
      const PageRange unit = memory.unit(known[i].page);
      for (known[i].page = unit.first; known[i].page < unit.end(); ++known[i].page.value)
        hand_on(found, known[i], out);
    } else if (is_known[i]) {
      hand_on(found, known[i], out);
    } else {
      ++(std::ranges::find(pids_, found.pid) == pids_.end() ? foreign_ : unknown_);
    }
  }
}

void PerfSamples::hand_on(const HardwareSample& found, const Sample& known,
                          std::vector<Sample>& out) {
  Kind& kind = kinds_[index(found.kind)];
  const auto events = static_cast<double>(found.period);
  kind.events += events;
  events_[index(found.kind)][index(known.tier)] += events * event(kind).stands_for;
  if (kind.asked.mode == Mode::off) return;
  // Longer periods than are wanted cannot be helped; of shorter ones a part is handed on.
  kind.owed += std::min(1.0, events / (kind.wanted * stretched()));
  if (kind.owed < 1) return;
  kind.owed -= 1;
  ++taken_;
  out.push_back(known);
}

std::size_t PerfSamples::feed(std::span<const std::byte> bytes, const LiveMemory& memory,
                              std::vector<Sample>& out, SampleRing* ring) {
  const std::uint64_t before = lost_ + throttled_;
  const std::size_t used = perf::each_record(
      bytes, [&](const perf_event_header& header, std::span<const std::byte> body) {
        switch (header.type) {
          case PERF_RECORD_SAMPLE:
            sample(header, body, memory, out);
            break;
          case PERF_RECORD_LOST:  // the ring was full: behind the event's number
            lost_ += perf::get<std::uint64_t>(body, 8);
            break;
          case PERF_RECORD_LOST_SAMPLES:  // the processor's own buffer was
            lost_ += perf::get<std::uint64_t>(body);
            break;
          case PERF_RECORD_AUX:
            read_area(body, ring, memory, out);
            break;
          case PERF_RECORD_THROTTLE:
            ++throttled_;
            break;
          default:
            break;
        }
      });
  look_up(memory, out);
  if (lost_ + throttled_ != before) longer_.disturb();
  return used;
}

void PerfSamples::collect(const LiveMemory& memory, Nanos now, std::vector<Sample>& out) {
  if (now - threads_found_ >= options_.threads) {
    find_threads();
    threads_found_ = now;
  }
  for (const auto& ring : rings_) {
    ring->read(bytes_);
    ring->take(feed(bytes_, memory, out, ring.get()));
  }
  if (now - window_ >= options_.window) steer(now);
}

void PerfSamples::steer(Nanos now) {
  const double time = seconds(now - std::exchange(window_, now));
  longer_.update(now);
  for (Kind& kind : kinds_) {
    const double rate = std::exchange(kind.events, 0.0) / time;
    if (!kind.event || kind.asked.mode == Mode::period) continue;
    const double hertz = kind.asked.mode == Mode::off ? options_.watched_hertz : kind.asked.value;
    // Nothing was seen: a shorter period might see something.
    const double wanted = rate > 0 ? rate / hertz : kind.wanted / 2;
    kind.wanted =
        std::clamp(std::clamp(wanted, kind.wanted / most_change, kind.wanted * most_change),
                   static_cast<double>(event(kind).least_period), longest_period);
  }
  set_periods();
}

void PerfSamples::count(Counters& counters) const {
  counters.samples_taken += static_cast<double>(taken_);
  counters.samples_lost += static_cast<double>(lost_);
  for (std::size_t t = 0; t < tier_count; ++t) {
    counters.loads[t] += events_[index(AccessKind::load)][t];
    counters.stores[t] += events_[index(AccessKind::store)][t];
  }
}

std::string PerfSamples::text() const {
  std::string out = std::to_string(taken_) + " " + pmu_.told;
  for (const auto& [count, what] :
       {std::pair{cached_, "served by caches"}, std::pair{foreign_, "of other processes"},
        std::pair{outside_, "of the kernel"}, std::pair{other_, "without an address"},
        std::pair{unknown_, "of pages that are not known"}})
    if (count > 0) out += ", " + std::to_string(count) + " " + what;
  if (lost_ > 0) out += "; " + std::to_string(lost_) + " lost on their way";
  if (throttled_ > 0) out += "; throttled " + std::to_string(throttled_) + " times by the kernel";
  if (longer() > 1) out += "; periods are " + std::to_string(longer()) + " times as long for that";
  if (period_error_ != 0)
    out += std::string{"; not every period could be set ("} + std::strerror(period_error_) + ")";
  if (resume_error_ != 0)
    out += std::string{"; a processor that was stopped did not go on ("} +
           std::strerror(resume_error_) + ")";
  return out;
}

}  // namespace tt::live
