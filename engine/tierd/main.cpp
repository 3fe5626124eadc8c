// SPDX-License-Identifier: MIT

// tierd: a tiering policy on running processes.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
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
#include "live/applied.hpp"
#include "live/changes.hpp"
#include "live/config.hpp"
#include "live/control.hpp"
#include "live/journal.hpp"
#include "live/kernel_policies.hpp"
#include "live/launcher.hpp"
#include "live/mover.hpp"
#include "live/notify.hpp"
#include "live/probe.hpp"
#include "live/session.hpp"
#include "live/status.hpp"
#include "live/target.hpp"
#include "live/words.hpp"
#include "tierd/ask.hpp"

namespace tt::live {
namespace {

const char* const usage =
    "usage: tierd COMMAND\n"
    "\n"
    "  tierd run [options] -- PROGRAM ARGUMENT...  run a program, and move its pages between "
    "tiers;\n"
    "                                              its streams, signals and exit status are its "
    "own\n"
    "  tierd attach [options] --pid PID            the same of a running process and its "
    "descendants,\n"
    "                                              until they or tierd end (SIGTERM, Ctrl-C); "
    "--pid may\n"
    "                                              be repeated: they share the fast tier\n"
    "  tierd attach [options] --cgroup NAME        the same of all processes of a cgroup, as they "
    "come and go\n"
    "  tierd status [--json|--prometheus] [--of TIERD]\n"
    "                                              what the engines that run see and do\n"
    "  tierd limit SIZE [--of TIERD]               changes the --fast-limit of one that runs\n"
    "  tierd stop [--of TIERD]                     ends one that runs; its program goes on\n"
    "  tierd probe [--json]                        what this machine can do, and what would help\n"
    "  tierd apply [options]                       set up a policy that the kernel has itself: "
    "nbt, tpp,\n"
    "                                              autonuma, damon-goal, hmsdk; it stays until\n"
    "                                              it is restored\n"
    "  tierd restore                               undo what was applied, and what a tierd that "
    "was\n"
    "                                              killed has changed in the kernel's settings\n"
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
    "  --slow NODES         those of the slow tier; may be repeated, for a slower one below it "
    "each\n"
    "                       time: pages go up and down a tier at a time\n"
    "  --source NAME        what tells of accesses: auto (default), pebs, ibs, spe,\n"
    "                       damon, hints (with `tierd run` only), or emulated; `tierd probe` "
    "tries them\n"
    "  --writes soft-dirty  where samples tell no stores (hemem goes by them): those on pages that "
    "were\n"
    "                       written to lately count as such; it costs the program a fault per "
    "page\n"
    "                       and second\n"
    "  --cpu SHARE          of one processor that tierd itself may take, such as 3%; it samples "
    "less\n"
    "                       often where it takes more\n"
    "  --journal FILE       write down all that the policy is told, and decides; with more than "
    "two\n"
    "                       tiers also FILE.1 and so on, of the steps below\n"
    "  --series FILE        write figures of every second, as CSV (tune report draws them)\n"
    "  --quiet              say nothing but errors\n"
    "\n"
    "options of apply: --config, --policy, --set, --fast and --slow, and\n"
    "  --dry-run            print what would be written, and write nothing\n"
    "  --json               print it as JSON\n";

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
  /// A word, and what is before and behind its `=`.
  struct Option {
    std::string word, name;
    std::optional<std::string> behind;
  };
  Option option() {
    Option out{next(), {}, {}};
    const std::size_t equals = out.word.find('=');
    out.name = out.word.substr(0, equals);
    if (equals != std::string::npos) out.behind = out.word.substr(equals + 1);
    return out;
  }
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

int process_of(const std::string& option, const std::string& text) {
  const auto pid = number<int>(text);
  if (!pid || *pid <= 0)
    throw Wrong(option + ": found '" + text + "', expected the number of a process");
  return *pid;
}

double share_of(const std::string& option, const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || std::string_view{at} != "%" || !(value > 0) || value > 10000)
    throw Wrong(option + ": found '" + text + "', expected a share such as 3%");
  return value / 100;
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

/// A policy and its knobs.
struct Choice {
  std::string policy;
  KnobMap knobs;
};

/// What --config, --policy and --set choose, each of which may be missing.
Choice choose(const std::string& config_path, const std::string& policy_name,
              const std::vector<std::string>& sets) {
  Choice out;
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
    out.policy = config.policy;
    out.knobs = std::move(config.knobs);
  }
  if (!policy_name.empty() && policy_name != out.policy) {
    out.policy = policy_name;
    out.knobs.clear();
  }
  if (out.policy.empty()) out.policy = "hybridtier";
  const PolicyInfo& info = policy(out.policy);
  for (const std::string& set : sets) {
    const std::size_t equals = set.find('=');
    const std::string name = set.substr(0, equals);
    const auto knob = std::ranges::find(info.knobs, name, &KnobDecl::name);
    if (equals == std::string::npos || knob == info.knobs.end())
      throw Wrong("--set: found '" + set + "', expected KNOB=VALUE with a knob of " + info.name);
    try {
      out.knobs[name] = read_knob(*knob, set.substr(equals + 1));
    } catch (const std::runtime_error& error) {
      throw Wrong("--set " + name + ": " + error.what());
    }
  }
  return out;
}

/// The nodes that --fast and --slow name, if they do.
std::optional<Nodes> named_nodes(const std::string& fast, const std::vector<std::string>& slow) {
  if (fast.empty() != slow.empty()) throw Wrong("--fast and --slow are given together, or neither");
  if (fast.empty()) return std::nullopt;
  std::vector<std::vector<int>> tiers{node_list(fast)};
  for (const std::string& each : slow) tiers.push_back(node_list(each));
  return nodes_of(std::move(tiers));
}

struct Arguments {
  Session::Options session;
  std::string journal, series;
  bool quiet = false;
  std::vector<int> pids;
  std::string cgroup;
  std::filesystem::path socket;  // empty: nobody can ask
  std::vector<std::string> command;
};

Arguments arguments(Words& words, KernelCalls& kernel, bool launches) {
  Arguments out;
  std::string config_path, policy_name, fast;
  std::vector<std::string> sets, slow;
  while (!words.empty()) {
    const Words::Option given = words.option();
    const std::string &word = given.word, &option = given.name;
    if (word == "--" && launches) {
      out.command = words.rest();
      break;
    }
    const auto value = [&] { return words.value(option, given.behind); };
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
      slow.push_back(value());
    } else if (option == "--cpu") {
      out.session.cpu = share_of(option, value());
    } else if (option == "--source") {
      out.session.source = value();
    } else if (option == "--writes") {
      out.session.writes = value();
    } else if (option == "--journal") {
      out.journal = value();
    } else if (option == "--series") {
      out.series = value();
    } else if (option == "--quiet") {
      out.quiet = true;
    } else if (option == "--pid" && !launches) {
      out.pids.push_back(process_of(option, value()));
    } else if (option == "--cgroup" && !launches) {
      out.cgroup = value();
    } else {
      throw Wrong("unknown option " + word + "; `tierd help` lists them");
    }
  }
  if (out.session.source == "hints" && !launches)
    throw Wrong("--source hints: only of a program that `tierd run` starts");
  Choice choice = choose(config_path, policy_name, sets);
  if (is_kernels_own(choice.policy))
    throw Wrong("policy " + choice.policy + " is the kernel's own: `tierd apply` sets it up");
  out.session.policy = std::move(choice.policy);
  out.session.knobs = std::move(choice.knobs);
  const std::optional<Nodes> named = named_nodes(fast, slow);
  out.session.nodes = named ? *named : find_nodes(kernel);
  if (const std::filesystem::path folder = changes_folder(); !folder.empty()) {
    require_none_applied(folder);
    out.session.changes = folder / std::to_string(::getpid());
    out.socket = socket_of(folder, ::getpid());
  }
  return out;
}

/// A session that may fail at any time: then it says why, and lets the program be.
class Watch {
 public:
  Watch(KernelCalls& kernel, const Arguments& arguments)
      : kernel_(kernel), quiet_(arguments.quiet), series_(arguments.series) {
    std::vector<std::ostream*> streams;
    for (std::size_t step = 0; step + 1 < arguments.session.nodes.of.size(); ++step) {
      if (arguments.journal.empty()) break;
      const std::string below = step == 0 ? "" : "." + std::to_string(step);
      streams.push_back(journals_.emplace_back(arguments.journal + below).stream());
    }
    session_.emplace(kernel, arguments.session, streams, series_.stream());
    if (arguments.socket.empty()) return;
    try {
      control_.emplace(arguments.socket);
    } catch (const std::system_error& error) {
      say(std::string{error.what()} + "; tierd status and stop cannot reach this one");
    }
  }

  void start(Target target) {
    attempt([&] { session_->start(std::move(target)); });
    if (goes_on_) notify_.tell("READY=1\nSTATUS=" + session_->status().target);
  }
  /// What can be waited for besides signals; -1 if nothing can.
  [[nodiscard]] int file() const { return control_ ? control_->file() : -1; }
  /// Milliseconds until the next turn; -1 for ever: what cannot go on lets the program be.
  int turn() {
    if (!goes_on_) return -1;
    Nanos wait{};
    attempt([&] { wait = session_->turn(); });
    if (!goes_on_) return -1;
    attempt([&] {
      if (control_)
        control_->serve([this](auto method, auto path) { return answer(method, path); });
    });
    if (!goes_on_) return -1;
    notify_.alive(kernel_.now());
    wait = std::min(wait, notify_.patience());
    return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count());
  }
  /// The target has ended.
  [[nodiscard]] bool over() const { return goes_on_ && session_->over(); }
  /// Somebody has told us to.
  [[nodiscard]] bool stopped() const { return stopped_; }
  [[nodiscard]] bool goes_on() const { return goes_on_; }
  void end() {
    if (goes_on_ && !quiet_) say(session_->summary());
    notify_.tell("STOPPING=1");
    goes_on_ = false;
    session_.reset();  // DAMON is given back
    control_.reset();
    for (Out& journal : journals_) journal.close("the journal");
    series_.close("the series");
  }

 private:
  /// A file that is written as we go on; none if it has no name.
  class Out {
   public:
    explicit Out(std::string path) : path_(std::move(path)) {
      if (path_.empty()) return;
      file_.open(path_, std::ios::binary);
      if (!file_) throw Wrong(path_ + ": " + std::strerror(errno));
    }
    std::ostream* stream() { return path_.empty() ? nullptr : &file_; }
    void close(const std::string& what) {
      if (path_.empty()) return;
      file_.close();
      if (!file_) say(path_ + ": not all of " + what + " could be written");
    }

   private:
    std::string path_;
    std::ofstream file_;
  };

  Answer answer(std::string_view method, std::string_view path) {
    if (!goes_on_) return {.code = 503, .body = "it cannot go on\n"};
    const std::string_view limit = "/limit?fast=";
    if (method == "GET" && path == "/status") return {.body = text_of(session_->status())};
    if (method == "GET" && path == "/status.json")
      return {.type = "application/json", .body = json_of(session_->status())};
    if (method == "GET" && path == "/metrics")
      return {.type = "text/plain; version=0.0.4", .body = prometheus_of(session_->status())};
    if (method == "POST" && path == "/stop") {
      stopped_ = true;
      return {.body = "ends\n"};
    }
    if (method == "POST" && path.starts_with(limit)) {
      const auto bytes = number<std::uint64_t>(path.substr(limit.size()));
      if (!bytes) return {.code = 400, .body = "expected a number of bytes\n"};
      session_->limit_fast(*bytes / base_page_bytes);
      return {.body = "the fast tier may hold " + std::to_string(*bytes >> 20) + " MiB\n"};
    }
    return {.code = 404, .body = "expected GET /status, /status.json or /metrics, or POST /stop\n"};
  }

  void attempt(const std::function<void()>& step) {
    try {
      step();
    } catch (const std::exception& error) {
      goes_on_ = false;
      say(std::string{"error: "} + error.what());
      session_.reset();
      control_.reset();
    }
  }

  KernelCalls& kernel_;
  bool quiet_;
  bool goes_on_ = true, stopped_ = false;
  std::deque<Out> journals_;  // of each step between two tiers
  Out series_;
  std::optional<Session> session_;
  std::optional<Control> control_;
  Notify notify_;
};

int run(Words& words, KernelCalls& kernel) {
  const Arguments given = arguments(words, kernel, true);
  if (given.command.empty()) throw Wrong("found no program; expected -- PROGRAM ARGUMENT...");
  Watch watch{kernel, given};
  const Signals signals;
  int child = 0;
  const bool hints = given.session.source == "hints";
  if (hints)
    if (const int error = kernel.hint(given.session.nodes.slower()); error != 0)
      throw Wrong("--source hints: the slow tier's nodes as a memory policy: " + message(error));
  try {
    child = launch(given.command, signals);
    if (hints)
      if (const int error = kernel.hint({}); error != 0)
        say("the memory policy of tierd itself stays that of the program: " + message(error));
  } catch (const std::system_error& error) {
    say(error.what());
    return error.code() == std::errc::no_such_file_or_directory ? 127 : 126;
  }
  watch.start(Target::processes({child}));
  if (!watch.goes_on()) say("the program goes on without tiering");
  int status = 0;
  while (!ended(child, status)) {
    const int signal = signals.wait(watch.turn(), watch.file());
    if (watch.stopped() && watch.goes_on()) {
      watch.end();
      say("told to stop; the program goes on without tiering");
    }
    // Ctrl-C reaches the program by itself: it is of the same group.
    if (signal != 0 && signal != SIGCHLD && signal != SIGINT && signal != SIGQUIT)
      ::kill(child, signal);
  }
  watch.end();
  end_as(status, signals);
}

int attach(Words& words, KernelCalls& kernel) {
  const Arguments given = arguments(words, kernel, false);
  if (given.pids.empty() == given.cgroup.empty())
    throw Wrong("expected one --pid or more, or one --cgroup");
  for (const int pid : given.pids)
    if (::kill(pid, 0) != 0 && errno == ESRCH)
      throw Wrong("process " + std::to_string(pid) + ": " + std::strerror(errno));
  Watch watch{kernel, given};
  const Signals signals;
  watch.start(given.cgroup.empty() ? Target::processes(given.pids) : Target::cgroup(given.cgroup));
  while (watch.goes_on() && !watch.over() && !watch.stopped()) {
    const int signal = signals.wait(watch.turn(), watch.file());
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

/// What `tierd status`, `limit` and `stop` have in common.
struct Asked {
  int of = 0;  // 0: not said
  std::string form = "text";
  std::optional<std::string> word;
};

Asked asked(Words& words) {
  Asked out;
  while (!words.empty()) {
    const auto [word, option, behind] = words.option();
    if (option == "--of") {
      out.of = process_of(option, words.value(option, behind));
    } else if (word == "--json" || word == "--prometheus") {
      out.form = word.substr(2);
    } else if (!word.starts_with('-') && !out.word) {
      out.word = word;
    } else {
      throw Wrong("unknown option " + word + "; `tierd help` lists them");
    }
  }
  return out;
}

int status(Words& words) {
  const Asked given = asked(words);
  if (given.word) throw Wrong("unknown option " + *given.word);
  return print_status(changes_folder(), given.of, given.form);
}

int limit(Words& words) {
  const Asked given = asked(words);
  if (!given.word) throw Wrong("limit: expected a size such as 512M or 16G");
  const std::uint64_t bytes = size_of("limit", *given.word);
  return tell(changes_folder(), given.of, "/limit?fast=" + std::to_string(bytes));
}

int stop(Words& words) {
  const Asked given = asked(words);
  if (given.word) throw Wrong("unknown option " + *given.word);
  return tell(changes_folder(), given.of, "/stop");
}

std::filesystem::path known_folder() {
  std::filesystem::path folder = changes_folder();
  if (folder.empty()) throw Wrong("found neither /run/tierd nor XDG_RUNTIME_DIR");
  return folder;
}

int apply(Words& words, KernelCalls& kernel) {
  std::string config_path, policy_name, fast;
  std::vector<std::string> sets, slow;
  bool dry = false, json = false;
  const std::map<std::string, std::string*> values{
      {"--config", &config_path}, {"--policy", &policy_name}, {"--fast", &fast}};
  while (!words.empty()) {
    const auto [word, option, behind] = words.option();
    if (const auto value = values.find(option); value != values.end()) {
      *value->second = words.value(option, behind);
    } else if (option == "--set" || option == "--slow") {
      (option == "--set" ? sets : slow).push_back(words.value(option, behind));
    } else if (word == "--dry-run") {
      dry = true;
    } else if (word == "--json") {
      json = true;
    } else {
      throw Wrong("unknown option " + word + "; `tierd help` lists them");
    }
  }
  if (config_path.empty() && policy_name.empty())
    throw Wrong("found neither --config nor --policy");
  if (const std::filesystem::path folder = changes_folder(); !folder.empty())
    require_none_applied(folder);
  const Choice choice = choose(config_path, policy_name, sets);
  const KernelPlan plan =
      kernel_plan(kernel, policy(choice.policy), choice.knobs, named_nodes(fast, slow));
  const bool changed = !dry && apply_plan(kernel, plan, known_folder());
  std::cout << (json ? json_of(plan, !dry) : text_of(plan));
  if (!json)
    std::cout << (dry       ? "nothing was written\n"
                  : changed ? "applied; `tierd restore` undoes it\n"
                            : "the kernel is like that already\n");
  return 0;
}

int restore(KernelCalls& kernel) {
  int code = 0;
  bool found = false;
  for (const Restored& each : restore_changes(kernel, known_folder())) {
    found = found || !each.runs;
    if (!each.error.empty()) {
      say(each.error);
    } else {
      say(each.name + (each.runs ? ": its tierd runs" : ": undone"));
    }
    for (const std::string& path : each.left) say("  but " + path + " could not be written");
    if (!each.error.empty() || !each.left.empty()) code = 1;
  }
  if (!found) say("nothing is left to undo");
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
  if (command == "apply") return apply(words, kernel);
  if (command == "probe") return probe_machine(words, kernel);
  if (command == "status") return status(words);
  if (command == "limit") return limit(words);
  if (command == "stop") return stop(words);
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
