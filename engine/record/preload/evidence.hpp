// SPDX-License-Identifier: MIT

// Evidence: what the pages that were away have shown so far, per leaf, mapping and program.
//
// heat.hpp has the model; here its parts are put together: regions (with their zones), the leaves
// in them, and the level of the whole program, each the prior of what lies inside.
#pragma once

#include <cstdint>

#include "record/preload/address_map.hpp"
#include "record/preload/heat.hpp"

namespace tt::record {

class Evidence {
 public:
  explicit Evidence(kernel::OwnMemory& own) : regions_(own), leaves_(own) {}

  [[nodiscard]] Regions& regions() { return regions_; }
  [[nodiscard]] Leaves& leaves() { return leaves_; }

  /// [start, end) was away for `exposed` seconds of processor time. `touched`: the address whose
  /// access ended that, 0 for none; `store`: how it was accessed.
  void observe(std::uint64_t start, std::uint64_t end, double exposed, std::uint64_t touched,
               bool store) {
    each_leaf(start, end, [&](std::uint64_t from, std::uint64_t stop) {
      Leaf* const leaf = leaves_.find(from);
      Region* const region = regions_.find(from);
      if (leaf == nullptr || region == nullptr) return;
      const bool here = touched >= from && touched < stop;
      const std::uint64_t exposure = page_bits(from, stop) & leaf->present;
      leaf->observe(
          exposure, exposed,
          here ? static_cast<unsigned>(touched / kernel::page_bytes % leaf_pages) : no_page,
          around(*region, from));
      // One page for all of a huge one, so that these do not outvote the others.
      const bool fault = touched != 0;
      level_.observe(exposed, fault, unknown_, 128);
      region->level.observe(exposed, fault, level_.rates, 64);
      region->zone(from).observe(exposed, fault, region->level.rates, 32);
      if (here) {
        region->stores.add(store);
        stores_.add(store);
      }
    });
  }
  /// Two neighbours at `address` came back; `swept` as Pair::swept() says.
  void observe_pair(std::uint64_t address, double swept) {
    if (Region* const region = regions_.find(address)) region->sweeps.add(swept);
    sweeps_.add(swept);
  }

  /// What holds around an address.
  [[nodiscard]] const Rates& around(Region& region, std::uint64_t address) const {
    const Level& zone = region.zone(address);
    return zone.weight > 0           ? zone.rates
           : region.level.weight > 0 ? region.level.rates
           : level_.weight > 0       ? level_.rates
                                     : unknown_;
  }
  /// Share of stores among the touches of a region.
  [[nodiscard]] double stores(const Region& region) const {
    return region.stores.value(stores_.value(0.3));
  }
  /// Share of its touches that are part of sweeps.
  [[nodiscard]] double sweeps(const Region& region) const {
    const double share = region.sweeps.value(sweeps_.value(0));
    return share < Pair::chance ? 0 : share;
  }

 private:
  static constexpr unsigned no_page = leaf_pages;

  Regions regions_;
  Leaves leaves_;
  Level level_;  // of the program
  const Rates unknown_ = Rates::unknown();
  Share stores_;
  Share sweeps_;
};

}  // namespace tt::record
