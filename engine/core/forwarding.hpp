// SPDX-License-Identifier: MIT

// Base classes for wrappers around either side of the seam.
//
// Most virtual functions of the seam have defaults, so that a wrapper which forgets one would turn
// it into nothing without a word. These two forward all of them; a wrapper overrides what it
// changes. tests/engine/test_forwarding.cpp counts the functions of the seam: it fails for one that
// is not forwarded.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "core/seam.hpp"

namespace tt {

class ForwardingMemory : public Memory {
 public:
  /// `inner` must live as long as this.
  explicit ForwardingMemory(Memory& inner) : inner_(inner) {}

  [[nodiscard]] std::uint64_t page_bytes() const override { return inner_.page_bytes(); }
  [[nodiscard]] std::uint64_t capacity(Tier tier) const override { return inner_.capacity(tier); }
  [[nodiscard]] std::uint64_t free_pages(Tier tier) const override {
    return inner_.free_pages(tier);
  }
  [[nodiscard]] std::uint64_t excess_pages(Tier tier) const override {
    return inner_.excess_pages(tier);
  }
  void residency(std::span<const PageId> pages, std::span<Residency> out) const override {
    inner_.residency(pages, out);
  }
  void residency(PageId first, std::span<Residency> out) const override {
    inner_.residency(first, out);
  }
  [[nodiscard]] PageRange unit(PageId page) const override { return inner_.unit(page); }
  std::size_t request(Tier to, std::span<const PageId> pages, Way way) override {
    return inner_.request(to, pages, way);
  }
  [[nodiscard]] std::uint64_t pending(Tier to) const override { return inner_.pending(to); }
  Movers set_movers(const Movers& movers) override { return inner_.set_movers(movers); }
  void set_watermarks(const Watermarks& marks) override { inner_.set_watermarks(marks); }
  std::size_t reshape(Change to, std::span<const PageId> units) override {
    return inner_.reshape(to, units);
  }
  SamplingRequest set_sampling(const SamplingRequest& request) override {
    return inner_.set_sampling(request);
  }
  [[nodiscard]] Counters counters() const override { return inner_.counters(); }
  std::uint64_t protect(PageRange range, Tiers which, PageMask untouched) override {
    return inner_.protect(range, which, untouched);
  }
  void fault_again(PageId page, std::uint32_t times) override { inner_.fault_again(page, times); }
  void leave_protected(std::span<const PageId> pages) override { inner_.leave_protected(pages); }
  void accessed(PageRange range, PageMask out, bool clear) override {
    inner_.accessed(range, out, clear);
  }
  void accessed(std::span<const PageId> pages, PageMask out, bool clear) override {
    inner_.accessed(pages, out, clear);
  }
  void probe(std::span<const Probe> probes) override { inner_.probe(probes); }
  [[nodiscard]] Nanos quantum() const override { return inner_.quantum(); }
  [[nodiscard]] std::string_view site(std::uint32_t id) const override { return inner_.site(id); }
  void charge(Work kind, std::uint64_t times, Payer by) override { inner_.charge(kind, times, by); }

 protected:
  [[nodiscard]] Memory& inner() const { return inner_; }

 private:
  Memory& inner_;
};

class ForwardingPolicy : public Policy {
 public:
  explicit ForwardingPolicy(std::unique_ptr<Policy> inner) : inner_(std::move(inner)) {}

  void on_map(PageRange range, std::uint32_t site, Nanos now) override {
    inner_->on_map(range, site, now);
  }
  void on_unmap(PageRange range, Nanos now) override { inner_->on_unmap(range, now); }
  [[nodiscard]] Tier placement(PageRange range) const override { return inner_->placement(range); }
  void on_samples(std::span<const Sample> samples, Nanos now) override {
    inner_->on_samples(samples, now);
  }
  void on_faults(std::span<const Fault> faults, Nanos now) override {
    inner_->on_faults(faults, now);
  }
  void on_probed(std::span<const Probe> probes, Nanos now) override {
    inner_->on_probed(probes, now);
  }
  void on_pressure(Tier tier, Nanos now) override { inner_->on_pressure(tier, now); }
  void on_capacity(Tier tier, Nanos now) override { inner_->on_capacity(tier, now); }
  void tick(Nanos now) override { inner_->tick(now); }
  [[nodiscard]] Nanos tick_period() const override { return inner_->tick_period(); }
  void on_migrated(std::span<const MigrationResult> results, Nanos now) override {
    inner_->on_migrated(results, now);
  }
  [[nodiscard]] std::uint64_t metadata_bytes() const override { return inner_->metadata_bytes(); }
  void gauges(Gauges& out) const override { inner_->gauges(out); }
  [[nodiscard]] Heat heat(PageId page) const override { return inner_->heat(page); }
  void report(Rows& out) const override { inner_->report(out); }
  [[nodiscard]] Placement profile() const override { return inner_->profile(); }

 protected:
  [[nodiscard]] Policy& inner() const { return *inner_; }

 private:
  std::unique_ptr<Policy> inner_;
};

}  // namespace tt
