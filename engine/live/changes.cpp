// SPDX-License-Identifier: MIT

#include "live/changes.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "live/words.hpp"
#include "perf/ring.hpp"

namespace tt::live {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view head = "tierd changes 1\n";

bool is_kernels(const std::string& path) {
  return (path.starts_with("/sys/") || path.starts_with("/proc/sys/")) &&
         path.find("..") == std::string::npos;
}

/// An errno. What stands there is the old text or the new one, whatever happens.
int replace_file(const fs::path& path, const std::string& text) {
  const fs::path partial = path.string() + ".partial";
  {
    const perf::File file{::open(
        partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR)};
    if (!file.is_open()) return errno;
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0) return errno;
    if (static_cast<std::size_t>(written) != text.size()) return ENOSPC;
    if (::fsync(file.get()) != 0) return errno;
  }
  return ::rename(partial.c_str(), path.c_str()) == 0 ? 0 : errno;
}

}  // namespace

int Changes::keep(const std::vector<Change>& made, const fs::path& file) {
  if (file.empty()) return 0;
  if (made.empty()) return ::unlink(file.c_str()) == 0 || errno == ENOENT ? 0 : errno;
  std::string text{head};
  for (const Change& change : made) text += change.path + '\t' + change.before + '\n';
  return replace_file(file, text);
}

int Changes::write(const std::string& path, const std::string& text, const std::string& before) {
  if (!is_kernels(path) || before.find('\n') != std::string::npos) return EINVAL;
  made_.push_back({path, before});
  int error = keep(made_, file_);
  if (error == 0) error = kernel_.write(path, text);
  if (error != 0) {
    made_.pop_back();
    (void)keep(made_, file_);  // where it fails, a restore undoes one more than it has to
  }
  return error;
}

int Changes::replace(const std::string& path, const std::string& text) {
  std::string before;
  if (const int error = kernel_.read(path, before); error != 0) return error;
  before = stripped(before);
  return before == text ? 0 : write(path, text, before);
}

std::vector<std::string> Changes::undo(KernelCalls& kernel, std::vector<Change>& made,
                                       const fs::path& file) {
  if (made.empty()) return {};
  std::vector<std::string> left;
  std::vector<Change> still;
  for (; !made.empty(); made.pop_back()) {
    const auto& [path, before] = made.back();
    // What has ended by itself refuses to be ended, or is not there any more.
    std::string now;
    const int error = kernel.write(path, before);
    if (error == 0 || error == ENOENT) continue;
    if (kernel.read(path, now) == 0 && stripped(now) == before) continue;
    left.push_back(path);
    still.push_back(made.back());
  }
  made.assign(still.rbegin(), still.rend());
  (void)keep(made, file);  // where it fails, a restore undoes more than it has to
  return left;
}

std::vector<std::string> Changes::undo() { return undo(kernel_, made_, file_); }

std::vector<std::string> Changes::undo_file(KernelCalls& kernel, const fs::path& path) {
  const auto wrong = [&](const std::string& what) {
    return std::runtime_error(path.string() + ": " + what);
  };
  std::string text;
  {
    const perf::File file{::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
    if (!file.is_open()) throw wrong(std::generic_category().message(errno));
    struct stat found{};
    if (::fstat(file.get(), &found) != 0 || !S_ISREG(found.st_mode) ||
        found.st_uid != ::geteuid() || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
      throw wrong("is no file of this user alone");
    std::array<char, 65536> part{};
    const ssize_t got = ::read(file.get(), part.data(), part.size());
    if (got < 0) throw wrong(std::generic_category().message(errno));
    text.assign(part.data(), static_cast<std::size_t>(got));
  }
  if (!text.starts_with(head)) throw wrong("is no file of changes");
  std::vector<Change> made;
  for (std::size_t at = head.size(); at < text.size();) {
    const std::size_t end = text.find('\n', at), tab = text.find('\t', at);
    if (end == std::string::npos || tab == std::string::npos || tab > end)
      throw wrong("byte " + std::to_string(at) + ": expected a file, a tab and its old text");
    made.push_back({text.substr(at, tab - at), text.substr(tab + 1, end - tab - 1)});
    if (!is_kernels(made.back().path))
      throw wrong("found " + made.back().path + ", expected a file of /sys or /proc/sys");
    at = end + 1;
  }
  return undo(kernel, made, path);
}

fs::path changes_folder() {
  const char* const own = std::getenv("XDG_RUNTIME_DIR");
  if (::geteuid() != 0 && own == nullptr) return {};
  fs::path folder = ::geteuid() == 0 ? fs::path{"/run/tierd"} : fs::path{own} / "tierd";
  struct stat found{};
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) return {};
  if (::lstat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) ||
      found.st_uid != ::geteuid() || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return {};
  return folder;
}

}  // namespace tt::live
