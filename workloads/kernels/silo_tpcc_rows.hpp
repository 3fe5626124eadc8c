// SPDX-License-Identifier: MIT

// The rows of TPC-C's tables, as Silo stores them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace tt::kernels::tpcc {

// Rows with the fields that transactions use and the sizes of §1.3; text that is never read is
// one array. Money is in cents.
struct Warehouse {
  std::int64_t ytd;
  std::uint32_t tax;
  char text[77];
};
struct District {
  std::int64_t ytd;
  std::uint32_t tax;
  std::uint32_t next_order;
  char text[79];
};
struct Customer {
  std::int64_t balance;
  std::int64_t ytd_payment;
  std::uint32_t payments;
  std::uint32_t deliveries;
  std::uint32_t discount;
  char bad_credit;
  char first[16];
  char last[16];
  char text[100];
  char data[500];
};
struct CustomerName {
  std::uint32_t id;
};
struct History {
  std::int64_t amount;
  std::uint64_t date;
  char text[24];
};
struct NewOrder {
  std::uint32_t unused;
};
struct Order {
  std::uint32_t customer;
  std::uint32_t lines;
  std::uint32_t carrier;  // 0: not delivered
  std::uint32_t local;
  std::uint64_t date;
};
struct CustomerOrder {
  std::uint32_t order;
};
struct OrderLine {
  std::uint32_t item;
  std::uint32_t supplier;
  std::int64_t amount;
  std::uint64_t delivered;  // 0: not yet
  std::uint32_t quantity;
  char text[24];
};
struct Item {
  std::int64_t price;
  char text[78];
};
struct Stock {
  std::int64_t ytd;
  std::int32_t quantity;
  std::uint32_t orders;
  std::uint32_t remote;
  char text[290];
};

/// A row from its bytes.
template <typename Row>
Row row_of(std::string_view value) {
  static_assert(std::is_trivially_copyable_v<Row>);
  Row row;
  std::memcpy(&row, value.data(), sizeof(Row));
  return row;
}

/// The i-th number of a key.
inline std::uint32_t number_at(std::string_view key, std::size_t i) {
  std::uint32_t number = 0;
  for (std::size_t k = 4 * i; k < 4 * i + 4; ++k)
    number = number << 8 | static_cast<std::uint8_t>(key[k]);
  return number;
}

}  // namespace tt::kernels::tpcc
