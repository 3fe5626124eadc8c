// SPDX-License-Identifier: MIT

#include "kernels/redis_store.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/types.hpp"

namespace tt::kernels {
namespace {

constexpr std::uint64_t smallest_table = 4;

/// Bytes before the characters of an sds, by length: type and, beyond 31 characters, two lengths.
std::uint64_t header_bytes(std::uint64_t length) {
  return length < 32 ? 1 : length < 256 ? 3 : length < 65536 ? 5 : 9;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

std::uint64_t siphash(std::span<const std::byte> text, const std::array<std::uint64_t, 2>& key,
                      int word_rounds, int last_rounds) {
  std::uint64_t v0 = key[0] ^ 0x736f6d6570736575ULL;
  std::uint64_t v1 = key[1] ^ 0x646f72616e646f6dULL;
  std::uint64_t v2 = key[0] ^ 0x6c7967656e657261ULL;
  std::uint64_t v3 = key[1] ^ 0x7465646279746573ULL;
  const auto rounds = [&](int count) {
    for (; count > 0; --count) {
      v0 += v1, v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0, v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32);
      v2 += v1, v0 += v3;
      v1 = std::rotl(v1, 17) ^ v2, v3 = std::rotl(v3, 21) ^ v0;
      v2 = std::rotl(v2, 32);
    }
  };
  const auto absorb = [&](std::uint64_t word) {
    v3 ^= word;
    rounds(word_rounds);
    v0 ^= word;
  };
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, 8);
    absorb(word);
  }
  std::uint64_t last = static_cast<std::uint64_t>(text.size()) << 56;
  for (std::size_t i = 0; at + i < text.size(); ++i)
    last |= std::to_integer<std::uint64_t>(text[at + i]) << (8 * i);
  absorb(last);
  v2 ^= 0xff;
  rounds(last_rounds);
  return v0 ^ v1 ^ v2 ^ v3;
}

RedisStore::RedisStore(RedisMemory& memory, const RedisClasses& classes, std::uint64_t hash_seed)
    : memory_(memory),
      heap_(memory, "redis.heap"),
      classes_(classes),
      hash_key_{mix64(hash_seed), mix64(hash_seed + 1)} {}

std::uint64_t RedisStore::hash(std::string_view key) const {
  return siphash(bytes_of(key), hash_key_);
}

// ------------------------------------------------------------------------------------- strings

RedisStore::Address RedisStore::make_string(std::span<const std::byte> text,
                                            std::uint32_t stream_class) {
  const std::uint64_t header = header_bytes(text.size());
  const std::uint64_t bytes = header + text.size() + 1;
  const Address start = heap_.allocate(bytes, "redis.value");
  memory_.recorder().store(stream_class, start, bytes);
  std::byte* const at = memory_.at(start);
  if (header == 1) {
    at[0] = static_cast<std::byte>(text.size() << 3);
  } else {
    const std::uint64_t width = (header - 1) / 2;
    const std::uint64_t lengths[2] = {text.size(), heap_.usable(bytes) - header - 1};
    std::memcpy(at, &lengths[0], width);
    std::memcpy(at + width, &lengths[1], width);
    at[header - 1] = static_cast<std::byte>(std::bit_width(width));  // type 1, 2, 3
  }
  std::ranges::copy(text, at + header);
  at[header + text.size()] = std::byte{0};
  return start + header;
}

std::span<const std::byte> RedisStore::peek_string(Address text) const {
  const auto flags = memory_.peek<std::uint8_t>(text - 1);
  const unsigned type = flags & 7;
  std::uint64_t length = flags >> 3;
  if (type != 0) {
    const std::uint64_t width = std::uint64_t{1} << (type - 1);
    length = 0;
    std::memcpy(&length, memory_.at(text - 1 - 2 * width), width);
  }
  return {memory_.at(text), length};
}

std::span<const std::byte> RedisStore::load_string(Address text, std::uint32_t stream_class) const {
  const auto content = peek_string(text);
  const std::uint64_t header = header_bytes(content.size());
  memory_.recorder().load(stream_class, text - header, header + content.size());
  return content;
}

void RedisStore::free_string(Address text) {
  heap_.free(text - header_bytes(peek_string(text).size()));
}

RedisStore::Address RedisStore::make_object(std::span<const std::byte> value) {
  const Address text = make_string(value, classes_.update);
  const Address object = heap_.allocate(sizeof(Object));
  memory_.store(classes_.update, object, Object{clock_, 1, text});
  return object;
}

void RedisStore::free_object(Address object) {
  // decrRefCount reads the object, and sdsfree the type before the value's characters.
  const auto content = memory_.load<Object>(classes_.chain, object);
  (void)memory_.load<std::uint8_t>(classes_.chain, content.value - 1);
  free_string(content.value);
  heap_.free(object);
}

// ---------------------------------------------------------------------------------------- dict

RedisStore::Place RedisStore::find(std::string_view key, std::uint64_t hashed) {
  if (rehashing()) rehash(1);
  for (std::size_t number = 0; number < 2 && tables_[number].size > 0; ++number) {
    const Table& table = tables_[number];
    Address link = bucket(table, hashed & (table.size - 1));
    while (const auto entry = memory_.load<Address>(classes_.chain, link)) {
      const auto text = load_string(memory_.load<Entry>(classes_.chain, entry).key, classes_.chain);
      if (std::ranges::equal(text, bytes_of(key))) return {entry, link, number};
      link = entry + offsetof(Entry, next);
    }
  }
  return {};
}

void RedisStore::expand(std::uint64_t entries) {
  const std::uint64_t size = std::bit_ceil(std::max(entries, smallest_table));
  if (rehashing() || size == tables_[0].size || size < tables_[0].used) return;
  const std::uint64_t bytes = size * sizeof(Address);
  const Address start = heap_.allocate(bytes, "redis.dict.table");
  if (!RedisHeap::large(bytes)) {  // what the system maps is zero
    memory_.recorder().store(classes_.update, start, bytes);
    std::fill_n(memory_.at(start), bytes, std::byte{0});
  }
  const Table made{start, size, 0};
  if (tables_[0].size == 0) {
    tables_[0] = made;
  } else {
    tables_[1] = made;
    rehashed_ = 0;
  }
}

std::uint64_t RedisStore::rehash(std::uint64_t buckets) {
  std::uint64_t looked_at = 0;
  std::uint64_t empty_left = buckets * 10;
  for (std::uint64_t moved = 0; moved < buckets && tables_[0].used > 0; ++moved) {
    Address entry = 0;
    Address from = 0;
    for (;; ++rehashed_, ++looked_at) {
      from = bucket(tables_[0], rehashed_);
      entry = memory_.load<Address>(classes_.chain, from);
      if (entry != 0) break;
      if (--empty_left == 0) {
        ++rehashed_;
        return looked_at + 1;
      }
    }
    while (entry != 0) {
      auto content = memory_.load<Entry>(classes_.chain, entry);
      const Address next = content.next;
      const auto key = load_string(content.key, classes_.chain);
      const Address to = bucket(tables_[1], siphash(key, hash_key_) & (tables_[1].size - 1));
      content.next = memory_.load<Address>(classes_.chain, to);
      memory_.store(classes_.update, entry, content);
      memory_.store(classes_.update, to, entry);
      --tables_[0].used;
      ++tables_[1].used;
      entry = next;
    }
    memory_.store(classes_.update, from, Address{0});
    ++rehashed_;
    ++looked_at;
  }
  if (tables_[0].used == 0) {
    heap_.free(tables_[0].start);
    tables_ = {tables_[1], Table{}};
  }
  return looked_at;
}

// ------------------------------------------------------------------------------------ commands

std::optional<std::span<const std::byte>> RedisStore::get(std::string_view key) {
  ++clock_;
  const Place place = find(key, hash(key));
  if (place.entry == 0) return {};
  const auto address = memory_.peek<Entry>(place.entry).object;
  const auto object = memory_.load<Object>(classes_.chain, address);
  memory_.store(classes_.update, address, clock_);  // its first field
  return load_string(object.value, classes_.value);
}

bool RedisStore::set(std::string_view key, std::span<const std::byte> value) {
  ++clock_;
  const std::uint64_t hashed = hash(key);
  const Address object = make_object(value);
  const Place place = find(key, hashed);
  if (place.entry != 0) {
    auto entry = memory_.peek<Entry>(place.entry);
    free_object(entry.object);
    entry.object = object;
    memory_.store(classes_.update, place.entry, entry);
    return false;
  }
  const Address text = make_string(bytes_of(key), classes_.update);
  if (!rehashing() && tables_[0].used >= tables_[0].size) expand(tables_[0].used + 1);
  Table& table = tables_[rehashing() ? 1 : 0];
  const Address link = bucket(table, hashed & (table.size - 1));
  const Address entry = heap_.allocate(sizeof(Entry));
  memory_.store(classes_.update, entry,
                Entry{text, object, memory_.load<Address>(classes_.chain, link)});
  memory_.store(classes_.update, link, entry);
  ++table.used;
  return true;
}

bool RedisStore::remove(std::string_view key) {
  ++clock_;
  const Place place = find(key, hash(key));
  if (place.entry == 0) return false;
  const auto entry = memory_.peek<Entry>(place.entry);
  memory_.store(classes_.update, place.link, entry.next);
  free_string(entry.key);
  free_object(entry.object);
  heap_.free(place.entry);
  --tables_[place.table].used;
  return true;
}

std::uint64_t RedisStore::cron(std::uint64_t buckets) {
  if (!rehashing() && tables_[0].size > smallest_table && tables_[0].used * 10 < tables_[0].size)
    expand(tables_[0].used);
  std::uint64_t looked_at = 0;
  while (rehashing() && looked_at < buckets) looked_at += rehash(1);
  return looked_at;
}

std::string RedisStore::inconsistency() const {
  for (const Table& table : tables_) {
    std::uint64_t entries = 0;
    for (std::uint64_t index = 0; index < table.size; ++index) {
      if (&table == &tables_[0] && rehashing() && index < rehashed_ &&
          memory_.peek<Address>(bucket(table, index)) != 0)
        return "a bucket that was moved holds an entry";
      for (auto entry = memory_.peek<Address>(bucket(table, index)); entry != 0;) {
        const auto content = memory_.peek<Entry>(entry);
        if ((siphash(peek_string(content.key), hash_key_) & (table.size - 1)) != index)
          return "an entry is in another's bucket";
        if (memory_.peek<Object>(content.object).references != 1)
          return "an object is shared or gone";
        ++entries;
        entry = content.next;
      }
    }
    if (entries != table.used) return "a table counts other entries than it has";
  }
  return heap_.inconsistency();
}

}  // namespace tt::kernels
