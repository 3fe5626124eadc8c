// SPDX-License-Identifier: MIT

#include "live/access_source.hpp"

#include <stdexcept>

#include "live/damon_source.hpp"

namespace tt::live {

std::unique_ptr<AccessSource> make_source(std::string_view name, KernelCalls& kernel,
                                          Changes& changes, const Damon::Options& damon,
                                          std::uint64_t seed) {
  if (name == "auto" || name == "damon")
    return std::make_unique<DamonSource>(kernel, changes, damon, seed);
  std::string known;
  for (const std::string_view each : source_names)
    known += (known.empty() ? "" : ", ") + std::string{each};
  throw std::invalid_argument("unknown source " + std::string{name} + "; known: " + known);
}

}  // namespace tt::live
