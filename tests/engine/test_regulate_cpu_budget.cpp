// SPDX-License-Identifier: MIT

// Sampling within a share of a processor.
#include <algorithm>

#include "check.hpp"
#include "fake_memory.hpp"
#include "regulate/cpu_budget.hpp"

using namespace tt;

namespace {

struct Sampler {
  test::FakeMemory memory{10, 10};
  std::vector<KnobDecl> declared = regulate::cpu_budget_knobs("a test");
  regulate::CpuBudget budget;
  Nanos now{};

  explicit Sampler(const KnobMap& knobs = {}) : budget(memory, resolve(declared, knobs)) {}
  /// Windows of 15 s in which sampling takes this share of a processor.
  void windows(double share, int count = 1) {
    for (; count > 0; --count) {
      now += from_seconds(15);
      memory.now.sampling_seconds += 15 * share;
      budget.tick(now);
    }
  }
};

}  // namespace

TEST("cpu budget: begins at the shortest periods, and stays there while sampling is cheap") {
  Sampler sampler;
  using Mode = SamplingRequest::Mode;
  CHECK(sampler.memory.sampling.back().loads == (SamplingRequest::Event{Mode::period, 200}));
  CHECK(sampler.memory.sampling.back().stores == (SamplingRequest::Event{Mode::period, 100000}));
  sampler.windows(0.02, 5);
  CHECK_EQ(sampler.memory.sampling.size(), 1u);
}

TEST("cpu budget: one step a window up to a hundred times the period, and back") {
  Sampler sampler;
  sampler.windows(0.1);
  CHECK_NEAR(sampler.budget.load_period(), 200 * 293.0 / 199, 1e-9);
  CHECK_NEAR(sampler.budget.store_period(), 1e5 * 300007.0 / 100003, 1e-9);
  sampler.windows(0.1, 50);
  CHECK_NEAR(sampler.budget.load_period(), 200 * 19997.0 / 199, 1e-9);
  CHECK_NEAR(sampler.budget.store_period(), 1e5 * 1500003.0 / 100003, 1e-9);
  const auto requests = sampler.memory.sampling.size();
  CHECK_EQ(requests, 30u);  // the last of them asked for nothing new
  sampler.windows(0.001, 3);
  CHECK_NEAR(sampler.budget.load_period(), 200 * 13999.0 / 199, 1e-9);
  sampler.windows(0.001, 40);
  CHECK_NEAR(sampler.budget.load_period(), 200, 1e-9);
  CHECK_NEAR(sampler.budget.store_period(), 100000, 1e-9);
}

TEST("cpu budget: goes by the periods that it was granted") {
  test::FakeMemory memory{10, 10};
  // No more than a load in 1000 is sampled, and no store.
  memory.grant = [](const SamplingRequest& asked) {
    return SamplingRequest{.loads = {asked.loads.mode, std::max(1000.0, asked.loads.value)}};
  };
  regulate::CpuBudget budget(memory, resolve(regulate::cpu_budget_knobs("a test"), {}));
  CHECK_EQ(budget.load_period(), 1000.0);
  CHECK_EQ(budget.store_period(), 0.0);
  // It costs too much all the same: the next step is the first that makes a difference.
  memory.now.sampling_seconds = 1.5;
  budget.tick(from_seconds(15));
  CHECK_NEAR(budget.load_period(), 200 * 997.0 / 199, 1e-9);
  CHECK_EQ(memory.sampling.size(), 2u);
}

TEST("cpu budget: within half a percent of the limit nothing changes; the share is averaged") {
  Sampler sampler;
  sampler.windows(0.0345, 5);
  sampler.windows(0.0255, 5);
  CHECK_NEAR(sampler.budget.load_period(), 200, 1e-9);
  sampler.windows(0.0376);  // with the windows before: 3.52 %
  CHECK_NEAR(sampler.budget.share(), 0.8 * 0.0376 + 0.2 * 0.0255, 1e-4);
  CHECK(sampler.budget.load_period() > 200);
  Sampler early;
  early.memory.now.sampling_seconds = 10;
  early.budget.tick(from_seconds(14));
  CHECK_NEAR(early.budget.load_period(), 200, 1e-9);  // the window has not ended
}
