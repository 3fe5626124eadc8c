// SPDX-License-Identifier: MIT

#include "live/mappings.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <stdexcept>
#include <string>

#include "live/kernel_calls.hpp"

namespace tt::live {
namespace {

/// Reads from the front of a line.
class Fields {
 public:
  explicit Fields(std::string_view line) : rest_(line) {}
  /// A hexadecimal or decimal number, which `end` follows.
  bool number(std::uint64_t& out, int base, char end) {
    const char* const last = rest_.data() + rest_.size();
    const auto [at, error] = std::from_chars(rest_.data(), last, out, base);
    if (error != std::errc{} || at == last || *at != end) return false;
    rest_.remove_prefix(static_cast<std::size_t>(at - rest_.data()) + 1);
    return true;
  }
  /// So many characters, and the space behind them.
  bool skip(std::size_t characters) {
    if (rest_.size() <= characters || rest_[characters] != ' ') return false;
    rest_.remove_prefix(characters + 1);
    return true;
  }
  /// What is left, without the spaces in front.
  [[nodiscard]] std::string_view name() const {
    return rest_.substr(std::min(rest_.find_first_not_of(' '), rest_.size()));
  }

 private:
  std::string_view rest_;
};

bool is_own(std::uint64_t inode, std::string_view name) {
  // A name of the kernel's own. Memory that a program has named is "[anon:NAME]".
  if (name.starts_with("[v") || name.starts_with("[uprobes]") || name.starts_with("[gate")) {
    return false;
  }
  if (inode == 0) return true;
  constexpr std::array shared{"/dev/shm/", "/memfd:", "/SYSV", "/dev/zero"};
  return std::ranges::any_of(shared, [&](const char* start) { return name.starts_with(start); });
}

}  // namespace

std::vector<Mapping> own_memory(std::string_view maps) {
  std::vector<Mapping> out;
  for (std::size_t number = 1; !maps.empty(); ++number) {
    const std::size_t length = std::min(maps.find('\n'), maps.size());
    const std::string_view line = maps.substr(0, length);
    maps.remove_prefix(std::min(length + 1, maps.size()));
    const std::string text = std::string(line) + ' ';  // nothing need follow the inode
    Fields fields{text};
    Mapping mapping;
    std::uint64_t offset = 0, major = 0, minor = 0, inode = 0;
    const bool read = fields.number(mapping.begin, 16, '-') &&
                      fields.number(mapping.end, 16, ' ') && fields.skip(4) &&
                      fields.number(offset, 16, ' ') && fields.number(major, 16, ':') &&
                      fields.number(minor, 16, ' ') && fields.number(inode, 10, ' ');
    if (!read || mapping.begin >= mapping.end || mapping.begin % base_page_bytes != 0 ||
        mapping.end % base_page_bytes != 0 || (!out.empty() && mapping.begin < out.back().end))
      throw std::runtime_error("line " + std::to_string(number) + " of a process's maps: found " +
                               std::string(line.substr(0, 100)));
    if (!is_own(inode, fields.name())) continue;
    if (!out.empty() && out.back().end == mapping.begin) {
      out.back().end = mapping.end;
    } else {
      out.push_back(mapping);
    }
  }
  return out;
}

}  // namespace tt::live
