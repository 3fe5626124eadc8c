// SPDX-License-Identifier: MIT

// The rules of ticks: deadlines that do not slip, never early, nothing made up for, and a hurry.
#include <chrono>
#include <vector>

#include "check.hpp"
#include "core/every.hpp"
#include "core/ticker.hpp"
#include "core/types.hpp"

using namespace tt;

namespace {

/// Ticks at each of these times at which one is due; returns the deadlines that follow.
std::vector<double> deadlines(Ticker<Nanos> ticker, const std::vector<double>& looks) {
  std::vector<double> next{seconds(ticker.next())};
  for (const double look : looks) {
    if (!ticker.due(from_seconds(look))) continue;
    ticker.tick(from_seconds(look));
    next.push_back(seconds(ticker.next()));
  }
  return next;
}

}  // namespace

TEST("ticker: the first tick is due a period after the start, and none is early") {
  const Ticker<Nanos> ticker(from_seconds(10), from_seconds(5));
  CHECK_EQ(seconds(ticker.next()), 15.0);
  CHECK(!ticker.due(from_seconds(15) - Nanos{1}));
  CHECK(ticker.due(from_seconds(15)));
  CHECK(deadlines(Ticker<Nanos>(from_seconds(10)), {1, 9}) == std::vector<double>{10});
}

TEST("ticker: deadlines do not slip with late ticks, and one look is one tick") {
  CHECK(deadlines(Ticker<Nanos>(from_seconds(10)), {13, 19, 20, 39, 40}) ==
        (std::vector<double>{10, 20, 30, 40, 50}));
}

TEST("ticker: what was missed for a whole period is not made up for") {
  // A tick that is late by a period or more begins anew; by less, it does not.
  CHECK(deadlines(Ticker<Nanos>(from_seconds(10)), {19.5, 20, 47, 47, 56, 57}) ==
        (std::vector<double>{10, 20, 30, 57, 67}));
  CHECK(deadlines(Ticker<Nanos>(from_seconds(10)), {20}) == (std::vector<double>{10, 30}));
}

TEST("ticker: another period holds from the next deadline on, in a hurry at once") {
  Ticker<Nanos> ticker(from_seconds(10));
  ticker.set_period(from_seconds(1));
  CHECK_EQ(seconds(ticker.next()), 10.0);
  ticker.tick(from_seconds(10));
  CHECK_EQ(seconds(ticker.next()), 11.0);
  ticker.hurry(from_millis(10200), from_millis(500));
  CHECK_EQ(seconds(ticker.next()), 10.7);
  ticker.hurry(from_millis(10300), from_seconds(60));  // no hurry makes a tick later
  CHECK_EQ(seconds(ticker.next()), 10.7);
  ticker.tick(from_seconds(11));
  CHECK_EQ(seconds(ticker.next()), 70.7);
}

TEST("ticker: a model's clock has fractions of nanoseconds, and the same rules") {
  using Fine = std::chrono::duration<double, std::nano>;
  Ticker<Fine> ticker(Fine{0.5});
  CHECK(!ticker.due(Fine{0.49}));
  ticker.tick(Fine{0.75});
  CHECK_EQ(ticker.next().count(), 1.0);
  ticker.tick(Fine{1.5});
  CHECK_EQ(ticker.next().count(), 2.0);
}

TEST("ticker: who looks now and then keeps the same rules") {
  Every every(from_seconds(10));
  std::vector<double> done;
  for (const double look : {1.0, 9.0, 13.0, 19.0, 20.0, 47.0, 48.0, 56.0, 57.0})
    if (every.due(from_seconds(look))) done.push_back(look);
  CHECK(done == (std::vector<double>{13, 20, 47, 57}));
}
