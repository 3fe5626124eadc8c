// SPDX-License-Identifier: MIT

#include "record/perf_recorder.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "perf/ring.hpp"

namespace tt::record {
namespace {

using perf::File;
using perf::Ring;

perf_event_attr attributes(const PerfEvent& event) {
  perf_event_attr attr{};
  attr.type = event.type;
  attr.config = event.config;
  attr.config1 = event.config1;
  attr.config2 = event.config2;
  attr.sample_period = event.period;
  attr.sample_type = perf_sample_type;
  attr.disabled = 1;
  attr.enable_on_exec = 1;
  attr.inherit = 1;
  attr.exclude_kernel = 1;
  attr.exclude_hv = 1;
  attr.precise_ip = event.precise & 3;
  attr.sample_id_all = 1;
  attr.use_clockid = 1;
  attr.clockid = CLOCK_MONOTONIC;
  attr.watermark = 1;
  attr.wakeup_watermark = Ring::default_bytes / 4;
  return attr;
}

std::uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

struct PerfRecorder::Impl {
  PerfDecoder decoder;
  std::vector<File> files;
  std::vector<Ring> rings;
  std::vector<pollfd> polled;
  File wake{::eventfd(0, EFD_CLOEXEC)};
  std::ofstream raw;
  std::thread thread;
  std::exception_ptr failed;

  Impl(std::filesystem::path folder, std::string sampler, std::uint64_t begin_ns)
      : decoder(std::move(folder), std::move(sampler), begin_ns) {}

  /// All events of a processor share a ring: that of the first, which also reports mappings.
  void open_processor(int pid, int cpu, const std::vector<PerfEvent>& events) {
    int first = -1;
    for (const PerfEvent& event : events) {
      perf_event_attr attr = attributes(event);
      if (first < 0)
        attr.mmap = attr.mmap_data = attr.mmap2 = attr.comm = attr.comm_exec = attr.task = 1;
      if (const int error = perf::open_led_event(attr, event.leader, pid, cpu, files); error != 0)
        throw std::system_error(
            error, std::generic_category(),
            "perf event " + event.name + " on processor " + std::to_string(cpu));
      const int file = files.back().get();
      std::uint64_t id = 0;
      if (::ioctl(file, PERF_EVENT_IOC_ID, &id) != 0)
        throw std::system_error(errno, std::generic_category(), "perf event " + event.name);
      decoder.add(id, event);
      if (first < 0) {
        rings.emplace_back(file);
        polled.push_back({file, POLLIN, 0});
        first = file;
      } else if (::ioctl(file, PERF_EVENT_IOC_SET_OUTPUT, first) != 0) {
        throw std::system_error(errno, std::generic_category(), "perf event " + event.name);
      }
    }
  }

  void read_all() {
    std::vector<std::byte> room;
    for (Ring& ring : rings) {
      ring.read(room);
      const std::size_t used = decoder.feed(room);
      if (raw.is_open())
        raw.write(reinterpret_cast<const char*>(room.data()), static_cast<std::streamsize>(used));
      ring.take(used);
    }
  }
  void run() {
    try {
      std::uint64_t safe = 0;  // every ring has been read beyond this time
      polled.push_back({wake.get(), POLLIN, 0});
      while (true) {
        ::poll(polled.data(), polled.size(), 20);
        const std::uint64_t now = monotonic_ns();
        read_all();
        decoder.flush(safe);
        safe = now;
        if ((polled.back().revents & POLLIN) != 0) return;
        // A ring whose task is gone hangs up, and would wake us again and again.
        for (std::size_t i = 0; i + 1 < polled.size(); ++i)
          if ((polled[i].revents & (POLLHUP | POLLERR)) != 0) polled[i].fd = -1;
      }
    } catch (...) {
      failed = std::current_exception();
    }
  }
  void end() {
    if (!thread.joinable()) return;
    const std::uint64_t one = 1;
    (void)!::write(wake.get(), &one, sizeof one);
    thread.join();
  }
};

PerfRecorder::PerfRecorder(int pid, const std::vector<PerfEvent>& events,
                           std::filesystem::path folder, std::string sampler,
                           std::uint64_t begin_ns, const std::filesystem::path& raw)
    : impl_(std::make_unique<Impl>(std::move(folder), std::move(sampler), begin_ns)) {
  if (events.empty()) throw std::invalid_argument("no perf events to record");
  if (!raw.empty()) impl_->raw.open(raw, std::ios::binary);
  const long processors = ::sysconf(_SC_NPROCESSORS_CONF);
  for (int cpu = 0; cpu < processors; ++cpu) {
    try {
      impl_->open_processor(pid, cpu, events);
    } catch (const std::system_error& error) {
      if (error.code().value() != ENODEV) throw;  // a processor that is switched off
    }
  }
  impl_->thread = std::thread([this] { impl_->run(); });
}
PerfRecorder::~PerfRecorder() {
  if (impl_) impl_->end();
}

PerfCounts PerfRecorder::stop() {
  impl_->end();
  if (impl_->failed) std::rethrow_exception(impl_->failed);
  impl_->read_all();
  return impl_->decoder.finish();
}

}  // namespace tt::record
