// SPDX-License-Identifier: MIT

#include "emulate/plugin/guest.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace tt::emulate {
namespace {

// GLib is QEMU's: no header of it is needed for two functions.
GArrayHead* new_bytes() {
  const auto make = reinterpret_cast<GArrayHead* (*)()>(::dlsym(RTLD_DEFAULT, "g_byte_array_new"));
  if (make == nullptr) {
    std::fputs("tiertune: this QEMU has no GLib\n", stderr);
    std::exit(1);
  }
  return make();
}

void empty(GArrayHead* bytes) {
  static const auto resize = reinterpret_cast<GArrayHead* (*)(GArrayHead*, unsigned)>(
      ::dlsym(RTLD_DEFAULT, "g_byte_array_set_size"));
  resize(bytes, 0);
}

qemu_plugin_register* find_register(std::string_view name) {
  const GArrayHead* const all = qemu_plugin_get_registers();
  const auto* const first = reinterpret_cast<const qemu_plugin_reg_descriptor*>(all->data);
  for (unsigned i = 0; i < all->len; ++i)
    if (first[i].name == name) return first[i].handle;
  std::fputs("tiertune: this QEMU does not tell registers\n", stderr);
  std::exit(1);
}

}  // namespace

std::uint64_t Guest::rsi() {
  if (bytes_ == nullptr) {
    bytes_ = new_bytes();
    rsi_ = find_register("rsi");
  }
  std::uint64_t value = 0;
  empty(bytes_);
  const int read = qemu_plugin_read_register(rsi_, bytes_);
  if (read > 0) std::memcpy(&value, bytes_->data, std::min<std::size_t>(read, sizeof(value)));
  return value;
}

bool Guest::peek(std::uint64_t address, void* to, std::size_t bytes) {
  if (!qemu_plugin_read_memory_vaddr(address, bytes_, bytes)) return false;
  std::memcpy(to, bytes_->data, bytes);
  return true;
}

bool Guest::switched() {
  ++switches_;
  const std::uint64_t task = rsi();  // its second argument
  const std::uint32_t before = process_;
  name_ = {};
  if (!peek(task + options_.pid, &thread_, sizeof(thread_)) ||
      !peek(task + options_.tgid, &process_, sizeof(process_)) ||
      !peek(task + options_.comm, name_.data(), name_.size() - 1))
    process_ = thread_ = 0;
  classify();
  return process_ != before;
}

void Guest::elsewhere() {
  processes_elsewhere_.push_back(process_);
  classify();
}

void Guest::classify() {
  const auto among = [](const auto& all, const auto& one) {
    return std::ranges::find(all, one) != all.end();
  };
  const std::string_view name(name_.data());
  elsewhere_ = among(processes_elsewhere_, process_) || among(options_.elsewhere, name);
  kernel_thread_ = among(options_.kernel_threads, name);
}

}  // namespace tt::emulate
