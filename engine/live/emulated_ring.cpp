// SPDX-License-Identifier: MIT

#include "live/emulated_ring.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "live/words.hpp"

namespace tt::live {
namespace {

using emulate::ring_header_bytes;
using emulate::SampleRecord;

/// The vendor is Red Hat, the device QEMU's ivshmem (its docs/specs/ivshmem-spec.rst).
constexpr const char* ring_vendor = "0x1af4";
constexpr const char* ring_device = "0x1110";
const std::string pci_devices = "/sys/bus/pci/devices";

// The other side is another program: a word is read and written in one piece, and what it tells of
// was written before.
std::uint64_t load(std::uint64_t& word) {
  return std::atomic_ref(word).load(std::memory_order_acquire);
}
void store(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

void expect(const char* what, std::uint64_t found, std::uint64_t expected, const char* hint) {
  if (found != expected)
    throw std::runtime_error("found " + std::string{what} + " " + std::to_string(found) +
                             ", expected " + std::to_string(expected) + hint);
}

void expect_size(DeviceMemory& memory) {
  expect("bytes:", memory.bytes().size(), emulate::ring_bytes, "; it is no sampler's ring");
}

emulate::SampleRing& checked(DeviceMemory& memory) {
  expect_size(memory);
  auto& ring = *reinterpret_cast<emulate::SampleRing*>(memory.bytes().data());
  if (const std::uint64_t magic = load(ring.magic); magic != emulate::ring_magic) {
    std::array<char, 16> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), magic, 16).ptr;
    throw std::runtime_error("found " + std::string{digits.data(), end} +
                             " where a sampler's ring says 676e697272656974: the machine samples "
                             "nothing, or the device has another use");
  }
  const char* const other = "; the machine is emulated by another version of TierTune";
  expect("version", ring.version, emulate::ring_version, other);
  expect("record_bytes", ring.record_bytes, sizeof(SampleRecord), other);
  expect("records", ring.records, emulate::ring_records, other);
  return ring;
}

std::string text_in(KernelCalls& kernel, const std::string& path) {
  std::string text;
  return kernel.read(path, text) == 0 ? stripped(text) : "";
}

/// Turns a device's memory on. The file counts who has done so: what it has above 0 stays.
void enable(Changes& changes, KernelCalls& kernel, const std::string& path) {
  std::string before;
  int error = kernel.read(path, before);
  if (error == 0 && stripped(before) == "0") error = changes.write(path, "1", "0");
  if (error != 0)
    throw std::runtime_error("to turn it on, " + path + ": " + message(error) + "; it takes root");
}

/// A device of this kind. std::runtime_error where it cannot be used.
std::unique_ptr<EmulatedRing> open_device(KernelCalls& kernel, Changes& changes,
                                          const std::string& folder) {
  const std::string resource = folder + "/resource2";
  std::unique_ptr<DeviceMemory> memory;
  if (const int error = kernel.map_device(resource, memory); error != 0)
    throw std::runtime_error(resource + ": " + message(error) +
                             "; it takes root, and a kernel that is not locked down");
  try {
    expect_size(*memory);  // another user's of ivshmem is not touched
    enable(changes, kernel, folder + "/enable");
    return std::make_unique<EmulatedRing>(std::move(memory));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(resource + ": " + error.what());
  }
}

}  // namespace

EmulatedRing::EmulatedRing(std::unique_ptr<DeviceMemory> memory)
    : memory_(std::move(memory)),
      ring_(checked(*memory_)),
      records_(memory_->bytes().subspan(ring_header_bytes)),
      tail_(load(ring_.tail)) {}

void EmulatedRing::leave_tail(std::uint64_t tail) {
  tail_ = tail;
  store(ring_.tail, tail);
}

void EmulatedRing::skip() { leave_tail(load(ring_.head)); }

void EmulatedRing::read(std::vector<SampleRecord>& out) {
  shared_ = shared_ || load(ring_.tail) != tail_;
  const std::uint64_t head = load(ring_.head);
  // Also of a head that has gone back.
  if (head - tail_ > emulate::ring_records) {
    ++restarts_;
    leave_tail(head);
    return;
  }
  const std::size_t from = out.size();
  out.resize(from + head - tail_);
  std::size_t place = tail_ % emulate::ring_records;
  for (std::size_t i = from; i < out.size(); ++i) {
    std::memcpy(&out[i], &records_[place * sizeof(SampleRecord)], sizeof(SampleRecord));
    if (++place == emulate::ring_records) place = 0;
  }
  leave_tail(head);
}

void EmulatedRing::set(AccessKind kind, std::uint64_t period, std::uint64_t interval_ns) {
  store(ring_.interval_ns[index(kind)], interval_ns);
  store(ring_.period[index(kind)], period);
}

std::uint64_t EmulatedRing::lost() const { return load(ring_.lost); }

std::uint64_t EmulatedRing::misses(AccessKind kind, Tier tier) const {
  return load(ring_.misses[index(kind)][index(tier)]);
}

FoundRing find_emulated_ring(KernelCalls& kernel, Changes& changes) {
  FoundRing out;
  out.missing = "this machine has no sampler's ring (PCI device 1af4:1110): it is not emulated";
  std::vector<std::string> names;
  if (const int error = kernel.folders(pci_devices, names); error != 0) {
    if (error != ENOENT) out.missing = pci_devices + ": " + message(error);
    return out;
  }
  std::ranges::sort(names);
  for (const std::string& name : names) {
    const std::string folder = pci_devices + "/" + name;
    if (text_in(kernel, folder + "/vendor") != ring_vendor ||
        text_in(kernel, folder + "/device") != ring_device)
      continue;
    try {
      out.ring = open_device(kernel, changes, folder);
      out.is_there = true;
      out.missing.clear();
      return out;
    } catch (const std::runtime_error& error) {
      if (!out.is_there) out.missing = error.what();  // the first one is named
      out.is_there = true;
    }
  }
  return out;
}

}  // namespace tt::live
