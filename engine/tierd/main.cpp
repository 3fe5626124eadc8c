// SPDX-License-Identifier: MIT

// tierd: a tiering policy on running processes.
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "build_id.hpp"
#include "live/changes.hpp"
#include "live/config.hpp"
#include "live/journal.hpp"
#include "live/launcher.hpp"
#include "live/mover.hpp"
#include "live/probe.hpp"
#include "live/session.hpp"

namespace tt::live {
namespace {

const char* const usage =
    "usage: tierd COMMAND\n"
    "\n"
    "  tierd run [options] -- PROGRAM ARGUMENT...  run a program, and move its pages between "
    "tiers;\n"
    "                                              its streams, signals and exit status are its "
    "own\n"
    "  tierd attach [options] --pid PID            the same of a running process, until it or\n"
    "                                              tierd ends (SIGTERM, Ctrl-C)\n"
    "  tierd probe [--json]                        what this machine can do, and what would help\n"
    "  tierd restore                               undo what a tierd that was killed has changed "
    "in the\n"
    "                                              kernel's settings\n"
    "  tierd replay JOURNAL                        whether its policy decides the same again\n"
    "  tierd version\n"
    "\n"
    "options of run and attach:\n"
    "  --config FILE        a study's best.yaml: the policy and its knobs\n"
    "  --policy NAME        instead, or other than there (default: hybridtier)\n"
    "  --set KNOB=VALUE     of the policy; may be repeated\n"
    "  --fast-limit SIZE    of memory in the fast tier, such as 16G or 512M (default: the tier)\n"
    "  --fast NODES         memory nodes of the fast tier, such as 0 or 0-1 (default: the "
    "kernel's)\n"
    "  --slow NODES         those of the slow tier\n"
    "  --journal FILE       write down all that the policy is told, and decides\n"
    "  --quiet              say nothing but errors\n";

/// What the user has got wrong.
class Wrong : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What the policies that are linked in are known by.
std::string own_policies() {
  for (const auto& [name, id] : build_ids)
    if (std::string_view{name} == "policies") return id;
  return {};
}

/// In one write: a program that runs beside us may say something at the same time.
void say(const std::string& text) { std::cerr << "tierd: " + text + '\n'; }

/// Words of the command line, each taken once.
class Words {
 public:
  Words(int count, char** words) : words_(words, words + count) {}
  [[nodiscard]] bool empty() const { return at_ == words_.size(); }
  std::string next() { return words_[at_++]; }
  /// The value of an option: behind its `=`, or the next word.
  std::string value(const std::string& option, const std::optional<std::string>& behind) {
    if (behind) return *behind;
    if (empty()) throw Wrong(option + ": found nothing behind it, expected a value");
    return next();
  }
  std::vector<std::string> rest() {
    return {words_.begin() + static_cast<std::ptrdiff_t>(std::exchange(at_, words_.size())),
            words_.end()};
  }

 private:
  std::vector<std::string> words_;
  std::size_t at_ = 0;
};

std::uint64_t size_of(const std::string& option, const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  const std::string_view unit{at, end};
  const std::map<std::string_view, double> units{
      {"", 1}, {"K", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}, {"T", 0x1p40}};
  std::string_view letter = unit.substr(0, 1);
  const std::string_view suffix = unit.substr(letter.size());
  if (error != std::errc{} || !units.contains(letter) || !(value >= 0) ||
      (!suffix.empty() && suffix != "iB") || value * units.at(letter) >= 0x1p62)
    throw Wrong(option + ": found '" + text + "', expected a size such as 512M or 16G");
  return static_cast<std::uint64_t>(value * units.at(letter));
}

std::string file_text(const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  if (!in) throw Wrong(path + ": " + std::strerror(errno));
  std::string text(std::size_t{1} << 20, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (in.peek() != std::ifstream::traits_type::eof())
    throw Wrong(path + ": found more than 1 MiB, a configuration has less");
  return text;
}

struct Arguments {
  Session::Options session;
  std::string journal;
  bool quiet = false;
  std::optional<int> pid;
  std::vector<std::string> command;
};

Arguments arguments(Words& words, KernelCalls& kernel, bool launches) {
  Arguments out;
  std::string config_path, policy_name, fast, slow;
  std::vector<std::string> sets;
  while (!words.empty()) {
    const std::string word = words.next();
    if (word == "--" && launches) {
      out.command = words.rest();
      break;
    }
    const std::size_t equals = word.find('=');
    const std::string option = word.substr(0, equals);
    std::optional<std::string> behind;
    if (equals != std::string::npos) behind = word.substr(equals + 1);
    const auto value = [&] { return words.value(option, behind); };
    if (option == "--config") {
      config_path = value();
    } else if (option == "--policy") {
      policy_name = value();
    } else if (option == "--set") {
      sets.push_back(value());
    } else if (option == "--fast-limit") {
      out.session.fast_limit = size_of(option, value()) / base_page_bytes;
    } else if (option == "--fast") {
      fast = value();
    } else if (option == "--slow") {
      slow = value();
    } else if (option == "--journal") {
      out.journal = value();
    } else if (option == "--quiet") {
      out.quiet = true;
    } else if (option == "--pid" && !launches) {
      const std::string text = value();
      int pid = 0;
      const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
      if (error != std::errc{} || at != text.data() + text.size() || pid <= 0)
        throw Wrong("--pid: found '" + text + "', expected the number of a process");
      out.pid = pid;
    } else {
      throw Wrong("unknown option " + word + "; `tierd help` lists them");
    }
  }
  if (!config_path.empty()) {
    Config config;
    try {
      config = read_config(file_text(config_path));
    } catch (const Wrong&) {
      throw;
    } catch (const std::runtime_error& error) {
      throw Wrong(config_path + ": " + error.what());
    }
    const std::string own = own_policies();
    if (!config.engine_build.starts_with(own))
      say(config_path + ": its figures were measured with other policies (" +
          (config.engine_build.empty() ? "not said" : config.engine_build) + "; these are " + own +
          ")");
    if (config.page_bytes > base_page_bytes)
      say(config_path + ": it was tuned with pages of " + std::to_string(config.page_bytes >> 10) +
          " KiB; here pages are of 4 KiB, or as large as the kernel maps them");
    out.session.policy = config.policy;
    out.session.knobs = std::move(config.knobs);
  }
  if (!policy_name.empty() && policy_name != out.session.policy) {
    out.session.policy = policy_name;
    out.session.knobs.clear();
  }
  if (out.session.policy.empty()) out.session.policy = "hybridtier";
  const PolicyInfo& info = policy(out.session.policy);
  for (const std::string& set : sets) {
    const std::size_t equals = set.find('=');
    const std::string name = set.substr(0, equals);
    const auto knob = std::ranges::find(info.knobs, name, &KnobDecl::name);
    if (equals == std::string::npos || knob == info.knobs.end())
      throw Wrong("--set: found '" + set + "', expected KNOB=VALUE with a knob of " + info.name);
    try {
      out.session.knobs[name] = read_knob(*knob, set.substr(equals + 1));
    } catch (const std::runtime_error& error) {
      throw Wrong("--set " + name + ": " + error.what());
    }
  }
  if (fast.empty() != slow.empty()) throw Wrong("--fast and --slow are given together, or neither");
  if (fast.empty()) {
    out.session.nodes = find_nodes(kernel);
  } else {
    out.session.nodes.of[index(Tier::fast)] = node_list(fast);
    out.session.nodes.of[index(Tier::slow)] = node_list(slow);
  }
  if (const std::filesystem::path folder = changes_folder(); !folder.empty())
    out.session.changes = folder / std::to_string(::getpid());
  return out;
}

/// A session that may fail at any time: then it says why, and lets the program be.
class Watch {
 public:
  Watch(KernelCalls& kernel, const Arguments& arguments) : quiet_(arguments.quiet) {
    if (!arguments.journal.empty()) {
      journal_.open(arguments.journal, std::ios::binary);
      if (!journal_) throw Wrong(arguments.journal + ": " + std::strerror(errno));
      journal_path_ = arguments.journal;
    }
    session_.emplace(kernel, arguments.session, arguments.journal.empty() ? nullptr : &journal_);
  }

  void start(int pid) {
    attempt([&] { session_->start(pid); });
  }
  /// Milliseconds until the next turn; -1 for ever: what cannot go on lets the program be.
  int turn() {
    if (!goes_on_) return -1;
    Nanos wait{};
    attempt([&] { wait = session_->turn(); });
    if (!goes_on_) return -1;
    return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count());
  }
  [[nodiscard]] bool goes_on() const { return goes_on_; }
  void end() {
    if (goes_on_ && !quiet_) say(session_->summary());
    session_.reset();  // DAMON is given back
    if (!journal_.is_open()) return;
    journal_.close();
    if (!journal_) say(journal_path_ + ": not all of the journal could be written");
  }

 private:
  void attempt(const std::function<void()>& step) {
    try {
      step();
    } catch (const std::exception& error) {
      goes_on_ = false;
      say(std::string{"error: "} + error.what());
      session_.reset();
    }
  }

  bool quiet_;
  bool goes_on_ = true;
  std::ofstream journal_;
  std::string journal_path_;
  std::optional<Session> session_;
};

int run(Words& words, KernelCalls& kernel) {
  const Arguments given = arguments(words, kernel, true);
  if (given.command.empty()) throw Wrong("found no program; expected -- PROGRAM ARGUMENT...");
  Watch watch{kernel, given};
  const Signals signals;
  int child = 0;
  try {
    child = launch(given.command, signals);
  } catch (const std::system_error& error) {
    say(error.what());
    return error.code() == std::errc::no_such_file_or_directory ? 127 : 126;
  }
  watch.start(child);
  if (!watch.goes_on()) say("the program goes on without tiering");
  int status = 0;
  while (!ended(child, status)) {
    const int signal = signals.wait(watch.turn());
    // Ctrl-C reaches the program by itself: it is of the same group.
    if (signal != 0 && signal != SIGCHLD && signal != SIGINT && signal != SIGQUIT)
      ::kill(child, signal);
  }
  watch.end();
  end_as(status, signals);
}

int attach(Words& words, KernelCalls& kernel) {
  const Arguments given = arguments(words, kernel, false);
  if (!given.pid) throw Wrong("found no --pid");
  const perf::File target{static_cast<int>(::syscall(SYS_pidfd_open, *given.pid, 0))};
  if (!target.is_open())
    throw Wrong("process " + std::to_string(*given.pid) + ": " + std::strerror(errno));
  Watch watch{kernel, given};
  const Signals signals;
  watch.start(*given.pid);
  const auto has_ended = [&] {
    pollfd file{target.get(), POLLIN, 0};
    return ::poll(&file, 1, 0) > 0;
  };
  while (watch.goes_on() && !has_ended()) {
    const int signal = signals.wait(watch.turn(), target.get());
    if (signal != 0 && signal != SIGCHLD) break;
  }
  const int code = watch.goes_on() ? 0 : 1;
  watch.end();
  return code;
}

int probe_machine(Words& words, KernelCalls& kernel) {
  bool json = false;
  while (!words.empty()) {
    const std::string word = words.next();
    if (word != "--json") throw Wrong("unknown option " + word);
    json = true;
  }
  const std::vector<Finding> findings = probe(kernel);
  std::cout << (json ? json_of(findings) : text_of(findings));
  return std::ranges::any_of(findings,
                             [](const Finding& each) { return each.kind == Finding::Kind::lacks; })
             ? 1
             : 0;
}

/// Files of changes are named by the process that made them.
int restore(KernelCalls& kernel) {
  int code = 0, found = 0;
  const std::filesystem::path folder = changes_folder();
  if (folder.empty()) throw Wrong("found neither /run/tierd nor XDG_RUNTIME_DIR");
  for (const auto& entry : std::filesystem::directory_iterator{folder}) {
    const std::string name = entry.path().filename().string();
    int pid = 0;
    const auto [at, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc{}) continue;
    if (::kill(pid, 0) == 0 || errno == EPERM) {
      say(name + ": its tierd runs");
      continue;
    }
    if (std::string_view{at}.ends_with(".partial")) {  // what it was to note has not been done
      std::error_code left;
      if (std::filesystem::remove(entry.path(), left); left) {
        say(name + ": " + left.message());
        code = 1;
      }
      continue;
    }
    ++found;
    try {
      const std::vector<std::string> left = Changes::undo_file(kernel, entry.path());
      say(name + ": undone");
      for (const std::string& path : left) say("  but " + path + " could not be written");
      if (!left.empty()) code = 1;
    } catch (const std::runtime_error& error_found) {
      say(error_found.what());
      code = 1;
    }
  }
  if (found == 0) say("nothing is left to undo");
  return code;
}

int replay(Words& words) {
  if (words.empty()) throw Wrong("found no journal");
  const std::string path = words.next();
  std::ifstream in{path, std::ios::binary};
  if (!in) throw Wrong(path + ": " + std::strerror(errno));
  const Playback playback = play_back(in);
  std::cout << playback.policy << ": " << playback.events << " events, " << playback.calls
            << " calls, " << playback.requested << " pages asked for\n";
  if (playback.cut_off) std::cout << "the journal is cut off; until there ";
  if (playback.diverged.empty()) {
    std::cout << "every decision is the same\n";
    return 0;
  }
  std::cout << playback.diverged << "\n";
  return 1;
}

int main_of(int count, char** arguments) {
  Words words{count - 1, arguments + 1};
  Linux kernel;
  const std::string command = words.empty() ? "help" : words.next();
  if (command == "run") return run(words, kernel);
  if (command == "attach") return attach(words, kernel);
  if (command == "probe") return probe_machine(words, kernel);
  if (command == "replay") return replay(words);
  if (command == "restore") return restore(kernel);
  if (command == "version" || command == "--version") {
    std::cout << "tierd " << TT_VERSION << ", policies " << own_policies() << "\n";
    return 0;
  }
  if (command == "help" || command == "--help" || command == "-h") {
    std::cout << usage;
    return 0;
  }
  throw Wrong("unknown command " + command + "; `tierd help` lists them");
}

}  // namespace
}  // namespace tt::live

/// 0, or what a program that was run has ended with; 1 when it cannot go on; 2 for wrong usage.
int main(int count, char** arguments) {
  try {
    return tt::live::main_of(count, arguments);
  } catch (const tt::live::Wrong& error) {
    std::cerr << "tierd: error: " << error.what() << "\n";
  } catch (const std::invalid_argument& error) {
    std::cerr << "tierd: error: " << error.what() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "tierd: error: " << error.what() << "\n";
    return 1;
  }
  return 2;
}
