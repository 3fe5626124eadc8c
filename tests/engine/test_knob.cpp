#include <vector>

#include "check.hpp"
#include "core/knob.hpp"

namespace {
using namespace tt;

std::vector<KnobDecl> sample_knobs() {
  return {
      {.name = "threshold",
       .type = KnobType::integer,
       .initial = std::int64_t{5},
       .min = 1,
       .max = 15},
      {.name = "period", .type = KnobType::real, .initial = 2.5, .min = 0.5, .max = 10},
      {.name = "blocked", .type = KnobType::boolean, .initial = true},
      {.name = "variant",
       .type = KnobType::choice,
       .initial = std::string("paper"),
       .choices = {"paper", "artifact"}},
  };
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
