// SPDX-License-Identifier: MIT

#include "check.hpp"
#include "fake_memory.hpp"
#include "track/steered_sampling.hpp"

using namespace tt;
using Mode = SamplingRequest::Mode;
using track::SteeredSampling;

namespace {

/// Steered sampling that a second at a time sees so many loads.
struct Steered {
  test::FakeMemory memory{10, 10};
  SteeredSampling sampling{memory};
  Nanos now{};

  void second(double loads) {
    now += from_seconds(1);
    memory.now.loads[0] += loads / 4;
    memory.now.loads[1] += loads * 3 / 4;
    sampling.tick(now);
  }
  [[nodiscard]] SamplingRequest::Event loads() const { return memory.sampling.back().loads; }
};

}  // namespace

TEST("steered sampling: by frequency until loads are seen, then by the period for it") {
  Steered s;
  s.sampling.set_sampling({.loads = {Mode::frequency, 1000}});
  s.second(0);
  CHECK((s.loads() == SamplingRequest::Event{Mode::frequency, 1000}));
  s.second(50000);
  CHECK((s.loads() == SamplingRequest::Event{Mode::period, 50}));
  s.sampling.set_sampling({.loads = {Mode::frequency, 100}, .fast_share = 0.5});
  CHECK((s.loads() == SamplingRequest::Event{Mode::period, 500}));
  CHECK_EQ(s.memory.sampling.back().fast_share, 0.5);
  s.sampling.set_sampling({.loads = {Mode::frequency, 1e9}});
  CHECK((s.loads() == SamplingRequest::Event{Mode::period, 1}));  // each load, not more
}

TEST("steered sampling: what is granted of the period is told as a frequency") {
  Steered s;
  CHECK_EQ(s.sampling.set_sampling({.loads = {Mode::frequency, 1000}}).loads.value, 1000.0);
  s.second(50000);
  const SamplingRequest asked{.loads = {Mode::frequency, 1000}};
  CHECK(s.sampling.set_sampling(asked) == asked);
  s.memory.grant = [](const SamplingRequest& request) {
    return SamplingRequest{.loads = {request.loads.mode, 4 * request.loads.value}};
  };
  CHECK((s.sampling.set_sampling(asked).loads == SamplingRequest::Event{Mode::frequency, 250}));
  s.memory.grant = [](const SamplingRequest&) { return SamplingRequest{}; };
  CHECK(s.sampling.set_sampling(asked) == SamplingRequest{});
}

TEST("steered sampling: a grant from before loads are seen says nothing of the periods to come") {
  Steered s;
  const SamplingRequest asked{.loads = {Mode::frequency, 1000}};
  s.memory.grant = [](const SamplingRequest& request) {
    SamplingRequest less = request;
    less.loads.value /= 4;
    return less;
  };
  CHECK(s.sampling.set_sampling(asked) == asked);
  s.memory.grant = [](const SamplingRequest&) { return SamplingRequest{}; };
  CHECK(s.sampling.set_sampling(asked) == SamplingRequest{});
}

TEST("steered sampling: a new period only for a rate that has changed") {
  Steered s;
  s.sampling.set_sampling({.loads = {Mode::frequency, 1000}});
  s.second(50000);
  const std::size_t asked = s.memory.sampling.size();
  for (const double loads : {50000, 54000, 46000, 0}) s.second(loads);
  CHECK_EQ(s.memory.sampling.size(), asked);
  s.second(60000);
  CHECK((s.loads() == SamplingRequest::Event{Mode::period, 60}));
  s.sampling.tick(s.now);  // no time has passed
  CHECK_EQ(s.memory.sampling.size(), asked + 1);
}

TEST("steered sampling: what is not a frequency of the whole system passes through") {
  Steered s;
  s.second(50000);
  const SamplingRequest::Event stores{Mode::frequency, 10};
  for (const SamplingRequest::Event loads :
       {SamplingRequest::Event{}, SamplingRequest::Event{Mode::period, 7},
        SamplingRequest::Event{Mode::frequency, 1000, true},
        SamplingRequest::Event{Mode::frequency, 1000, false, true}}) {
    s.sampling.set_sampling({.loads = loads, .stores = stores});
    s.second(100000);
    CHECK((s.memory.sampling.back() == SamplingRequest{.loads = loads, .stores = stores}));
    s.second(50000);
  }
}
