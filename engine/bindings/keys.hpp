// SPDX-License-Identifier: MIT

// Reads a Python dict by its keys. What is wrong with it is a ValueError that names the key.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace tt::bindings {

class Keys {
 public:
  /// `what` begins each message, and `where` each key in it, such as "machine" and "fast.".
  Keys(nanobind::dict values, std::string what, std::string where = "")
      : values_(std::move(values)), what_(std::move(what)), where_(std::move(where)) {}

  /// Whether it is there, and not None.
  [[nodiscard]] bool has(const char* key);
  /// The value of a key that has to be there: a bool, number, text, dict, list or object.
  template <typename T>
  [[nodiscard]] T get(const char* key);
  /// The value of a key that may be left out, or None: `into` stays as it is.
  template <typename T>
  void take(const char* key, T& into) {
    if (has(key)) into = get<T>(key);
  }
  template <typename T>
  void take(const char* key, std::optional<T>& into) {
    if (has(key)) into = get<T>(key);
  }
  /// The dict that is there under a key.
  [[nodiscard]] Keys inside(const std::string& key);
  /// A dict of the list that is there under a key.
  [[nodiscard]] Keys item(const std::string& key, nanobind::dict values) const {
    return {std::move(values), what_, where_ + key + "[]."};
  }
  /// Refuses keys that nobody has asked for.
  void refuse_others() const;
  [[noreturn]] void fail(const std::string& key, const std::string& message) const;

 private:
  nanobind::handle at(const char* key);
  [[noreturn]] void expected(const char* key, nanobind::handle found, const char* what) const;

  nanobind::dict values_;
  std::string what_, where_;
  std::set<std::string> asked_;
};

template <>
bool Keys::get<bool>(const char* key);
template <>
double Keys::get<double>(const char* key);
template <>
std::uint64_t Keys::get<std::uint64_t>(const char* key);
template <>
std::string Keys::get<std::string>(const char* key);
template <>
nanobind::dict Keys::get<nanobind::dict>(const char* key);
template <>
nanobind::list Keys::get<nanobind::list>(const char* key);
template <>
nanobind::object Keys::get<nanobind::object>(const char* key);

}  // namespace tt::bindings
