// SPDX-License-Identifier: MIT

// Changes: what is written to the kernel's files, and how each of it is undone. It is noted in a
// file of its own before it happens, so that it can be undone after a crash, too (`tierd restore`).
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "live/kernel_calls.hpp"

namespace tt::live {

class Changes {
 public:
  /// `file` is made with the first change and removed when all are undone; empty: none is kept.
  Changes(KernelCalls& kernel, std::filesystem::path file)
      : kernel_(kernel), file_(std::move(file)) {}
  ~Changes() { (void)undo(); }
  Changes(const Changes&) = delete;
  Changes& operator=(const Changes&) = delete;

  /// Writes `text` to a file of /proc/sys or /sys; writing `before` there undoes it. Returns an
  /// errno, also where the file of changes cannot be written: then nothing is done.
  [[nodiscard]] int write(const std::string& path, const std::string& text,
                          const std::string& before);
  /// The same, of a file that tells its old value itself; nothing if it has the new one.
  [[nodiscard]] int replace(const std::string& path, const std::string& text);
  /// Undoes all, the last one first. Returns the files of which it could not; they stay noted.
  std::vector<std::string> undo();
  /// They are to stay when this ends: what undoes them is their file.
  void leave() { made_.clear(); }
  [[nodiscard]] bool empty() const { return made_.empty(); }

  /// Undoes what is noted in a file of changes, and removes it. Returns the files of which it could
  /// not; then it stays, with these. std::runtime_error if it is not ours, or no file of changes.
  static std::vector<std::string> undo_file(KernelCalls& kernel, const std::filesystem::path& file);

 private:
  struct Change {
    std::string path, before;
  };
  static std::vector<std::string> undo(KernelCalls& kernel, std::vector<Change>& made,
                                       const std::filesystem::path& file);
  static int keep(const std::vector<Change>& made, const std::filesystem::path& file);

  KernelCalls& kernel_;
  const std::filesystem::path file_;
  std::vector<Change> made_;
};

/// Where files of changes are: /run/tierd for root, else tierd in $XDG_RUNTIME_DIR; empty where
/// there is neither. It is made, for this user alone.
[[nodiscard]] std::filesystem::path changes_folder();

}  // namespace tt::live
