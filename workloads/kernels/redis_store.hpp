// SPDX-License-Identifier: MIT

// A Redis keyspace: dict, sds strings and objects, byte for byte at simulated addresses (public
// source redis/redis, 7.0: dict.c, sds.c, object.c, db.c).
//
//   bucket (8 bytes) -> entry (24: key, object, next) -> key (sds)
//                                                     -> object (16: type and LRU clock, count,
//                                                        pointer) -> value (sds)
//
// The dict has two tables. When the first is full a second of twice the size is mapped and entries
// move over bucket by bucket: one with every command, and some from the server's timer; then the
// first is freed. A GET notes the clock in the object (lookupKey); a SET allocates value and object
// again and frees the old ones (dbOverwrite), so that values move about the heap. Keys are hashed
// with SipHash-1-2 and compared as strings.
//
// Not recorded: what stays in a core's caches, being reused with every command (client buffers, the
// parsed key, the dict's head).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernels/redis_heap.hpp"

namespace tt::kernels {

/// SipHash (Aumasson and Bernstein, INDOCRYPT 2012). Redis takes one round per word and two in the
/// end; the published test vectors are for two and four.
[[nodiscard]] std::uint64_t siphash(std::span<const std::byte> text,
                                    const std::array<std::uint64_t, 2>& key, int word_rounds = 1,
                                    int last_rounds = 2);

struct RedisClasses {
  std::uint32_t chain = 0;   // each address comes from the line before
  std::uint32_t value = 0;   // sequential bytes
  std::uint32_t update = 0;  // stores: buffered
};

class RedisStore {
 public:
  RedisStore(RedisMemory& memory, const RedisClasses& classes, std::uint64_t hash_seed);

  /// The value's bytes, valid until the next command.
  std::optional<std::span<const std::byte>> get(std::string_view key);
  /// Inserts or replaces; true when the key is new.
  bool set(std::string_view key, std::span<const std::byte> value);
  bool remove(std::string_view key);
  /// The server's timer (databasesCron): shrinks a table that is less than a tenth full, and moves
  /// entries of up to `buckets` buckets. Returns how many buckets were looked at.
  std::uint64_t cron(std::uint64_t buckets);
  /// Gives freed tables back to the system; call it between operations.
  void release() { heap_.release(); }

  [[nodiscard]] std::uint64_t size() const { return tables_[0].used + tables_[1].used; }
  [[nodiscard]] std::uint64_t buckets() const { return tables_[0].size + tables_[1].size; }
  [[nodiscard]] bool rehashing() const { return tables_[1].size != 0; }
  [[nodiscard]] const RedisHeap& heap() const { return heap_; }
  /// Checks chains, counts and the heap; empty when all agree.
  [[nodiscard]] std::string inconsistency() const;

 private:
  using Address = trace::Address;
  struct Entry {
    Address key;
    Address object;
    Address next;
  };
  struct Object {
    std::uint32_t type_and_clock;
    std::uint32_t references;
    Address value;
  };
  struct Table {
    Address start = 0;
    std::uint64_t size = 0;  // buckets, a power of two; 0: no table
    std::uint64_t used = 0;
  };
  /// An entry, and the link that leads to it.
  struct Place {
    Address entry = 0;
    Address link = 0;
    std::size_t table = 0;
  };

  [[nodiscard]] std::uint64_t hash(std::string_view key) const;
  [[nodiscard]] Address bucket(const Table& table, std::uint64_t index) const {
    return table.start + index * sizeof(Address);
  }
  Place find(std::string_view key, std::uint64_t hashed);
  void expand(std::uint64_t entries);
  /// Moves the entries of the next `buckets` buckets; stops after ten times as many empty ones.
  std::uint64_t rehash(std::uint64_t buckets);

  // sds: length and type before the characters, a zero behind. The address is the characters'.
  Address make_string(std::span<const std::byte> text, std::uint32_t stream_class);
  void free_string(Address text);
  [[nodiscard]] std::span<const std::byte> peek_string(Address text) const;
  [[nodiscard]] std::span<const std::byte> load_string(Address text,
                                                       std::uint32_t stream_class) const;
  Address make_object(std::span<const std::byte> value);
  void free_object(Address object);

  RedisMemory& memory_;
  RedisHeap heap_;
  RedisClasses classes_;
  std::array<std::uint64_t, 2> hash_key_;
  std::array<Table, 2> tables_;
  std::uint64_t rehashed_ = 0;  // buckets of the first table that are empty by now
  std::uint32_t clock_ = 0;     // commands
};

}  // namespace tt::kernels
