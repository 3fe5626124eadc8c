// silo: Zipf's law, and what the store and its workloads do.
#include <array>
#include <cmath>

#include "check.hpp"
#include "core/rng.hpp"
#include "kernels/distributions.hpp"

using namespace tt;
using namespace tt::kernels;

TEST("zipf: ranks have the weights of the law") {
  for (const double exponent : {0.0, 0.5, 0.99, 1.0, 1.3}) {
    constexpr int n = 50;
    constexpr int draws = 200000;
    std::array<double, n> weight{};
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += weight[i] = std::pow(i + 1, -exponent);
    std::array<int, n> drawn{};
    const Zipf zipf{n, exponent};
    Rng rng{7};
    for (int i = 0; i < draws; ++i) ++drawn.at(zipf.rank(rng));
    double chi = 0;
    for (int i = 0; i < n; ++i) {
      const double expected = weight[i] / sum * draws;
      chi += (drawn[i] - expected) * (drawn[i] - expected) / expected;
    }
    CHECK(chi < 98);  // 49 degrees of freedom: once in 25,000 draws of a right one
  }
  CHECK_THROWS((Zipf{0, 1}), "at least 1");
  CHECK_THROWS((Zipf{10, -1}), "at least 0");
}

TEST("zipf: a large population costs no table, and its top has the share of the law") {
  // Sums over 400 million ranks: Euler and Maclaurin's formula.
  const Zipf zipf{4e8, 0.99};
  const auto sum = [](double n) {
    return 100 * std::pow(n, 0.01) - 100 + 0.5772 + 0.5 * std::pow(n, -0.99);
  };
  Rng rng{1};
  constexpr int draws = 200000;
  int top = 0;
  for (int i = 0; i < draws; ++i) top += zipf.rank(rng) < 4000000;
  CHECK_NEAR(top / double(draws), sum(4e6) / sum(4e8), 0.004);
}
