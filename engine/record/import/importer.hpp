// SPDX-License-Identifier: MIT

// What the importers of all formats share: lines in, observations to the assembler, and an account
// of how certain they are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/types.hpp"
#include "record/assembler.hpp"
#include "record/import.hpp"
#include "record/import/text.hpp"
#include "trace/stream.hpp"

namespace tt::record {

inline constexpr std::uint64_t page_bytes = trace::base_page_bytes;
inline constexpr std::uint64_t address_limit = std::uint64_t{1} << 48;

/// Numbers in order of first appearance: processes, targets.
class Numbers {
 public:
  std::uint32_t operator[](std::uint64_t key) {
    if (!known_.empty() && key == last_key_) return last_;
    last_ = known_.try_emplace(key, static_cast<std::uint32_t>(known_.size())).first->second;
    last_key_ = key;
    return last_;
  }
  [[nodiscard]] std::size_t size() const { return known_.size(); }

 private:
  std::unordered_map<std::uint64_t, std::uint32_t> known_;
  std::uint64_t last_key_ = 0;
  std::uint32_t last_ = 0;
};

/// How often each page was observed, and for how many accesses that stands.
class Uncertainty {
 public:
  void add(std::uint32_t process, std::uint64_t address, double observed, double accesses) {
    Page& page = pages_[std::uint64_t{process} << 36 | address / page_bytes];
    page.observed += observed;
    page.accesses += accesses;
  }

  /// Fills in observed, accesses, error_share and hot_error_share. `of_all`: the observations are a
  /// sample of the accesses, rather than of something else.
  void summarise(bool of_all, ImportSummary& summary) const;

 private:
  struct Page {
    double observed = 0, accesses = 0;
  };
  std::unordered_map<std::uint64_t, Page> pages_;
};

class Importer {
 public:
  Importer(Lines& from, std::filesystem::path file, trace::StreamInfo info,
           const ImportOptions& given, ImportSummary& to)
      : lines(from), options(given), summary(to), file_(std::move(file)), info_(std::move(info)) {}

  /// Opens the stream; once, before any access.
  void start(bool wall_time, double threads, std::vector<trace::StreamClass> classes);
  /// The classes of a stream of which only addresses are known.
  [[nodiscard]] std::vector<trace::StreamClass> one_class() const {
    return {{"random", options.mlp_random, 0, 0}};
  }
  /// After start().
  [[nodiscard]] Assembler& stream() { return *stream_; }
  /// An observation of an access of a process (its number among `processes`), in the stream and in
  /// the account.
  void observe(std::uint32_t process, std::uint64_t address, AccessKind kind, double observed,
               double accesses) {
    const auto at = place(process, address);
    if (!at) return;
    stream_->access(*at, kind, 0, accesses);
    uncertainty_.add(process, *at, observed, accesses);
  }
  /// The first page from `page` on that stands for others and itself.
  [[nodiscard]] std::uint64_t kept_from(std::uint32_t process, std::uint64_t page) const {
    const std::uint64_t run = page / options.scale;
    const std::uint64_t kept = kept_of(process, run);
    return kept >= page ? kept : kept_of(process, run + 1);
  }
  /// The address in the stream's own, dense space; none, and counted, if another page stands for
  /// this one.
  [[nodiscard]] std::optional<std::uint64_t> place(std::uint32_t process, std::uint64_t address) {
    if (options.scale == 1) return address;
    const std::uint64_t page = address / page_bytes;
    if (kept_from(process, page) == page)
      return page / options.scale * page_bytes + address % page_bytes;
    ++summary.stood_for;
    return std::nullopt;
  }
  /// Puts what was observed into the summary; see Uncertainty.
  void summarise(bool of_all) { uncertainty_.summarise(of_all, summary); }
  /// Completes stream and summary. ImportError when nothing was observed.
  trace::StreamInfo finish();

  Lines& lines;
  const ImportOptions& options;
  ImportSummary& summary;
  Numbers processes;

 private:
  [[nodiscard]] std::uint64_t kept_of(std::uint32_t process, std::uint64_t run) const {
    return run * options.scale + mix64(run ^ std::uint64_t{process} << 48) % options.scale;
  }

  std::filesystem::path file_;
  trace::StreamInfo info_;
  std::optional<Assembler> stream_;
  Uncertainty uncertainty_;
};

// One per format; each reads all lines and calls start(), observe() and summarise().
void import_perf_script(Importer& to);
void import_damon(Importer& to);
void import_lackey(Importer& to);
void import_csv(Importer& to);

}  // namespace tt::record
