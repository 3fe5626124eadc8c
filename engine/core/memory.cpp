// SPDX-License-Identifier: MIT

#include "core/memory.hpp"

#include <stdexcept>
#include <string>

namespace tt {
namespace {

[[noreturn]] void lacks(const char* function, const char* what) {
  throw std::logic_error(std::string("Memory::") + function + ": this substrate has no " + what);
}

}  // namespace

std::size_t Memory::reshape(Change, std::span<const PageId>) {
  lacks("reshape", "mixed page sizes");
}

std::uint64_t Memory::protect(PageRange, Tiers, PageMask) { lacks("protect", "hint faults"); }

void Memory::fault_again(PageId, std::uint32_t) { lacks("fault_again", "hint faults"); }

void Memory::leave_protected(std::span<const PageId>) { lacks("leave_protected", "hint faults"); }

void Memory::accessed(PageRange, PageMask, bool) { lacks("accessed", "accessed bits"); }

void Memory::accessed(std::span<const PageId>, PageMask, bool) {
  lacks("accessed", "accessed bits");
}

void Memory::probe(std::span<const Probe>) { lacks("probe", "probes"); }

std::string_view Memory::site(std::uint32_t) const { lacks("site", "allocation sites"); }

}  // namespace tt
