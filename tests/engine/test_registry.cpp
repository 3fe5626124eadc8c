// SPDX-License-Identifier: MIT

#include <string>
#include <vector>

#include "check.hpp"
#include "core/policy_list.hpp"

using namespace tt;

namespace {

PolicyInfo info(std::string family, std::string name, std::string summary = "some") {
  PolicyInfo made;
  made.family = std::move(family);
  made.name = std::move(name);
  made.summary = std::move(summary);
  made.citation = made.summary + " et al.";
  return made;
}

}  // namespace

TEST("registry: policies are sorted by family and name, whatever the order of registration") {
  PolicyList list;
  list.add(info("static", "all-slow"));
  list.add(info("hybrid", "b"));
  list.add(info("hybrid", "a"));
  std::vector<std::string> names;
  for (const PolicyInfo& policy : list.all()) names.push_back(policy.name);
  CHECK(names == (std::vector<std::string>{"a", "b", "all-slow"}));
}

TEST("registry: two policies of one name are refused and told apart") {
  PolicyList list;
  list.add(info("static", "same", "first"));
  list.add(info("static", "other"));
  CHECK_EQ(list.all().size(), 2u);
  list.add(info("hybrid", "same", "second"));
  list.add(info("hybrid", "other", "third"));  // one clash is told at a time
  CHECK_THROWS((void)list.all(),
               "two policies are named same: \"first\" (first et al.) and \"second\" (second et "
               "al.); each needs a name of its own");
}
