// SPDX-License-Identifier: MIT

#include "kernels/silo_tpcc.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>
#include <stdexcept>

#include "kernels/silo_tpcc_rows.hpp"

namespace tt::kernels {

using namespace tpcc;

namespace {

constexpr std::uint32_t districts = 10;

std::uint32_t shrunk(double full, double share) {
  return static_cast<std::uint32_t>(std::max(full * share, 30.0));
}

}  // namespace

Tpcc::Tpcc(SiloStore& store, const TpccOptions& options, const std::function<void(double)>& loaded)
    : transaction_(store),
      rng_(options.seed),
      warehouses_(options.warehouses),
      customers_(shrunk(3000, options.share)),
      items_(shrunk(100000, options.share)),
      first_orders_(customers_) {
  for (std::size_t i = 0; i < table_count; ++i) tables_.push_back(&store.make_table());
  load(loaded);
}

// -------------------------------------------------------------------------------- keys and rows

template <typename... Parts>
Tpcc::Key Tpcc::key(Parts... parts) {
  key_.clear();
  for (const std::uint32_t part : {static_cast<std::uint32_t>(parts)...})
    for (int shift = 24; shift >= 0; shift -= 8)
      key_.push_back(static_cast<char>(part >> shift & 0xff));
  return key_;
}
Tpcc::Key Tpcc::name_key(std::uint32_t w, std::uint32_t d, const std::string& last, Key first) {
  (void)key(w, d);
  key_ += last;
  key_.resize(8 + 16);
  key_ += first;
  key_.resize(8 + 16 + 16);
  return key_;
}
template <typename Row>
bool Tpcc::get(Id id, Key at, Row& row) {
  ++steps_;
  if (!transaction_.read(table(id), at, value_)) return false;
  row = row_of<Row>(value_);
  return true;
}
template <typename Row>
void Tpcc::put(Id id, Key at, const Row& row) {
  ++steps_;
  if (!transaction_.write(table(id), at, {reinterpret_cast<const char*>(&row), sizeof(Row)}))
    throw std::logic_error("tpcc: a row is missing");
}
template <typename Row>
void Tpcc::add(Id id, Key at, const Row& row) {
  ++steps_;
  if (!transaction_.insert(table(id), at, {reinterpret_cast<const char*>(&row), sizeof(Row)}))
    throw std::logic_error("tpcc: a row exists already");
}

std::uint32_t Tpcc::uniform(std::uint32_t low, std::uint32_t high) {
  return low + static_cast<std::uint32_t>(rng_.below(high - low + 1));
}
std::uint32_t Tpcc::skewed(std::uint32_t mask, std::uint32_t high) {
  return ((uniform(0, mask) | uniform(1, high)) + mask / 3) % high + 1;
}
std::string Tpcc::last_name(std::uint32_t number) const {
  static constexpr std::array<const char*, 10> syllables = {
      "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"};
  return std::string{syllables[number / 100 % 10]} + syllables[number / 10 % 10] +
         syllables[number % 10];
}

// ------------------------------------------------------------------------------------------ load

void Tpcc::load(const std::function<void(double)>& loaded) {
  const auto commit = [this] {
    if (!transaction_.commit()) throw std::logic_error("tpcc: loading conflicts with itself");
  };
  const std::uint32_t names = std::max(customers_ / 3, 1u);
  for (std::uint32_t i = 1; i <= items_; ++i) {
    Item row{};
    row.price = uniform(100, 10000);
    add(item, key(i), row);
    if (i % 100 == 0) commit();
  }
  commit();
  for (std::uint32_t w = 1; w <= warehouses_; ++w) {
    Warehouse house{};
    house.ytd = 30000000;
    house.tax = uniform(0, 2000);
    add(warehouse, key(w), house);
    for (std::uint32_t i = 1; i <= items_; ++i) {
      Stock row{};
      row.quantity = static_cast<std::int32_t>(uniform(10, 100));
      add(stock, key(w, i), row);
      if (i % 100 == 0) commit();
    }
    for (std::uint32_t d = 1; d <= districts; ++d) {
      District row{};
      row.ytd = 3000000;
      row.tax = uniform(0, 2000);
      row.next_order = first_orders_ + 1;
      add(district, key(w, d), row);
      for (std::uint32_t c = 1; c <= customers_; ++c) {
        Customer who{};
        const std::string last = last_name(c <= names ? c - 1 : skewed(255, names) - 1);
        std::string first(16, ' ');
        for (char& letter : first) letter = static_cast<char>('a' + rng_.below(26));
        who.balance = -1000;
        who.ytd_payment = 1000;
        who.payments = 1;
        who.discount = uniform(0, 5000);
        who.bad_credit = rng_.below(10) == 0 ? 1 : 0;
        std::memcpy(who.first, first.data(), 16);
        std::memcpy(who.last, last.data(), std::min<std::size_t>(last.size(), 16));
        add(customer, key(w, d, c), who);
        add(customer_name, name_key(w, d, last, first), CustomerName{c});
        add(history, key(w, d, c, ++histories_), History{1000, ++date_, {}});
        if (c % 100 == 0) commit();
      }
      std::vector<std::uint32_t> order(first_orders_);
      std::iota(order.begin(), order.end(), 1u);
      for (std::uint64_t left = order.size(); left > 1; --left)
        std::swap(order[left - 1], order[rng_.below(left)]);
      for (std::uint32_t o = 1; o <= first_orders_; ++o) {
        const bool open = o > first_orders_ * 7 / 10;
        const Order made{order[o - 1], uniform(5, 15), open ? 0 : uniform(1, 10), 1, ++date_};
        add(orders, key(w, d, o), made);
        add(customer_orders, key(w, d, made.customer, ~o), CustomerOrder{o});
        if (open) add(new_orders, key(w, d, o), NewOrder{0});
        for (std::uint32_t n = 1; n <= made.lines; ++n) {
          OrderLine line{};
          line.item = uniform(1, items_);
          line.supplier = w;
          line.amount = open ? uniform(1, 999999) : 0;
          line.delivered = open ? 0 : made.date;
          line.quantity = 5;
          add(order_line, key(w, d, o, n), line);
        }
        if (o % 10 == 0) commit();
      }
      commit();
      if (loaded) loaded(((w - 1) * districts + d) / static_cast<double>(warehouses_ * districts));
    }
  }
}

// ---------------------------------------------------------------------------------- transactions

Tpcc::Kind Tpcc::draw() {
  const auto dice = rng_.below(100);
  return dice < 45   ? new_order
         : dice < 88 ? payment
         : dice < 92 ? delivery
         : dice < 96 ? order_status
                     : stock_level;
}

bool Tpcc::run(Kind kind) {
  steps_ = 0;
  ++date_;
  bool done = true;
  switch (kind) {
    case new_order:
      done = run_new_order();
      break;
    case payment:
      run_payment();
      break;
    case delivery:
      run_delivery();
      break;
    case order_status:
      run_order_status();
      break;
    case stock_level:
      run_stock_level();
      break;
  }
  if (!done) {
    transaction_.abort();
    return false;
  }
  if (!transaction_.commit())
    throw std::logic_error("tpcc: a conflict, although transactions run one by one");
  return true;
}

std::uint32_t Tpcc::draw_customer(std::uint32_t w, std::uint32_t d) {
  if (rng_.below(100) >= 60) return skewed(1023, customers_);
  // The middle one of those of this name, by first names (§2.5.2.2).
  const std::string last = last_name(skewed(255, std::max(customers_ / 3, 1u)) - 1);
  std::vector<std::uint32_t> found;
  const std::string from{name_key(w, d, last, "")};
  const std::string to{name_key(w, d, last, std::string(16, '\x7f'))};
  transaction_.scan(table(customer_name), from, to, [&](Key, Key value) {
    ++steps_;
    found.push_back(row_of<CustomerName>(value).id);
    return true;
  });
  return found.at(found.size() / 2);
}

bool Tpcc::run_new_order() {
  const std::uint32_t w = uniform(1, warehouses_);
  const std::uint32_t d = uniform(1, districts);
  const std::uint32_t c = skewed(1023, customers_);
  const std::uint32_t lines = uniform(5, 15);
  const bool unknown = rng_.below(100) == 0;
  Warehouse house{};
  District place{};
  Customer who{};
  (void)get(warehouse, key(w), house);
  (void)get(customer, key(w, d, c), who);
  (void)get(district, key(w, d), place);
  const std::uint32_t o = place.next_order++;
  put(district, key(w, d), place);
  add(new_orders, key(w, d, o), NewOrder{0});
  add(customer_orders, key(w, d, c, ~o), CustomerOrder{o});
  std::uint32_t local = 1;
  for (std::uint32_t n = 1; n <= lines; ++n) {
    const std::uint32_t i = unknown && n == lines ? items_ + 1 : skewed(8191, items_);
    std::uint32_t supplier = w;
    if (warehouses_ > 1 && rng_.below(100) == 0) {
      supplier = uniform(1, warehouses_ - 1);
      supplier += supplier >= w ? 1 : 0;
      local = 0;
    }
    Item what{};
    if (!get(item, key(i), what)) return false;
    Stock there{};
    (void)get(stock, key(supplier, i), there);
    const auto quantity = static_cast<std::int32_t>(uniform(1, 10));
    there.quantity -= quantity;
    if (there.quantity < 10) there.quantity += 91;
    there.ytd += quantity;
    ++there.orders;
    there.remote += supplier != w ? 1 : 0;
    put(stock, key(supplier, i), there);
    OrderLine line{};
    line.item = i;
    line.supplier = supplier;
    line.quantity = static_cast<std::uint32_t>(quantity);
    line.amount = quantity * what.price;
    add(order_line, key(w, d, o, n), line);
  }
  add(orders, key(w, d, o), Order{c, lines, 0, local, date_});
  return true;
}

void Tpcc::run_payment() {
  const std::uint32_t w = uniform(1, warehouses_);
  const std::uint32_t d = uniform(1, districts);
  const std::int64_t amount = uniform(100, 500000);
  // 15 % pay for a customer of another warehouse (§2.5.1.2).
  std::uint32_t of_w = w;
  std::uint32_t of_d = d;
  if (warehouses_ > 1 && rng_.below(100) < 15) {
    of_w = uniform(1, warehouses_ - 1);
    of_w += of_w >= w ? 1 : 0;
    of_d = uniform(1, districts);
  }
  Warehouse house{};
  (void)get(warehouse, key(w), house);
  house.ytd += amount;
  put(warehouse, key(w), house);
  District place{};
  (void)get(district, key(w, d), place);
  place.ytd += amount;
  put(district, key(w, d), place);
  const std::uint32_t c = draw_customer(of_w, of_d);
  Customer who{};
  (void)get(customer, key(of_w, of_d, c), who);
  who.balance -= amount;
  who.ytd_payment += amount;
  ++who.payments;
  if (who.bad_credit != 0) {
    // The payment is put before the customer's data.
    std::memmove(who.data + 40, who.data, sizeof(who.data) - 40);
    std::memcpy(who.data, &amount, sizeof(amount));
  }
  put(customer, key(of_w, of_d, c), who);
  add(history, key(of_w, of_d, c, ++histories_), History{amount, date_, {}});
}

void Tpcc::run_delivery() {
  const std::uint32_t w = uniform(1, warehouses_);
  const std::uint32_t carrier = uniform(1, 10);
  for (std::uint32_t d = 1; d <= districts; ++d) {
    std::uint32_t oldest = 0;
    const std::string from{key(w, d)};
    const std::string to{key(w, d + 1)};
    transaction_.scan(table(new_orders), from, to, [&](Key at, Key) {
      ++steps_;
      oldest = number_at(at, 2);
      return false;
    });
    if (oldest == 0) continue;  // none waits
    ++steps_;
    (void)transaction_.remove(table(new_orders), key(w, d, oldest));
    Order what{};
    (void)get(orders, key(w, d, oldest), what);
    what.carrier = carrier;
    put(orders, key(w, d, oldest), what);
    std::int64_t sum = 0;
    for (std::uint32_t n = 1; n <= what.lines; ++n) {
      OrderLine line{};
      (void)get(order_line, key(w, d, oldest, n), line);
      sum += line.amount;
      line.delivered = date_;
      put(order_line, key(w, d, oldest, n), line);
    }
    Customer who{};
    (void)get(customer, key(w, d, what.customer), who);
    who.balance += sum;
    ++who.deliveries;
    put(customer, key(w, d, what.customer), who);
  }
}

void Tpcc::run_order_status() {
  const std::uint32_t w = uniform(1, warehouses_);
  const std::uint32_t d = uniform(1, districts);
  const std::uint32_t c = draw_customer(w, d);
  Customer who{};
  (void)get(customer, key(w, d, c), who);
  std::uint32_t last = 0;
  const std::string from{key(w, d, c)};
  const std::string to{key(w, d, c + 1)};
  transaction_.scan(table(customer_orders), from, to, [&](Key, Key value) {
    ++steps_;
    last = row_of<CustomerOrder>(value).order;
    return false;
  });
  if (last == 0) return;
  Order what{};
  (void)get(orders, key(w, d, last), what);
  const std::string first_line{key(w, d, last)};
  const std::string end{key(w, d, last + 1)};
  transaction_.scan(table(order_line), first_line, end, [&](Key, Key) {
    ++steps_;
    return true;
  });
}

void Tpcc::run_stock_level() {
  const std::uint32_t w = uniform(1, warehouses_);
  const std::uint32_t d = uniform(1, districts);
  const auto threshold = static_cast<std::int32_t>(uniform(10, 20));
  District place{};
  (void)get(district, key(w, d), place);
  const std::uint32_t since = place.next_order > 20 ? place.next_order - 20 : 1;
  std::set<std::uint32_t> sold;
  const std::string from{key(w, d, since)};
  const std::string to{key(w, d, place.next_order)};
  transaction_.scan(table(order_line), from, to, [&](Key, Key value) {
    ++steps_;
    sold.insert(row_of<OrderLine>(value).item);
    return true;
  });
  [[maybe_unused]] std::uint32_t low = 0;  // what the client would get
  for (const std::uint32_t i : sold) {
    Stock there{};
    (void)get(stock, key(w, i), there);
    low += there.quantity < threshold ? 1 : 0;
  }
}

// ------------------------------------------------------------------------------------ conditions

std::string Tpcc::inconsistency() {
  std::string wrong;
  const auto expect = [&](bool holds, const char* condition) {
    if (!holds) wrong += std::string{condition} + "; ";
  };
  const auto rows = [this](Id id, const std::string& from, const std::string& to, auto visit) {
    transaction_.scan(table(id), from, to, [&](Key at, Key value) {
      visit(at, value);
      return true;
    });
    (void)transaction_.commit();
  };
  for (std::uint32_t w = 1; w <= warehouses_; ++w) {
    Warehouse house{};
    (void)get(warehouse, key(w), house);
    std::int64_t district_ytd = 0;
    std::int64_t history_sum = 0;
    for (std::uint32_t d = 1; d <= districts; ++d) {
      District place{};
      (void)get(district, key(w, d), place);
      district_ytd += place.ytd;
      const std::string from{key(w, d)};
      const std::string to{key(w, d + 1)};
      std::uint32_t last_order = 0;
      std::uint64_t lines_expected = 0;
      std::uint64_t undelivered = 0;
      rows(orders, from, to, [&](Key at, Key value) {
        last_order = number_at(at, 2);
        lines_expected += row_of<Order>(value).lines;
        undelivered += row_of<Order>(value).carrier == 0 ? 1 : 0;
      });
      std::uint32_t first_new = 0;
      std::uint32_t last_new = 0;
      std::uint64_t waiting = 0;
      rows(new_orders, from, to, [&](Key at, Key) {
        if (waiting++ == 0) first_new = number_at(at, 2);
        last_new = number_at(at, 2);
      });
      std::uint64_t lines = 0;
      rows(order_line, from, to, [&](Key, Key) { ++lines; });
      rows(history, from, to,
           [&](Key, Key value) { history_sum += row_of<History>(value).amount; });
      // 2: the district's next order follows the last one, which is new if any is.
      expect(place.next_order == last_order + 1, "2: next order");
      expect(waiting == 0 || last_new == last_order, "2: last new order");
      // 3: new orders are the latest without a gap.
      expect(waiting == 0 || last_new - first_new + 1 == waiting, "3: gap in new orders");
      expect(waiting == undelivered, "3: new orders and orders without a carrier");
      // 4: orders have their lines.
      expect(lines == lines_expected, "4: order lines");
    }
    expect(house.ytd == district_ytd, "1: year to date of warehouse and districts");
    // 8, 9: what was paid. At first a warehouse has 300,000 and its customers 10 each.
    if (warehouses_ == 1)
      expect(house.ytd - 30000000 == history_sum - std::int64_t{1000} * districts * customers_,
             "8: payments");
  }
  (void)transaction_.commit();
  return wrong;
}

}  // namespace tt::kernels
