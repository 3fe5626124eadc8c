// SPDX-License-Identifier: MIT

// Journal: everything that a policy was told and answered, and all that it asked for, so that its
// decisions can be played back without the process, the kernel, or the time that they took.
//
// A journal is the policy's name, knobs, seed and placement, and then one record for each event and
// for each call that the policy made in it, with the answer. What only looks at the policy (gauges,
// heat, metadata) is not in it, nor what the policy charges for its work, which has no answer.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>

#include "core/registry.hpp"

namespace tt::live {

/// The policy, with a journal of it written to `out`, which has to outlive it and is not flushed.
/// std::invalid_argument for an oracle: its future is not written down.
[[nodiscard]] std::unique_ptr<Policy> journaled(const PolicyInfo& info,
                                                const PolicyContext& context, std::ostream& out);

/// What has become of a journal that was played to the policy of its name.
struct Playback {
  std::string policy;
  std::uint64_t events = 0, calls = 0;
  std::uint64_t requested = 0;  // pages
  /// The first record at which the policy did something else, and what; empty if it never did.
  std::string diverged;
  bool cut_off = false;  // the last record is not complete: the writer was killed
};

/// std::runtime_error naming the byte, for what is no journal; std::invalid_argument for a policy
/// or knobs that are not known here.
[[nodiscard]] Playback play_back(std::istream& in);

}  // namespace tt::live
