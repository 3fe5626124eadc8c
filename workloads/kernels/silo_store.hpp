// SPDX-License-Identifier: MIT

// Silo: optimistic concurrency control over Masstrees (Tu et al., SOSP'13, §4).
//
// A record is a TID word, a link to older versions (unused here), two sizes, and the value; updates
// that fit are made in place (§4.5). A transaction keeps what it read (with TID words), what it
// will write, and the leaves that it depends on (§4.6: scans, and keys that were missing). Commit
// (Fig. 2) locks the write set in the order of addresses, takes the epoch, validates reads and
// leaves, and writes with a TID above all that it saw. Insertions put an absent record into the
// tree at once.
//
// Transactions may be interleaved between any two of their operations, but one thread runs them
// all, so that commit is atomic. Read-only snapshots and the log are left out.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/masstree.hpp"
#include "kernels/silo_arena.hpp"

namespace tt::kernels {

class SiloStore {
 public:
  using Table = Masstree;

  SiloStore(TracedMemory& memory, const SiloClasses& classes) : arena_(memory, classes) {}

  [[nodiscard]] Table& make_table() { return tables_.emplace_back(arena_); }
  /// In Silo a thread of its own does so every 40 ms.
  void advance_epoch() { ++epoch_; }
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  [[nodiscard]] TracedMemory& memory() { return arena_.memory(); }

 private:
  friend class SiloTransaction;
  SiloArena arena_;
  std::deque<Table> tables_;
  std::uint64_t epoch_ = 1;
  std::uint64_t last_tid_ = 0;
  std::uint64_t active_ = 0;
};

/// One transaction at a time; after commit() or abort() the next one begins with the first call.
class SiloTransaction {
 public:
  using Table = SiloStore::Table;

  explicit SiloTransaction(SiloStore& store) : store_(store) {}
  ~SiloTransaction() { abort(); }
  SiloTransaction(const SiloTransaction&) = delete;
  SiloTransaction& operator=(const SiloTransaction&) = delete;

  /// False when the key is not there; else its value, own writes included.
  bool read(Table& table, std::string_view key, std::string& value);
  /// Replaces a value. False when the key is not there; std::length_error when the value is longer
  /// than the record has room for.
  bool write(Table& table, std::string_view key, std::string_view value);
  /// False when the key is there.
  bool insert(Table& table, std::string_view key, std::string_view value);
  /// False when the key is not there.
  bool remove(Table& table, std::string_view key);
  /// Keys from `from` to below `to` in ascending order, until `visit` returns false. Own writes
  /// show, but for keys that this transaction inserted or removed.
  void scan(Table& table, std::string_view from, std::string_view to,
            const std::function<bool(std::string_view, std::string_view)>& visit);

  /// False when another transaction's writes were in the way; nothing is left of this one then.
  bool commit();
  void abort();

 private:
  using Address = trace::Address;
  enum class Change : std::uint8_t { update, insert, remove };
  struct Read {
    Address record;
    std::uint64_t tid;
  };
  struct Write {
    Table* table;
    Address record;
    Change change;
    bool placed;  // this transaction put the record into the tree
    std::string key;
    std::string value;
  };

  void begin();
  void end();
  [[nodiscard]] Write* written(Address record);
  void depend(Masstree::Seen seen);
  /// Reads a record's header and value. False when it is absent.
  bool load(Address record, std::string& value);
  void place(Write& write);
  [[nodiscard]] bool valid();
  void drop(Write& write);

  SiloStore& store_;
  bool running_ = false;
  bool doomed_ = false;  // a leaf that it depends on changed before one of its own insertions
  std::vector<Read> reads_;
  std::vector<Masstree::Seen> leaves_;
  std::vector<Write> writes_;
};

}  // namespace tt::kernels
