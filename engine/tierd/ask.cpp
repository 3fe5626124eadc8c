// SPDX-License-Identifier: MIT

#include "tierd/ask.hpp"

#include <algorithm>
#include <iostream>
#include <stdexcept>
#include <system_error>

#include "live/control.hpp"
#include "live/words.hpp"

namespace tt::live {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view ending = ".socket";

void say(const std::string& text) { std::cerr << "tierd: " << text << '\n'; }

/// Those that answer, with their answers; a dead one's socket is removed.
std::vector<std::pair<int, Answer>> ask_all(const fs::path& folder, int pid,
                                            const std::string& path) {
  std::vector<std::pair<int, Answer>> out;
  for (const int each : engines(folder)) {
    if (pid != 0 && each != pid) continue;
    const fs::path file = socket_of(folder, each);
    try {
      out.emplace_back(each, ask(file, "GET", path));
    } catch (const std::system_error& error) {
      std::error_code ignored;  // somebody else has removed it
      if (error.code() == std::errc::connection_refused) {
        fs::remove(file, ignored);
      } else {
        say(error.what());
      }
    }
  }
  return out;
}

}  // namespace

fs::path socket_of(const fs::path& folder, int pid) {
  return folder / (std::to_string(pid) + std::string{ending});
}

std::vector<int> engines(const fs::path& folder) {
  std::vector<int> out;
  if (folder.empty()) return out;
  for (const auto& entry : fs::directory_iterator{folder}) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(ending)) continue;
    if (const auto pid = number<int>(std::string_view{name}.substr(0, name.size() - ending.size())))
      out.push_back(*pid);
  }
  std::ranges::sort(out);
  return out;
}

int print_status(const fs::path& folder, int pid, std::string_view form) {
  const std::string path = form == "prometheus" ? "/metrics"
                           : form == "json"     ? "/status.json"
                                                : "/status";
  const auto answers = ask_all(folder, pid, path);
  if (form == "json") std::cout << "[";
  const char* between = "";
  for (const auto& [engine, answer] : answers) {
    if (form == "json") {
      std::cout << between << "{\"pid\": " << engine << ", \"status\": " << answer.body << "}";
      between = ",\n ";
    } else if (form == "prometheus") {
      std::cout << answer.body;
    } else {
      std::cout << "tierd " << engine << ": " << answer.body;
    }
  }
  if (form == "json") std::cout << "]\n";
  if (!answers.empty()) return 0;
  say(pid == 0 ? "none runs" : std::to_string(pid) + " is no tierd that runs");
  return 1;
}

int tell(const fs::path& folder, int pid, const std::string& path) {
  const auto found = engines(folder);
  if (pid == 0) {
    // Whether they live is seen by asking them.
    const auto alive = ask_all(folder, 0, "/status");
    if (alive.empty()) {
      say("none runs");
      return 1;
    }
    if (alive.size() > 1) {
      std::string all;
      for (const auto& [engine, answer] : alive) all.append(" ").append(std::to_string(engine));
      say("several run, expected --of with one of" + all);
      return 2;
    }
    pid = alive.front().first;
  } else if (std::ranges::find(found, pid) == found.end()) {
    say(std::to_string(pid) + " is no tierd that runs");
    return 1;
  }
  const Answer answer = ask(socket_of(folder, pid), "POST", path);
  if (answer.code != 200) {
    say("error: " + answer.body.substr(0, answer.body.find('\n')));
    return 1;
  }
  std::cout << "tierd " << pid << ": " << answer.body;
  return 0;
}

}  // namespace tt::live
