// SPDX-License-Identifier: MIT

// Control: a Unix socket on which a running engine is asked and told. It speaks HTTP/1.0, so that
// curl --unix-socket reads it, too. Only its own user may connect.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <list>
#include <string>
#include <string_view>

#include "perf/ring.hpp"

namespace tt::live {

struct Answer {
  int code = 200;  // of HTTP
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

class Control {
 public:
  /// Answers a method and a path with its query: "GET", "/status".
  using Handler = std::function<Answer(std::string_view method, std::string_view path)>;
  static constexpr std::size_t most_connections = 16, most_bytes = 4096;  // of a request

  /// std::system_error naming the file when it cannot be had. One that is there is replaced.
  explicit Control(std::filesystem::path file);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  /// Readable when serve() has something to do.
  [[nodiscard]] int file() const { return waits_.get(); }
  /// Takes and answers what has come, and never waits. A request that is too long or no HTTP gets
  /// an error; of too many connections the oldest is closed.
  void serve(const Handler& handler);

 private:
  struct Connection {
    perf::File file;
    std::string in, out;
  };
  void accept_all();
  /// Whether it stays open.
  bool go_on(Connection& connection, const Handler& handler);
  void wait_for(int file, bool to_write);

  const std::filesystem::path path_;
  perf::File waits_, listens_;
  std::list<Connection> connections_;
};

/// Asks an engine; for at most some seconds. Throws std::system_error naming the file if nobody
/// answers, std::runtime_error for an answer that is no HTTP.
[[nodiscard]] Answer ask(const std::filesystem::path& file, std::string_view method,
                         std::string_view path);

}  // namespace tt::live
