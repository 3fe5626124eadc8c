// SPDX-License-Identifier: MIT

#include "keys.hpp"

#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace tt::bindings {

void Keys::fail(const std::string& key, const std::string& message) const {
  throw nb::value_error((what_ + ": " + where_ + key + ": " + message).c_str());
}

void Keys::expected(const char* key, nb::handle found, const char* what) const {
  fail(key, "found " + nb::cast<std::string>(nb::repr(found)) + ", expected " + what);
}

bool Keys::has(const char* key) {
  asked_.insert(key);
  return values_.contains(key) && !values_[key].is_none();
}

nb::handle Keys::at(const char* key) {
  asked_.insert(key);
  if (!values_.contains(key)) fail(key, "missing");
  return values_[key];
}

Keys Keys::inside(const std::string& key) {
  return {get<nb::dict>(key.c_str()), what_, where_ + key + "."};
}

void Keys::refuse_others() const {
  for (const auto& [key, value] : values_) {
    const auto name = nb::cast<std::string>(nb::str(key));
    if (asked_.contains(name)) continue;
    std::string allowed;
    for (const std::string& known : asked_) allowed += (allowed.empty() ? "" : ", ") + known;
    fail(name, "unknown key (allowed: " + allowed + ")");
  }
}

template <>
bool Keys::get<bool>(const char* key) {
  const nb::handle found = at(key);
  if (!nb::isinstance<nb::bool_>(found)) expected(key, found, "true or false");
  return nb::cast<bool>(found);
}

// Python's bool is an int.
template <>
double Keys::get<double>(const char* key) {
  const nb::handle found = at(key);
  const bool number = nb::isinstance<nb::int_>(found) || nb::isinstance<nb::float_>(found);
  if (!number || nb::isinstance<nb::bool_>(found)) expected(key, found, "a number");
  return nb::cast<double>(found);
}

template <>
std::uint64_t Keys::get<std::uint64_t>(const char* key) {
  const nb::handle found = at(key);
  std::uint64_t value = 0;
  if (!nb::isinstance<nb::int_>(found) || nb::isinstance<nb::bool_>(found) ||
      !nb::try_cast(found, value))
    expected(key, found, "an integer from 0 to 2^64 - 1");
  return value;
}

template <>
std::string Keys::get<std::string>(const char* key) {
  const nb::handle found = at(key);
  if (!nb::isinstance<nb::str>(found)) expected(key, found, "a text");
  return nb::cast<std::string>(found);
}

template <>
nb::dict Keys::get<nb::dict>(const char* key) {
  const nb::handle found = at(key);
  if (!nb::isinstance<nb::dict>(found)) expected(key, found, "a mapping");
  return nb::borrow<nb::dict>(found);
}

template <>
nb::list Keys::get<nb::list>(const char* key) {
  const nb::handle found = at(key);
  if (!nb::isinstance<nb::list>(found)) expected(key, found, "a list");
  return nb::borrow<nb::list>(found);
}

template <>
nb::object Keys::get<nb::object>(const char* key) {
  return nb::borrow<nb::object>(at(key));
}

}  // namespace tt::bindings
