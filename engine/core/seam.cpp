#include "core/seam.hpp"

#include <stdexcept>
#include <utility>

namespace tt {
namespace {

[[noreturn]] void lacks(const char* function, const char* what) {
  throw std::logic_error(std::string("Memory::") + function + ": this substrate has no " + what);
}

constexpr std::pair<Need, const char*> need_names[] = {
    {Need::samples, "samples"},
    {Need::faults, "hint faults"},
    {Need::accessed_bits, "accessed bits"},
    {Need::probes, "probes"},
    {Need::tier_counters, "tier counters"},
    {Need::mixed_pages, "mixed page sizes"},
    {Need::shadows, "shadow pages"},
    {Need::sites, "allocation sites"},
    {Need::future, "accesses of the whole run"},
};

}  // namespace

std::string names(Need needs) {
  std::string text;
  for (const auto& [need, name] : need_names)
    if (includes(needs, need)) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

void require_needs(const PolicyInfo& policy, const Knobs& knobs, Need offered,
                   std::string_view substrate) {
  Need needs = policy.traits.needs;
  if (goes_by_placement(policy, knobs)) needs = needs | Need::sites;
  const Need missing =
      static_cast<Need>(static_cast<std::uint32_t>(needs) & ~static_cast<std::uint32_t>(offered));
  if (missing != Need::nothing)
    throw std::invalid_argument("policy " + policy.name + " needs " + names(missing) + ", which " +
                                std::string(substrate) + " does not have");
}

bool goes_by_placement(const PolicyInfo& policy, const Knobs& knobs) {
  const auto& when = policy.traits.profiled_when;
  return policy.traits.profiled && (!when || holds(*when, policy.knobs, knobs));
}

void Memory::set_movers(const Movers&) { lacks("set_movers", "choice of movers"); }

std::size_t Memory::reshape(Change, std::span<const PageId>) {
  lacks("reshape", "mixed page sizes");
}

std::uint64_t Memory::protect(PageRange, Tiers, PageMask) { lacks("protect", "hint faults"); }

void Memory::accessed(PageRange, PageMask, bool) { lacks("accessed", "accessed bits"); }

void Memory::probe(std::span<const Probe>) { lacks("probe", "probes"); }

std::string_view Memory::site(std::uint32_t) const { lacks("site", "allocation sites"); }

}  // namespace tt
