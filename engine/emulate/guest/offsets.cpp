// SPDX-License-Identifier: MIT

// Offsets in the kernel's structures, from its BTF: what /sys/kernel/btf/vmlinux holds is described
// in the kernel's documentation, "BPF Type Format (BTF)".
#include <cstdio>
#include <cstring>
#include <optional>

#include "emulate/guest/guest.hpp"

namespace tt::emulate {
namespace {

struct BtfHeader {
  std::uint16_t magic;
  std::uint8_t version, flags;
  std::uint32_t header_bytes, types_at, types_bytes, names_at, names_bytes;
};
struct BtfType {
  std::uint32_t name, info, size;
  [[nodiscard]] unsigned kind() const { return info >> 24 & 31; }
  [[nodiscard]] unsigned count() const { return info & 0xffff; }
  [[nodiscard]] bool has_bit_sizes() const { return info >> 31 != 0; }
};
struct BtfMember {
  std::uint32_t name, type, offset;
};
constexpr unsigned btf_struct = 4, btf_union = 5;

class Btf {
 public:
  explicit Btf(std::string bytes) : bytes_(std::move(bytes)) {
    const auto header = read<BtfHeader>(0);
    if (header.magic != 0xeb9f) throw std::runtime_error("the kernel's BTF is in another format");
    names_ = header.header_bytes + header.names_at;
    const std::size_t end = header.header_bytes + header.types_at + header.types_bytes;
    for (std::size_t at = header.header_bytes + header.types_at; at < end;) {
      types_.push_back(at);
      at += sizeof(BtfType) + behind(read<BtfType>(at));
    }
  }

  /// In bytes; of the first structure of this name that has such a field.
  [[nodiscard]] std::uint64_t offset(const std::string& structure, const std::string& field) const {
    for (const std::size_t at : types_) {
      const auto type = read<BtfType>(at);
      if (type.kind() != btf_struct || structure != name(type.name)) continue;
      if (const auto found = search(at, field)) return *found;
    }
    throw std::runtime_error("the kernel's " + structure + " has no " + field);
  }

 private:
  template <typename T>
  [[nodiscard]] T read(std::size_t at) const {
    if (at + sizeof(T) > bytes_.size()) throw std::runtime_error("the kernel's BTF is cut short");
    T out;
    std::memcpy(&out, bytes_.data() + at, sizeof(T));
    return out;
  }
  [[nodiscard]] const char* name(std::uint32_t at) const {
    if (names_ + at >= bytes_.size()) throw std::runtime_error("the kernel's BTF is cut short");
    return bytes_.data() + names_ + at;
  }
  /// Bytes of what follows a type.
  static std::size_t behind(const BtfType& type) {
    switch (type.kind()) {
      case 1:
        return 4;  // integer
      case 3:
        return 12;  // array
      case btf_struct:
      case btf_union:
        return sizeof(BtfMember) * type.count();
      case 6:
        return 8ul * type.count();  // enumeration
      case 13:
        return 8ul * type.count();  // function's prototype
      case 14:
        return 4;  // variable
      case 15:
        return 12ul * type.count();  // section
      case 17:
        return 4;  // tag of a declaration
      case 19:
        return 12ul * type.count();  // enumeration of 64 bits
      default:
        return 0;
    }
  }
  /// Also in structures and unions without a name.
  [[nodiscard]] std::optional<std::uint64_t> search(std::size_t at,
                                                    const std::string& field) const {
    const auto type = read<BtfType>(at);
    for (unsigned i = 0; i < type.count(); ++i) {
      const auto member = read<BtfMember>(at + sizeof(BtfType) + i * sizeof(BtfMember));
      const std::uint64_t bits = type.has_bit_sizes() ? member.offset & 0xffffff : member.offset;
      if (field == name(member.name)) return bits / 8;
      if (*name(member.name) != 0 || member.type == 0 || member.type > types_.size()) continue;
      const std::size_t inner = types_[member.type - 1];
      const unsigned kind = read<BtfType>(inner).kind();
      if (kind != btf_struct && kind != btf_union) continue;
      if (const auto found = search(inner, field)) return bits / 8 + *found;
    }
    return std::nullopt;
  }

  const std::string bytes_;
  std::size_t names_ = 0;
  std::vector<std::size_t> types_;  // where each is; the first has number 1
};

std::uint64_t symbol(const std::string& wanted) {
  const std::string all = contents("/proc/kallsyms");
  const std::size_t at = all.find(" T " + wanted + "\n");
  const std::size_t line = at == all.npos ? at : all.rfind('\n', at) + 1;
  const std::uint64_t address = at == all.npos ? 0 : std::stoull(all.substr(line), nullptr, 16);
  if (address == 0) throw std::runtime_error("/proc/kallsyms does not tell of " + wanted);
  return address;
}

}  // namespace

int offsets(const Words&) {
  const Btf btf(contents("/sys/kernel/btf/vmlinux"));
  using Long = unsigned long long;
  std::printf("{\"switch_to\": %llu, \"comm\": %llu, \"pid\": %llu, \"tgid\": %llu}\n",
              Long{symbol("__switch_to_asm")}, Long{btf.offset("task_struct", "comm")},
              Long{btf.offset("task_struct", "pid")}, Long{btf.offset("task_struct", "tgid")});
  return 0;
}

}  // namespace tt::emulate
