// SPDX-License-Identifier: MIT

// TPC-C on Silo: its nine tables and five transactions (TPC Benchmark C, revision 5.11), as in
// stephentu/silo's benchmarks/tpcc.cc.
//
// In a miniature the number of warehouses is divided by the scale; below one warehouse its items,
// stock, customers and first orders are. Keys are big-endian, so that scans follow their order. The
// index of a customer's orders holds the complement of the order's number, newest first. Read-only
// transactions run as ordinary ones (Silo can give them a snapshot).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/rng.hpp"
#include "kernels/silo_store.hpp"

namespace tt::kernels {

struct TpccOptions {
  std::uint32_t warehouses = 1;
  double share = 1;  // of a warehouse's items, stock, customers and first orders
  std::uint64_t seed = 0;
};

class Tpcc {
 public:
  enum Kind : std::uint32_t { new_order, payment, delivery, order_status, stock_level };

  /// Creates and fills the tables (§4.3). `loaded` gets the fraction done.
  Tpcc(SiloStore& store, const TpccOptions& options,
       const std::function<void(double)>& loaded = {});

  /// A kind drawn from the mix: 45, 43, 4, 4 and 4 % (§5.2.3, as Silo runs it).
  [[nodiscard]] Kind draw();
  /// Runs one transaction. False when it was rolled back: 1 % of new orders name an unknown item.
  bool run(Kind kind);

  /// Records that the last transaction read, wrote or inserted.
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] std::uint32_t warehouses() const { return warehouses_; }
  [[nodiscard]] std::uint32_t customers() const { return customers_; }
  [[nodiscard]] std::uint32_t items() const { return items_; }

  /// Checks the consistency conditions 1 to 4, and 8 and 9 for the year-to-date sums (§3.3.2);
  /// returns those that do not hold, empty when all do.
  [[nodiscard]] std::string inconsistency();

 private:
  using Key = std::string_view;
  enum Id : std::size_t {
    warehouse,
    district,
    customer,
    customer_name,
    history,
    new_orders,
    orders,
    customer_orders,
    order_line,
    item,
    stock,
    table_count
  };

  template <typename... Parts>
  Key key(Parts... parts);
  Key name_key(std::uint32_t w, std::uint32_t d, const std::string& last, Key first);
  [[nodiscard]] SiloStore::Table& table(Id id) { return *tables_[id]; }
  template <typename Row>
  bool get(Id id, Key key, Row& row);
  template <typename Row>
  void put(Id id, Key key, const Row& row);
  template <typename Row>
  void add(Id id, Key key, const Row& row);
  [[nodiscard]] std::uint32_t uniform(std::uint32_t low, std::uint32_t high);
  [[nodiscard]] std::uint32_t skewed(std::uint32_t mask, std::uint32_t high);  // NURand, §2.1.6
  [[nodiscard]] std::string last_name(std::uint32_t number) const;             // §4.3.2.3
  /// A customer of the district, 60 % by last name.
  [[nodiscard]] std::uint32_t draw_customer(std::uint32_t w, std::uint32_t d);
  void load(const std::function<void(double)>& loaded);
  bool run_new_order();
  void run_payment();
  void run_delivery();
  void run_order_status();
  void run_stock_level();

  SiloTransaction transaction_;
  std::vector<SiloStore::Table*> tables_;
  Rng rng_;
  std::uint32_t warehouses_;
  std::uint32_t customers_;  // per district
  std::uint32_t items_;
  std::uint32_t first_orders_;  // per district
  std::uint32_t histories_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t date_ = 0;
  std::string key_;
  std::string value_;
};

}  // namespace tt::kernels
