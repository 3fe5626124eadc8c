// SPDX-License-Identifier: MIT

#include "live/written_pages.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "live/mappings.hpp"
#include "live/own_pages.hpp"

namespace tt::live {
namespace {

std::string folder(int pid) { return "/proc/" + std::to_string(pid) + "/"; }

/// Each page counts as not written to from now on.
int clear(KernelCalls& kernel, int pid) { return kernel.write(folder(pid) + "clear_refs", "4"); }

}  // namespace

int WrittenPages::look_at(int pid, Written& out) {
  std::string maps;
  std::vector<Populated> runs;
  if (const int error = kernel_.read(folder(pid) + "maps", maps); error != 0) return error;
  try {
    for (const Mapping& mapping : own_memory(maps))
      if (const int error = kernel_.soft_dirty(pid, mapping.begin, mapping.end, runs); error != 0)
        return error;
  } catch (const std::exception&) {
    return EINVAL;
  }
  for (const Populated& run : runs)
    for (std::uint64_t at = run.begin; at < run.end; at += base_page_bytes)
      out[at / block_bytes].set(at % block_bytes / base_page_bytes);
  return clear(kernel_, pid);
}

void WrittenPages::look(std::span<const int> pids) {
  const Nanos begin = kernel_.now();
  if (begin < next_) return;
  error_ = 0;
  std::map<int, Written> now;
  for (const int pid : pids) {
    Written found;
    const bool is_new = !written_.contains(pid);
    const int error = is_new ? clear(kernel_, pid) : look_at(pid, found);
    if (error == 0) {
      now[pid] = std::move(found);
    } else if (error != ESRCH && error != ENOENT) {
      error_ = error;
    }
  }
  written_ = std::move(now);
  const double took = seconds(kernel_.now() - begin);
  next_ = begin + std::max(options_.every, from_seconds(took / options_.most_looking));
}

bool WrittenPages::contains(int pid, std::uint64_t address) const {
  const auto process = written_.find(pid);
  if (process == written_.end()) return false;
  const auto block = process->second.find(address / block_bytes);
  return block != process->second.end() &&
         block->second.test(address % block_bytes / base_page_bytes);
}

std::string lacking_written_pages(KernelCalls& kernel) {
  OwnPages own;
  const int pid = ::getpid();
  const auto told = [&](bool& is_written) {
    std::vector<Populated> runs;
    const std::uint64_t page = own.address();
    const int error = kernel.soft_dirty(pid, page, page + base_page_bytes, runs);
    is_written = !runs.empty();
    return error;
  };
  bool after_clearing = true, after_writing = false;
  int error = clear(kernel, pid);
  if (error == 0) error = told(after_clearing);
  own.touch();
  if (error == 0) error = told(after_writing);
  if (error != 0) return std::strerror(error);
  return after_writing && !after_clearing ? ""
                                          : "this kernel tells of no writes "
                                            "(CONFIG_MEM_SOFT_DIRTY; x86-64, s390 and others have "
                                            "it, Arm does not)";
}

}  // namespace tt::live
