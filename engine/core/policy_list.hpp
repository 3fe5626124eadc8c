// SPDX-License-Identifier: MIT

// PolicyList: what the registry holds. Policies are added before main, where nobody catches an
// exception; so a clash of names is kept, and thrown at whoever asks for the policies first.
#pragma once

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/registry.hpp"

namespace tt {

class PolicyList {
 public:
  void add(PolicyInfo info) {
    const auto same = std::ranges::find(policies_, info.name, &PolicyInfo::name);
    if (same != policies_.end() && clash_.empty())
      clash_ = "two policies are named " + info.name + ": \"" + same->summary + "\" (" +
               same->citation + ") and \"" + info.summary + "\" (" + info.citation +
               "); each needs a name of its own";
    const auto key = [](const PolicyInfo& p) { return std::tie(p.family, p.name); };
    const auto at = std::ranges::find_if(
        policies_, [&](const PolicyInfo& other) { return key(info) < key(other); });
    policies_.insert(at, std::move(info));
  }

  /// Sorted by family and name. Throws std::logic_error if two have the same name.
  [[nodiscard]] std::span<const PolicyInfo> all() const {
    if (!clash_.empty()) throw std::logic_error(clash_);
    return policies_;
  }

 private:
  std::vector<PolicyInfo> policies_;
  std::string clash_;  // what to throw; empty: none
};

}  // namespace tt
