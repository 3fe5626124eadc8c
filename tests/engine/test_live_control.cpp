// SPDX-License-Identifier: MIT

// What a running engine is asked and told, on a socket of its own, and what it shows.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "fake_kernel.hpp"
#include "fake_memory.hpp"
#include "live/control.hpp"
#include "live/meter.hpp"
#include "live/notify.hpp"
#include "live/session.hpp"
#include "live/status.hpp"
#include "live/target.hpp"
#include "perf_bytes.hpp"

using namespace tt;
using live::Answer;
using live::Control;
using test::FakeKernel;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tierd-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path path;
};

class Client {
 public:
  explicit Client(const fs::path& path) : file_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    CHECK_EQ(::connect(file_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  void send(const std::string& text) const {
    CHECK_EQ(::send(file_.get(), text.data(), text.size(), MSG_NOSIGNAL),
             static_cast<ssize_t>(text.size()));
  }
  /// What has come; empty also when it was closed.
  [[nodiscard]] std::string received() const {
    std::string out(1 << 16, '\0');
    const ssize_t got = ::recv(file_.get(), out.data(), out.size(), MSG_DONTWAIT);
    out.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return out;
  }
  [[nodiscard]] bool closed() const {
    char byte = 0;
    return ::recv(file_.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }

 private:
  perf::File file_;
};

Answer echo(std::string_view method, std::string_view path) {
  return {.body = std::string{method} + " " + std::string{path}};
}

}  // namespace

TEST("live control: it answers HTTP, in parts and many at a time, to its own user alone") {
  const Folder folder;
  const fs::path path = folder.path / "1.socket";
  {
    Control control{path};
    struct stat found{};
    CHECK_EQ(::stat(path.c_str(), &found), 0);
    CHECK_EQ(found.st_mode & 0777, 0700u);
    const Client slow{path}, quick{path};
    slow.send("GET /sta");
    quick.send("POST /stop HTTP/1.1\r\nHost: a\r\n\r\n");
    control.serve(echo);
    CHECK(quick.received().ends_with("\r\n\r\nPOST /stop"));
    CHECK(quick.closed());
    CHECK(slow.received().empty() && !slow.closed());
    slow.send("tus HTTP/1.0\n\n");
    control.serve(echo);
    CHECK(slow.received().starts_with("HTTP/1.0 200 OK\r\n"));
    control.serve(echo);
  }
  CHECK(!fs::exists(path));
}

TEST("live control: nonsense gets an error, and many connections close the oldest") {
  const Folder folder;
  const fs::path path = folder.path / "1.socket";
  Control control{path};
  for (const std::string& text : std::vector<std::string>{
           "\n\n", "GET\r\n\r\n", "GET /\r\n\r\n", "GET / FTP/1.0\n\n", std::string(5000, 'a')}) {
    const Client client{path};
    client.send(text);
    control.serve(echo);
    CHECK(client.received().starts_with("HTTP/1.0 400 Bad Request\r\n"));
  }
  Rng rng{1};
  for (int i = 0; i < 200; ++i) {
    const Client client{path};
    std::string text;
    for (std::uint64_t left = rng.below(300); left > 0; --left)
      text += "GET /HTP1.0\r\n \n\0"[rng.below(16)];
    client.send(text);
    control.serve(echo);
    (void)client.received();
  }
  std::vector<std::unique_ptr<Client>> many;
  for (std::size_t i = 0; i <= Control::most_connections; ++i) {
    many.push_back(std::make_unique<Client>(path));
    control.serve(echo);
  }
  CHECK(many.front()->closed());
  many.back()->send("GET / HTTP/1.0\n\n");
  control.serve(echo);
  CHECK(many.back()->received().ends_with("GET /"));
}

TEST("live control: what asks is told, or why nobody answers") {
  const Folder folder;
  const fs::path path = folder.path / "1.socket";
  CHECK_THROWS(live::ask(path, "GET", "/"), "No such file");
  CHECK_THROWS(Control{folder.path / std::string(200, 'a')}, "too long");
  {
    Control control{path};
    auto asked = std::async(std::launch::async, [&] { return live::ask(path, "GET", "/status"); });
    while (asked.wait_for(from_millis(0)) != std::future_status::ready)
      control.serve([](auto, auto) { return Answer{.code = 404, .body = "no\n"}; });
    const Answer answer = asked.get();
    CHECK_EQ(answer.code, 404);
    CHECK_EQ(answer.body, std::string{"no\n"});
  }
  const Control first{path};
  const Control again{path};  // one that was left by a dead process is replaced
}

TEST("live status: figures as text, JSON and for Prometheus") {
  const live::Status status{"hemem",
                            "process 7 \"a\"\n",
                            "DAMON",
                            {{"used_bytes", "used", 4096, "tier=\"fast\""},
                             {"used_bytes", "used", 0.5, "tier=\"slow\""},
                             {"moves_total", "moves", INFINITY}}};
  CHECK_EQ(live::text_of(status), std::string{"hemem on process 7 \"a\"\n\nDAMON\n"
                                              "used_bytes{tier=\"fast\"} 4096\n"
                                              "used_bytes{tier=\"slow\"} 0.5\n"
                                              "moves_total inf\n"});
  CHECK_EQ(
      live::json_of(status),
      std::string{R"({"policy": "hemem", "target": "process 7 \"a\" ", )"
                  R"("source": "DAMON", "figures": {)"
                  "\n  \"used_bytes{tier=\\\"fast\\\"}\": 4096"
                  ",\n  \"used_bytes{tier=\\\"slow\\\"}\": 0.5,\n  \"moves_total\": null}}\n"});
  CHECK_EQ(live::prometheus_of(status),
           std::string{"# TYPE tierd_info gauge\n"
                       R"(tierd_info{policy="hemem",target="process 7 \"a\" "} 1)"
                       "\n# HELP tierd_used_bytes used\n# TYPE tierd_used_bytes gauge\n"
                       "tierd_used_bytes{tier=\"fast\"} 4096\ntierd_used_bytes{tier=\"slow\"} 0.5\n"
                       "# HELP tierd_moves_total moves\n# TYPE tierd_moves_total counter\n"
                       "tierd_moves_total +Inf\n"});
}

TEST("live session: status and series tell what was seen and moved, second by second") {
  constexpr std::uint64_t heap = 1ULL << 40;
  FakeKernel kernel{{8192, 8192}};
  kernel.have_damon();
  kernel.map(7, heap, heap + 100 * FakeKernel::page);
  for (std::uint64_t i = 0; i < 100; ++i) kernel.touch(7, heap + i * FakeKernel::page, 1);
  kernel.files["/proc/4711/stat"] = "4711 (kdamond.0) S 2" + [] {
    std::string fields;
    for (int field = 5; field < 14; ++field) fields += " 0";
    return fields + " 100 200 0 0 0 0 0 0 5 0";
  }();
  kernel.files["/proc/self/statm"] = "100 20 3\n";
  live::Session::Options options;
  options.policy = "hemem";
  options.nodes.of = {std::vector{0}, std::vector{1}};
  options.fast_limit = 50;
  std::ostringstream series;
  live::Session session{kernel, options, {}, &series};
  session.start(live::Target::processes({7}));
  for (int turn = 0; turn < 25; ++turn) {
    (void)session.turn();
    kernel.clock += from_millis(100);
    kernel.worked += from_millis(10);
  }
  const auto figure = [&](const std::string& name, const std::string& label = {}) {
    for (const live::Figure& each : session.status().figures)
      if (each.name == name && each.label == label) return each.value;
    CHECK(!"such a figure");
    return 0.0;
  };
  CHECK_EQ(session.status().policy, std::string{"hemem"});
  CHECK_EQ(session.status().target, std::string{"process 7 and descendants"});
  CHECK_EQ(figure("used_bytes", "tier=\"slow\""), 409600.0);
  CHECK_EQ(figure("capacity_bytes", "tier=\"fast\""), 204800.0);
  CHECK_EQ(figure("processes"), 1.0);
  CHECK_EQ(figure("held_bytes_total"), 0.0);
  CHECK_NEAR(figure("processor_share"), 0.1, 1e-9);
  CHECK_NEAR(figure("monitor_seconds_total"), 3, 1e-9);
  CHECK_NEAR(figure("resident_bytes"), 20.0 * static_cast<double>(::sysconf(_SC_PAGESIZE)), 1);
  session.limit_fast(20);
  CHECK_EQ(figure("capacity_bytes", "tier=\"fast\""), 81920.0);
  std::istringstream rows{series.str()};
  std::string line;
  std::vector<std::string> lines;
  while (std::getline(rows, line)) lines.push_back(line);
  CHECK_EQ(lines.size(), 3u);
  CHECK(lines[0].find("fast_hit_ratio") != std::string::npos);
  CHECK(lines[0].find("policy.") != std::string::npos);
  CHECK_EQ(std::ranges::count(lines[0], ','), std::ranges::count(lines[2], ','));
}

TEST("live session: processes share the fast tier by how hot their pages are") {
  constexpr std::uint64_t heap = 1ULL << 40;
  FakeKernel kernel{{8192, 8192}};
  kernel.have_damon();
  live::Session::Options options;
  options.policy = "hemem";
  options.nodes.of = {std::vector{0}, std::vector{1}};
  options.fast_limit = 300;
  for (const int pid : {7, 8}) {
    kernel.map(pid, heap, heap + 1024 * FakeKernel::page);
    for (std::uint64_t i = 0; i < 1024; ++i) kernel.touch(pid, heap + i * FakeKernel::page, 1);
  }
  kernel.processes[8].parent = 7;
  live::Session session{kernel, options, {}};
  session.start(live::Target::processes({7}));
  for (int turn = 0; turn < 800; ++turn) {
    if (turn % 10 == 0) {
      test::region(kernel.traced->bytes, static_cast<std::uint64_t>(turn), 0, 1,
                   {heap, heap + 1024 * FakeKernel::page, 0, 1});
      test::region(kernel.traced->bytes, static_cast<std::uint64_t>(turn), 1, 1,
                   {heap, heap + 200 * FakeKernel::page, 20, 1});
    }
    (void)session.turn();
    kernel.clock += from_millis(10);
  }
  const auto fast = [&](int pid) {
    std::uint64_t count = 0;
    for (const auto& [address, page] : kernel.processes.at(pid).pages) count += page.node == 0;
    return count;
  };
  CHECK(fast(8) >= 190);
  CHECK(kernel.most_on_node_0 <= 300);
  CHECK_EQ(session.status().target, std::string{"process 7 and descendants"});
}

TEST("live notify: a service manager is told, and a program that is run inherits nothing of it") {
  const Folder folder;
  const std::string path = (folder.path / "notify").string();
  const perf::File manager{::socket(AF_UNIX, SOCK_DGRAM, 0)};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  CHECK_EQ(::bind(manager.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const auto told = [&] {
    char text[100];
    const ssize_t got = ::recv(manager.get(), text, sizeof text, MSG_DONTWAIT);
    return std::string{text, got > 0 ? static_cast<std::size_t>(got) : 0};
  };
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  ::setenv("WATCHDOG_USEC", "2000000", 1);
  live::Notify notify;
  CHECK(std::getenv("NOTIFY_SOCKET") == nullptr && std::getenv("WATCHDOG_USEC") == nullptr);
  notify.tell("READY=1");
  CHECK_EQ(told(), std::string{"READY=1"});
  CHECK_EQ(notify.patience().count(), from_seconds(1).count());
  notify.alive(from_seconds(5));
  CHECK_EQ(told(), std::string{"WATCHDOG=1"});
  notify.alive(from_millis(5500));
  CHECK_EQ(told(), std::string{});
  notify.alive(from_millis(6000));
  CHECK_EQ(told(), std::string{"WATCHDOG=1"});
  live::Notify nobody;
  nobody.tell("READY=1");
  nobody.alive(from_seconds(1));
  CHECK_EQ(told(), std::string{});
}
