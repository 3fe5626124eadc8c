// SPDX-License-Identifier: MIT

#include "live/notify.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "live/words.hpp"
#include "perf/ring.hpp"

namespace tt::live {

Notify::Notify() {
  if (const char* const place = std::getenv("NOTIFY_SOCKET")) socket_ = place;
  const char* const interval = std::getenv("WATCHDOG_USEC");
  const char* const whose = std::getenv("WATCHDOG_PID");
  const auto microseconds = number<std::int64_t>(interval == nullptr ? "" : interval);
  const bool ours = whose == nullptr || number<int>(whose) == ::getpid();
  // Twice as often as it would be missed. An interval of centuries is none.
  if (ours && microseconds && *microseconds > 0 && *microseconds < std::int64_t{1} << 50)
    every_ = Nanos{*microseconds * 500};
  for (const char* const name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})
    ::unsetenv(name);
}

void Notify::tell(const std::string& text) const {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_.empty() || socket_.size() >= sizeof address.sun_path) return;
  std::ranges::copy(socket_, address.sun_path);
  if (socket_.front() == '@') address.sun_path[0] = '\0';  // in the abstract name space
  const perf::File file{::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!file.is_open()) return;
  // A manager that does not listen any more misses nothing.
  (void)::sendto(file.get(), text.data(), text.size(), MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&address),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size()));
}

void Notify::alive(Nanos now) {
  if (every_ == Nanos::max() || now < next_) return;
  next_ = now + every_;
  tell("WATCHDOG=1");
}

}  // namespace tt::live
