// SPDX-License-Identifier: MIT

#include "live/control.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace tt::live {
namespace {

namespace fs = std::filesystem;

std::system_error socket_error(const fs::path& path, int error = errno) {
  return {error, std::generic_category(), path.string()};
}

sockaddr_un address_of(const fs::path& path) {
  sockaddr_un out{};
  out.sun_family = AF_UNIX;
  const std::string& text = path.native();
  if (text.size() >= sizeof out.sun_path) throw socket_error(path, ENAMETOOLONG);
  std::ranges::copy(text, out.sun_path);
  return out;
}

perf::File unix_socket(const fs::path& path, int flags) {
  perf::File out{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0)};
  if (!out.is_open()) throw socket_error(path);
  return out;
}

std::string text_of(const Answer& answer) {
  const char* const reason = answer.code == 200   ? "OK"
                             : answer.code == 400 ? "Bad Request"
                             : answer.code == 404 ? "Not Found"
                                                  : "Error";
  return "HTTP/1.0 " + std::to_string(answer.code) + " " + reason +
         "\r\nContent-Type: " + answer.type +
         "\r\nContent-Length: " + std::to_string(answer.body.size()) + "\r\n\r\n" + answer.body;
}

/// The answer to a request of which the head is there.
std::string answered(std::string_view request, const Control::Handler& handler) {
  const std::string_view line = request.substr(0, request.find_first_of("\r\n"));
  const std::size_t first = line.find(' '), second = line.find(' ', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos ||
      !line.substr(second + 1).starts_with("HTTP/1."))
    return text_of({.code = 400, .body = "expected METHOD PATH HTTP/1.0\n"});
  return text_of(handler(line.substr(0, first), line.substr(first + 1, second - first - 1)));
}

}  // namespace

Control::Control(fs::path file)
    : path_(std::move(file)),
      waits_(::epoll_create1(EPOLL_CLOEXEC)),
      listens_(unix_socket(path_, SOCK_NONBLOCK)) {
  if (!waits_.is_open()) throw socket_error(path_);
  const sockaddr_un address = address_of(path_);
  std::error_code ignored;  // bind() tells
  fs::remove(path_, ignored);
  const mode_t before = ::umask(S_IRWXG | S_IRWXO);
  const int bound =
      ::bind(listens_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int error = errno;
  ::umask(before);
  if (bound != 0) throw socket_error(path_, error);
  if (::listen(listens_.get(), static_cast<int>(most_connections)) != 0) throw socket_error(path_);
  wait_for(listens_.get(), false);
}

Control::~Control() {
  std::error_code ignored;  // it is ours, or has gone
  fs::remove(path_, ignored);
}

void Control::wait_for(int file, bool to_write) {
  epoll_event event{};
  event.events = to_write ? EPOLLOUT : EPOLLIN;
  if (::epoll_ctl(waits_.get(), EPOLL_CTL_ADD, file, &event) != 0 &&
      ::epoll_ctl(waits_.get(), EPOLL_CTL_MOD, file, &event) != 0)
    throw socket_error(path_);
}

void Control::accept_all() {
  while (true) {
    perf::File file{::accept4(listens_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (!file.is_open()) return;
    if (connections_.size() == most_connections) connections_.pop_front();
    wait_for(file.get(), false);
    connections_.push_back({std::move(file), {}, {}});
  }
}

bool Control::go_on(Connection& connection, const Handler& handler) {
  std::array<char, 1024> part{};
  while (connection.out.empty()) {
    const ssize_t got = ::recv(connection.file.get(), part.data(), part.size(), 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    connection.in.append(part.data(), static_cast<std::size_t>(got));
    const std::size_t crlf = connection.in.find("\r\n\r\n"), lf = connection.in.find("\n\n");
    if (std::min(crlf, lf) != std::string::npos) {
      connection.out = answered(connection.in, handler);
      wait_for(connection.file.get(), true);
    } else if (connection.in.size() > most_bytes) {
      connection.out = text_of({.code = 400, .body = "the request is too long\n"});
      wait_for(connection.file.get(), true);
    }
  }
  while (!connection.out.empty()) {
    const ssize_t sent =
        ::send(connection.file.get(), connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    connection.out.erase(0, static_cast<std::size_t>(sent));
  }
  return false;
}

void Control::serve(const Handler& handler) {
  accept_all();
  connections_.remove_if([&](Connection& each) { return !go_on(each, handler); });
}

Answer ask(const fs::path& file, std::string_view method, std::string_view path) {
  const perf::File connection = unix_socket(file, 0);
  const timeval patience{.tv_sec = 5, .tv_usec = 0};
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO})
    ::setsockopt(connection.get(), SOL_SOCKET, option, &patience, sizeof patience);
  const sockaddr_un address = address_of(file);
  if (::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw socket_error(file);
  const std::string request = std::string{method} + " " + std::string{path} + " HTTP/1.0\r\n\r\n";
  if (::send(connection.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size()))
    throw socket_error(file);
  std::string text;
  std::array<char, 4096> part{};
  while (text.size() < std::size_t{16} << 20) {
    const ssize_t got = ::recv(connection.get(), part.data(), part.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw socket_error(file);
    if (got == 0) break;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  const std::size_t head = text.find("\r\n\r\n");
  Answer out;
  const std::string_view code =
      std::string_view{text}.substr(std::min<std::size_t>(9, text.size()));
  if (!text.starts_with("HTTP/1.0 ") || head == std::string::npos ||
      std::from_chars(code.data(), code.data() + code.size(), out.code).ec != std::errc{})
    throw std::runtime_error(file.string() + ": the answer is not HTTP");
  out.body = text.substr(head + 4);
  return out;
}

}  // namespace tt::live
