// SPDX-License-Identifier: MIT

#include <vector>

#include "check.hpp"
#include "core/knob.hpp"

namespace {
using namespace tt;

std::vector<KnobDecl> sample_knobs() {
  using namespace knob;
  return list(
      integer("threshold", 5, {1, 15}, count_per_page, "§1", "count"),
      real("period", 2.5, {0.5, 10, knob::log}, Unit::seconds, "§2", "time").when("blocked"),
      flag("blocked", true, "§3", "layout"),
      choice("variant", {"paper", "artifact"}, "§4", "which"));
}
}  // namespace

TEST("resolve fills in defaults and keeps given values") {
  const auto knobs = resolve(sample_knobs(), {{"threshold", std::int64_t{7}}});
  CHECK_EQ(knobs.integer("threshold"), 7);
  CHECK_NEAR(knobs.real("period"), 2.5, 0);
  CHECK(knobs.flag("blocked"));
  CHECK_EQ(knobs.choice("variant"), "paper");
}

TEST("resolve names the knob, what was found and what is allowed") {
  const auto declared = sample_knobs();
  CHECK_THROWS(resolve(declared, {{"threshold", std::int64_t{16}}}), "found 16, allowed 1 to 15");
  CHECK_THROWS(resolve(declared, {{"threshold", 2.5}}), "expected an integer");
  CHECK_THROWS(resolve(declared, {{"thresold", std::int64_t{3}}}), "did you mean threshold?");
  CHECK_THROWS(resolve(declared, {{"variant", std::string("x")}}), "allowed paper, artifact");
  CHECK_THROWS(resolve(declared, {{"blocked", 1.0}}), "expected true or false");
  CHECK_THROWS(resolve(declared, {{"period", std::nan("")}}), "allowed 0.5 to 10");
}

TEST("a declaration says all that was given, and nothing else") {
  const auto declared = sample_knobs();
  const auto& threshold = declared[0];
  CHECK_EQ(threshold.name, "threshold");
  CHECK(threshold.type == KnobType::integer);
  CHECK(threshold.initial == KnobValue{std::int64_t{5}});
  CHECK_EQ(threshold.min, 1.0);
  CHECK_EQ(threshold.max, 15.0);
  CHECK(!threshold.log);
  CHECK(threshold.unit == Unit::count_per_page);
  CHECK_EQ(threshold.source, "§1");
  CHECK_EQ(threshold.meaning, "count");
  CHECK(!threshold.condition);
  const auto& period = declared[1];
  CHECK(period.type == KnobType::real);
  CHECK(period.initial == KnobValue{2.5});
  CHECK(period.log);
  CHECK_EQ(period.condition->parent, "blocked");
  CHECK(period.condition->values == std::vector<KnobValue>{true});
  const auto& blocked = declared[2];
  CHECK(blocked.type == KnobType::boolean);
  CHECK(blocked.initial == KnobValue{true});
  const auto& variant = declared[3];
  CHECK(variant.type == KnobType::choice);
  CHECK(variant.initial == KnobValue{std::string{"paper"}});  // the first
  CHECK_EQ(variant.choices.size(), 2u);
}

TEST("a list keeps the order of single declarations and of lists") {
  const auto pair = knob::list(knob::flag("b", false, "", ""), knob::flag("c", false, "", ""));
  const auto all = knob::list(knob::flag("a", false, "", ""), pair,
                              knob::flag("d", false, "", "").when("variant", "artifact"));
  std::string order;
  for (const auto& knob : all) order += knob.name;
  CHECK_EQ(order, "abcd");
  CHECK(all[3].condition->values == std::vector<KnobValue>{std::string{"artifact"}});
}
