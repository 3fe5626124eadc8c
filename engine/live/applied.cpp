// SPDX-License-Identifier: MIT

#include "live/applied.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "live/changes.hpp"
#include "live/mover.hpp"
#include "perf/ring.hpp"

namespace tt::live {
namespace {

namespace fs = std::filesystem;

const char* const applied_name = "applied";

/// One at a time changes or restores, for as long as the file is open.
perf::File locked(const fs::path& folder) {
  perf::File file{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!file.is_open() || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    throw NotAllowed(folder.string() + ": " +
                     (errno == EWOULDBLOCK ? "another tierd applies or restores"
                                           : std::generic_category().message(errno)));
  return file;
}

/// A file of a process: its number, and behind that ".source", say.
struct Named {
  int pid = 0;
  bool has_changes = false;  // else it is a socket, or of changes that were not finished
};

/// None if it is no such file.
std::optional<Named> named(const std::string& name) {
  Named out;
  const auto [at, error] = std::from_chars(name.data(), name.data() + name.size(), out.pid);
  if (error != std::errc{} || out.pid <= 0) return std::nullopt;
  const std::string_view ending{at};
  out.has_changes = !ending.ends_with(".partial") && ending != ".socket";
  return out;
}

/// The process of a file of changes, 0 if it is what is applied, none if it is no such file.
std::optional<int> owner(const std::string& name) {
  if (name == applied_name) return 0;
  const auto found = named(name);
  return found && found->has_changes ? std::optional{found->pid} : std::nullopt;
}

bool runs(int pid) { return pid != 0 && (::kill(pid, 0) == 0 || errno == EPERM); }

std::vector<std::string> files_of_changes(const fs::path& folder) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator{folder}) {
    std::string name = entry.path().filename().string();
    if (owner(name)) out.push_back(std::move(name));
  }
  std::ranges::sort(out);
  return out;
}

/// Sockets of the dead, and files of changes that they had not finished: what those were to note
/// has not been done. One that cannot be removed harms nobody.
void remove_leftovers(const fs::path& folder) {
  std::vector<fs::path> dead;
  for (const auto& entry : fs::directory_iterator{folder}) {
    const auto found = named(entry.path().filename().string());
    if (found && !found->has_changes && !runs(found->pid)) dead.push_back(entry.path());
  }
  std::error_code ignored;
  for (const fs::path& path : dead) fs::remove(path, ignored);
}

}  // namespace

void require_none_applied(const fs::path& folder) {
  if (fs::exists(folder / applied_name))
    throw NotAllowed("a policy of the kernel's own is applied: `tierd restore` ends it");
}

bool apply_plan(KernelCalls& kernel, const KernelPlan& plan, const fs::path& folder) {
  const perf::File lock = locked(folder);
  require_none_applied(folder);
  // Their old values would be undone in the wrong order.
  for (const std::string& name : files_of_changes(folder))
    throw NotAllowed(runs(*owner(name))
                         ? "a tierd runs, which moves pages by itself: end it (process " + name +
                               ")"
                         : "a tierd has left changes: `tierd restore` undoes them first");
  Changes changes{kernel, folder / applied_name};
  write_plan(kernel, plan, changes);
  const bool changed = !changes.empty();
  changes.leave();
  return changed;
}

std::vector<Restored> restore_changes(KernelCalls& kernel, const fs::path& folder) {
  const perf::File lock = locked(folder);
  remove_leftovers(folder);
  std::vector<Restored> out;
  for (const std::string& name : files_of_changes(folder)) {
    Restored each{name, runs(*owner(name)), {}, {}};
    try {
      if (!each.runs) each.left = Changes::undo_file(kernel, folder / name);
    } catch (const std::runtime_error& error) {
      each.error = error.what();
    }
    out.push_back(std::move(each));
  }
  return out;
}

}  // namespace tt::live
