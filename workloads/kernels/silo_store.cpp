// SPDX-License-Identifier: MIT

#include "kernels/silo_store.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace tt::kernels {
namespace {

struct Header {
  std::uint64_t tid;
  trace::Address older;
  std::uint32_t bytes;
  std::uint32_t room;
};

// TID word: lock, latest version, absent; then sequence number and epoch.
constexpr std::uint64_t locked = 1;
constexpr std::uint64_t latest = 2;
constexpr std::uint64_t absent = 4;
constexpr std::uint64_t placeholder = absent | latest;  // inserted, not committed
constexpr unsigned status_bits = 3;
constexpr unsigned epoch_shift = 40;

constexpr std::uint64_t sequence(std::uint64_t tid) { return tid >> status_bits; }

}  // namespace

void SiloTransaction::begin() {
  if (running_) return;
  running_ = true;
  ++store_.active_;
}

void SiloTransaction::end() {
  if (!running_) return;
  reads_.clear();
  leaves_.clear();
  writes_.clear();
  running_ = doomed_ = false;
  if (--store_.active_ == 0) store_.arena_.reclaim();
}

SiloTransaction::Write* SiloTransaction::written(Address record) {
  for (Write& write : writes_)
    if (write.record == record) return &write;
  return nullptr;
}

void SiloTransaction::depend(Masstree::Seen seen) {
  for (const Masstree::Seen& other : leaves_)
    if (other.leaf == seen.leaf) {
      doomed_ |= other.version != seen.version;
      return;
    }
  leaves_.push_back(seen);
}

bool SiloTransaction::load(Address record, std::string& value) {
  TracedMemory& memory = store_.memory();
  const auto& header = memory.peek<Header>(record);
  memory.loads(store_.arena_.classes().record, record, sizeof(Header) + header.bytes);
  reads_.push_back({record, header.tid});
  if ((header.tid & absent) != 0) return false;
  const auto bytes = memory.bytes(record + sizeof(Header), header.bytes);
  value.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return true;
}

bool SiloTransaction::read(Table& table, std::string_view key, std::string& value) {
  begin();
  const Masstree::Found found = table.find(key);
  if (!found.value) {
    depend(found.seen);
    return false;
  }
  if (const Write* own = written(*found.value)) {
    if (own->change != Change::remove) value = own->value;
    return own->change != Change::remove;
  }
  return load(*found.value, value);
}

bool SiloTransaction::write(Table& table, std::string_view key, std::string_view value) {
  begin();
  const Masstree::Found found = table.find(key);
  if (!found.value) {
    depend(found.seen);
    return false;
  }
  TracedMemory& memory = store_.memory();
  const auto& header = memory.load<Header>(store_.arena_.classes().record, *found.value);
  if (value.size() > header.room) throw std::length_error("silo: a value outgrows its record");
  if (Write* own = written(*found.value)) {
    if (own->change == Change::remove) return false;
    own->value = value;
    return true;
  }
  reads_.push_back({*found.value, header.tid});  // that it is there
  if ((header.tid & absent) != 0) return false;
  writes_.push_back(
      {&table, *found.value, Change::update, false, std::string{key}, std::string{value}});
  return true;
}

void SiloTransaction::place(Write& write) {
  TracedMemory& memory = store_.memory();
  write.record = store_.arena_.allocate(sizeof(Header) + write.value.size());
  const auto room = static_cast<std::uint32_t>(
      SiloArena::rounded(sizeof(Header) + write.value.size()) - sizeof(Header));
  memory.store<Header>(store_.arena_.classes().update, write.record,
                       {placeholder, TracedMemory::none, 0, room});
  reads_.push_back({write.record, placeholder});  // another transaction may use it, and win
  const Masstree::Inserted inserted = write.table->insert(write.key, write.record);
  write.placed = true;
  // An own insertion is no conflict: the leaf is expected to look as it made it (§4.6).
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    if (leaves_[i].leaf != inserted.before.leaf) continue;
    doomed_ |= leaves_[i].version != inserted.before.version;
    leaves_.erase(leaves_.begin() + static_cast<std::ptrdiff_t>(i));
    for (const Masstree::Seen& seen : inserted.after)
      if (seen.leaf == inserted.before.leaf || inserted.after.size() > 1) leaves_.push_back(seen);
    break;
  }
}

bool SiloTransaction::insert(Table& table, std::string_view key, std::string_view value) {
  begin();
  const Masstree::Found found = table.find(key);
  if (!found.value) {
    place(writes_.emplace_back(Write{&table, TracedMemory::none, Change::insert, false,
                                     std::string{key}, std::string{value}}));
    return true;
  }
  TracedMemory& memory = store_.memory();
  const auto& header = memory.load<Header>(store_.arena_.classes().record, *found.value);
  if (value.size() > header.room) throw std::length_error("silo: a value outgrows its record");
  if (Write* own = written(*found.value)) {
    if (own->change != Change::remove) return false;
    own->change = Change::update;  // removed and inserted again
    own->value = value;
    return true;
  }
  // Another transaction's record: there, or about to be. Whichever commits first wins.
  reads_.push_back({*found.value, header.tid});
  if ((header.tid & absent) == 0) return false;
  writes_.push_back(
      {&table, *found.value, Change::insert, false, std::string{key}, std::string{value}});
  return true;
}

bool SiloTransaction::remove(Table& table, std::string_view key) {
  begin();
  const Masstree::Found found = table.find(key);
  if (!found.value) {
    depend(found.seen);
    return false;
  }
  if (Write* own = written(*found.value)) {
    const bool there = own->change != Change::remove;
    own->change = Change::remove;
    return there;
  }
  const auto& header = store_.memory().load<Header>(store_.arena_.classes().record, *found.value);
  reads_.push_back({*found.value, header.tid});
  if ((header.tid & absent) != 0) return false;
  writes_.push_back({&table, *found.value, Change::remove, false, std::string{key}, {}});
  return true;
}

void SiloTransaction::scan(Table& table, std::string_view from, std::string_view to,
                           const std::function<bool(std::string_view, std::string_view)>& visit) {
  begin();
  std::string value;
  table.scan(
      from,
      [&](std::string_view key, std::uint64_t record) {
        if (key >= to) return false;
        if (const Write* own = written(record))
          return own->change != Change::update || visit(key, own->value);
        return !load(record, value) || visit(key, value);
      },
      [this](Masstree::Seen seen) { depend(seen); });
}

// ---------------------------------------------------------------------------------------- commit

bool SiloTransaction::valid() {
  if (doomed_) return false;
  TracedMemory& memory = store_.memory();
  for (const Read& read : reads_) {
    const auto tid = memory.load<std::uint64_t>(store_.arena_.classes().record, read.record);
    if ((tid & locked) != 0 && written(read.record) == nullptr) return false;
    if ((tid & ~locked) != read.tid) return false;
  }
  return std::ranges::all_of(leaves_, [this](const Masstree::Seen& seen) {
    return store_.memory().load<std::uint64_t>(store_.arena_.classes().node, seen.leaf) ==
           seen.version;
  });
}

bool SiloTransaction::commit() {
  begin();
  TracedMemory& memory = store_.memory();
  const std::uint32_t update = store_.arena_.classes().update;
  // Phase 1: lock, in an order that all transactions share. Then the epoch is taken.
  std::ranges::sort(writes_, {}, &Write::record);
  std::uint64_t top = store_.last_tid_;
  for (const Write& write : writes_) {
    const auto tid = memory.load<std::uint64_t>(store_.arena_.classes().record, write.record);
    memory.store<std::uint64_t>(update, write.record, tid | locked);
    top = std::max(top, sequence(tid));
  }
  const std::uint64_t epoch = store_.epoch_;
  // Phase 2: what was read is still so.
  if (!valid()) {
    for (const Write& write : writes_)
      memory.store<std::uint64_t>(update, write.record,
                                  memory.peek<std::uint64_t>(write.record) & ~locked);
    abort();
    return false;
  }
  for (const Read& read : reads_) top = std::max(top, sequence(read.tid));
  store_.last_tid_ = std::max(top + 1, epoch << epoch_shift);
  const std::uint64_t tid = store_.last_tid_ << status_bits | latest;
  // Phase 3: write, and unlock by the new TID.
  for (Write& write : writes_) {
    if (write.change == Change::remove) {
      drop(write);
      continue;
    }
    auto& header = memory.poke<Header>(write.record);
    header.bytes = static_cast<std::uint32_t>(write.value.size());
    std::memcpy(memory.bytes(write.record + sizeof(Header), write.value.size()).data(),
                write.value.data(), write.value.size());
    header.tid = tid;
    memory.stores(update, write.record, sizeof(Header) + write.value.size());
  }
  end();
  return true;
}

/// Takes a record out of the tree. Whoever read it sees another TID word from now on.
void SiloTransaction::drop(Write& write) {
  TracedMemory& memory = store_.memory();
  const auto& header = memory.peek<Header>(write.record);
  (void)write.table->remove(write.key);
  store_.arena_.retire(write.record, sizeof(Header) + header.room);
  memory.store<std::uint64_t>(store_.arena_.classes().update, write.record, absent);
}

void SiloTransaction::abort() {
  if (!running_) return;
  // Unless another transaction took the record over, and committed.
  for (Write& write : writes_)
    if (write.placed && store_.memory().peek<std::uint64_t>(write.record) == placeholder)
      drop(write);
  end();
}

}  // namespace tt::kernels
