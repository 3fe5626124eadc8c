// SPDX-License-Identifier: MIT

#include "kernels/cachelib_generator.hpp"

#include <algorithm>
#include <utility>

#include "core/types.hpp"

namespace tt::kernels {

Generator::Generator(GeneratorOptions options, const GeneratorClasses& classes,
                     trace::Recorder& recorder)
    : options_(std::move(options)), stream_(classes), recorder_(recorder) {
  const auto filled = [&](std::string_view site, std::uint64_t bytes) {
    const trace::Address start = recorder.map(site, bytes);
    recorder.store(stream_.value, start, bytes);
    return start;
  };
  if (options_.online) {
    rows_ = std::max<std::uint64_t>(
        1, static_cast<std::uint64_t>(static_cast<double>(table_entries) / options_.scale));
    lengths_ = filled("generator.key_lengths", rows_ * length_bytes);
  } else {
    rows_ = options_.keys;
    strings_ = filled("generator.strings", rows_ * string_bytes);
    characters_ = filled("generator.characters", rows_ * characters_bytes);
    requests_ = filled("generator.requests", rows_ * request_bytes);
  }
  lists_ = filled("generator.size_lists", rows_ * list_bytes);
  sizes_ = filled("generator.sizes", rows_ * size_bytes);
  if (!options_.online) {
    entries_ = std::max<std::uint64_t>(
        1, static_cast<std::uint64_t>(options_.index_entries / options_.scale));
    index_ = filled("generator.index", entries_ * index_bytes);
  }
}

std::uint64_t Generator::row(std::uint64_t object) const {
  return options_.key_number(object) % rows_;
}

std::uint64_t Generator::draw(Rng& rng) {
  if (options_.online) {
    const std::uint64_t object = options_.object(rng.uniform());
    recorder_.load(stream_.dependent, lengths_ + row(object) * length_bytes, length_bytes);
    recorder_.load(stream_.dependent, lists_ + row(object) * list_bytes, list_bytes);
    return object;
  }
  // What an entry holds follows from its number: it need not be kept.
  const std::uint64_t entry = rng.below(entries_);
  recorder_.load(stream_.dependent, index_ + entry * index_bytes, index_bytes);
  const std::uint64_t object =
      options_.object(static_cast<double>(mix64(entry ^ 0x696e646578ULL) >> 11) * 0x1.0p-53);
  const trace::Address request = requests_ + row(object) * request_bytes;
  recorder_.load(stream_.dependent, request, operation_at);
  recorder_.store(stream_.update, request + operation_at, 4);
  recorder_.load(stream_.dependent, strings_ + row(object) * string_bytes, string_bytes);
  // Sorting the keys has moved the strings, not their characters, which lie in any order.
  if (const std::uint32_t bytes = options_.key_bytes(object); bytes > inline_characters) {
    const std::uint64_t chunk = ((mix64(object) >> 32) * rows_) >> 32;
    recorder_.load(stream_.dependent, characters_ + chunk * characters_bytes, bytes);
  }
  return object;
}

void Generator::read_size(std::uint64_t object) {
  if (!options_.online)
    recorder_.load(stream_.dependent, lists_ + row(object) * list_bytes, list_bytes);
  recorder_.load(stream_.dependent, sizes_ + row(object) * size_bytes, 8);
}

}  // namespace tt::kernels
