// SPDX-License-Identifier: MIT

#include "trace/characteristics.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/math.hpp"

namespace tt::trace {
namespace {

// Of the curve: fine where it is drawn logarithmically, and where it is drawn linearly.
constexpr double points_per_decade = 40;
constexpr double points_in_all = 250;

/// Columns of a heat map while the end is unknown: when there are twice as many as wanted, every
/// two become one and the next are twice as wide.
class HeatMapBuilder {
 public:
  HeatMapBuilder(std::uint64_t pages, HeatMapSize size) : wanted_(size.columns) {
    pages = std::max<std::uint64_t>(pages, 1);
    while ((pages - 1) >> row_shift_ >= size.rows) ++row_shift_;
    map_.pages_per_row = std::uint64_t{1} << row_shift_;
    map_.rows = row(pages - 1) + 1U;
    map_.edges = {0};
    here_.resize(map_.rows);
    begin_column();
  }

  [[nodiscard]] std::uint32_t row(std::uint64_t place) const {
    return static_cast<std::uint32_t>(place >> row_shift_);
  }
  void place(std::uint32_t row) {
    std::uint32_t& most = map_.pages[column_ + row];
    most = std::max(most, ++here_[row]);
  }
  void remove(std::uint32_t row) { --here_[row]; }
  /// Accesses of the open column by row.
  [[nodiscard]] std::uint64_t* accesses() { return map_.accesses.data() + column_; }

  void end_block(double now) {
    if (now - map_.edges.back() < width_) return;
    if (width_ == 0) width_ = now;
    end_column(now);
    if (columns() == 2 * wanted_) halve();
    begin_column();
  }

  HeatMap finish(double now) {
    if (now > map_.edges.back()) {
      end_column(now);
    } else {
      map_.accesses.resize(column_);
      map_.pages.resize(column_);
    }
    return std::move(map_);
  }

 private:
  [[nodiscard]] std::uint64_t columns() const { return map_.edges.size() - 1; }

  void begin_column() {
    column_ = map_.accesses.size();
    map_.accesses.resize(column_ + map_.rows);
    map_.pages.insert(map_.pages.end(), here_.begin(), here_.end());
  }
  void end_column(double now) { map_.edges.push_back(now); }

  void halve() {
    for (std::uint64_t c = 0; c < wanted_; ++c) {
      map_.edges[c + 1] = map_.edges[2 * c + 2];
      for (std::uint64_t row = 0; row < map_.rows; ++row) {
        const std::uint64_t to = c * map_.rows + row;
        const std::uint64_t from = 2 * c * map_.rows + row;
        map_.accesses[to] = map_.accesses[from] + map_.accesses[from + map_.rows];
        map_.pages[to] = std::max(map_.pages[from], map_.pages[from + map_.rows]);
      }
    }
    map_.edges.resize(wanted_ + 1);
    map_.accesses.resize(wanted_ * map_.rows);
    map_.pages.resize(wanted_ * map_.rows);
    width_ *= 2;
  }

  std::uint64_t wanted_;
  unsigned row_shift_ = 0;
  HeatMap map_;
  std::vector<std::uint32_t> here_;  // pages by row that are touched and not freed
  std::uint64_t column_ = 0;         // where the open column begins
  double width_ = 0;                 // seconds that fill a column; 0 before the first block
};

std::vector<std::array<double, 2>> curve_of(std::uint64_t pages,
                                            std::span<const std::uint64_t> descending) {
  std::vector<std::array<double, 2>> curve;
  if (pages == 0 || descending.empty()) return curve;
  const auto total =
      static_cast<double>(std::accumulate(descending.begin(), descending.end(), std::uint64_t{0}));
  const auto all = static_cast<double>(pages);
  std::uint64_t sum = 0;
  double next = 1;
  for (std::uint64_t rank = 1; rank <= descending.size(); ++rank) {
    sum += descending[rank - 1];
    const auto here = static_cast<double>(rank);
    if (here < next && rank != descending.size()) continue;
    curve.push_back({here / all, static_cast<double>(sum) / total});
    while (next <= here)
      next = std::max(next + 1, std::min(next * math::pow(10, 1 / points_per_decade),
                                         next + all / points_in_all));
  }
  if (descending.size() < pages) curve.push_back({1, 1});
  return curve;
}

/// Where each page of the stream lies: ranges that are freed are given again to the same site, the
/// smallest that is large enough first.
class Places {
 public:
  Places(const Reader& reader, std::span<const std::uint32_t> site_of_object, std::size_t sites)
      : of_page_(reader.info().pages, nowhere), free_(sites) {
    for (std::uint64_t b = 0; b < reader.info().blocks; ++b) {
      for (const Event& event : reader.events(b)) {
        const std::uint32_t site = site_of_object[event.object];
        if (event.count == 0) continue;
        if (event.type == EventType::map) {
          const std::uint32_t first = allocate(site, event.count);
          std::iota(of_page_.begin() + event.first, of_page_.begin() + event.first + event.count,
                    first);
        } else if (event.type == EventType::unmap) {
          release(site, std::span{of_page_}.subspan(event.first, event.count));
        }
      }
    }
    // Where a stream has no event about a mapping, its pages lie as they are numbered.
    for (std::uint32_t& place : of_page_)
      if (place == nowhere) place = size_++;
  }

  [[nodiscard]] std::uint32_t of(std::uint64_t page) const { return of_page_[page]; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] const std::vector<Extent>& extents() const { return extents_; }

 private:
  static constexpr std::uint32_t nowhere = 0xffffffff;

  std::uint32_t allocate(std::uint32_t site, std::uint32_t count) {
    auto& ranges = free_[site];
    auto best = ranges.end();
    for (auto range = ranges.begin(); range != ranges.end(); ++range)
      if (range->second >= count && (best == ranges.end() || range->second < best->second))
        best = range;
    if (best != ranges.end()) {
      const auto [first, all] = *best;
      ranges.erase(best);
      if (all > count) ranges.emplace(first + count, all - count);
      return first;
    }
    const std::uint32_t first = size_;
    size_ += count;
    if (!extents_.empty() && extents_.back().site == site &&
        extents_.back().first + extents_.back().pages == first) {
      extents_.back().pages += count;
    } else {
      extents_.push_back({site, first, count});
    }
    return first;
  }

  /// Places of consecutive pages, run by run. Those that were never given away stay out of it.
  void release(std::uint32_t site, std::span<const std::uint32_t> places) {
    while (!places.empty()) {
      std::uint32_t count = 1;
      while (count < places.size() && places[count] == places[0] + count) ++count;
      if (places[0] != nowhere) release(site, places[0], count);
      places = places.subspan(count);
    }
  }

  void release(std::uint32_t site, std::uint32_t first, std::uint32_t count) {
    auto& ranges = free_[site];
    const auto [range, added] = ranges.emplace(first, count);
    if (!added) return;
    if (const auto next = std::next(range); next != ranges.end() && next->first == first + count) {
      range->second += next->second;
      ranges.erase(next);
    }
    if (range == ranges.begin()) return;
    if (const auto before = std::prev(range); before->first + before->second == first) {
      before->second += range->second;
      ranges.erase(range);
    }
  }

  std::vector<std::uint32_t> of_page_;
  std::vector<std::map<std::uint32_t, std::uint32_t>> free_;  // per site: first and count
  std::vector<Extent> extents_;
  std::uint32_t size_ = 0;
};

/// The main pass, and what it learns on the way. Sites and heat map only where they are asked for.
class Pass {
 public:
  Pass(const Reader& reader, HeatMapSize size)
      : reader_(reader),
        info_(reader.info()),
        site_of_object_(index_sites()),
        places_(reader, site_of_object_, out_.sites.size()),
        here_(places_.size()),
        since_(places_.size()),
        uses_(places_.size()) {
    if ((size.rows == 0) != (size.columns == 0))
      throw std::invalid_argument("a heat map has rows and columns, or neither");
    if (size.rows == 0) return;
    heat_ = std::make_unique<HeatMapBuilder>(places_.size(), size);
    index_pages();
  }

  Characteristics run() {
    Block block;
    for (std::uint64_t b = 0; b < info_.blocks; ++b) {
      reader_.read(b, block);
      for (const Event& event : block.events) apply(event);
      for (const Segment& segment : block.segments) {
        (block.timed ? out_.accesses[index(segment.kind)] : out_.set_up_accesses) += segment.sum;
        if (heat_) add(segment, block.timed);
      }
      const double from = out_.seconds;
      out_.seconds += block.nominal_ns * 1e-9;
      if (block.timed) {
        ++timed_blocks_;
        add_timed(from, out_.seconds);
      }
      if (heat_) heat_->end_block(out_.seconds);
    }
    reader_.confirm();
    finish();
    return std::move(out_);
  }

 private:
  enum Use : std::uint8_t { untouched = 0, touched = 1, timed = 2 };

  std::vector<std::uint32_t> index_sites() {
    std::vector<std::uint32_t> site_of_object;
    std::unordered_map<std::string_view, std::uint32_t> known;
    for (const Object& object : info_.objects) {
      const auto [at, added] =
          known.emplace(object.site, static_cast<std::uint32_t>(out_.sites.size()));
      if (added) out_.sites.push_back({.site = object.site});
      ++out_.sites[at->second].objects;
      site_of_object.push_back(at->second);
      left_.push_back(object.pages);
    }
    return site_of_object;
  }

  void index_pages() {
    // Pages of no object (a foreign stream may have some) fall to one more, which is not reported.
    const auto sites = static_cast<std::uint32_t>(out_.sites.size());
    site_here_.resize(sites + 1);
    accesses_.resize((info_.classes.size() * 2 + 1) * (sites + 1));
    last_.resize(sites + 1, -1);
    of_page_.resize(info_.pages);
    for (std::uint64_t page = 0; page < info_.pages; ++page)
      of_page_[page] = {sites, heat_->row(places_.of(page))};
    for (std::size_t i = 0; i < info_.objects.size(); ++i)
      for (std::uint64_t page = 0; page < info_.objects[i].pages; ++page)
        of_page_[info_.objects[i].first_page + page].site = site_of_object_[i];
  }

  void apply(const Event& event) {
    if (event.type == EventType::map) return;
    for (std::uint64_t page = event.first; page < std::uint64_t{event.first} + event.count; ++page)
      event.type == EventType::touch ? touch(page) : free(page);
    if (heat_ && event.type == EventType::unmap) {
      std::uint64_t& left = left_[event.object];
      SiteUse& site = out_.sites[site_of_object_[event.object]];
      if (left != 0 && left <= event.count) ++site.freed;
      left -= std::min<std::uint64_t>(left, event.count);
      site.last_free = out_.seconds;
    }
  }

  void touch(std::uint64_t page) {
    const std::uint32_t place = places_.of(page);
    if (here_[place]) return;
    here_[place] = true;
    since_[place] = timed_blocks_;
    out_.peak_pages = std::max(out_.peak_pages, ++all_here_);
    const bool first = uses_[place] == untouched;
    uses_[place] |= touched;
    if (!heat_) return;
    const auto [s, row] = of_page_[page];
    heat_->place(row);
    ++site_here_[s];
    last_[s] = out_.seconds;
    if (s == out_.sites.size()) return;
    SiteUse& site = out_.sites[s];
    if (site.first_touch < 0) site.first_touch = out_.seconds;
    if (first) ++site.pages;
    site.peak_pages = std::max(site.peak_pages, site_here_[s]);
  }

  void free(std::uint64_t page) {
    const std::uint32_t place = places_.of(page);
    if (!here_[place]) return;
    here_[place] = false;
    if (timed_blocks_ > since_[place]) uses_[place] |= timed;
    --all_here_;
    if (!heat_) return;
    heat_->remove(of_page_[page].row);
    --site_here_[of_page_[page].site];
  }

  /// Accesses of a kind and class, or of set-up, by site.
  [[nodiscard]] std::uint64_t* by_site(std::size_t way) {
    return accesses_.data() + way * site_here_.size();
  }

  void add(const Segment& segment, bool timed) {
    std::uint64_t* const sums =
        by_site(timed ? 1 + segment.stream_class * 2 + index(segment.kind) : 0);
    std::uint64_t* const cells = heat_->accesses();
    for (std::size_t e = 0; e < segment.pages.size(); ++e) {
      const auto [site, row] = of_page_[segment.pages[e]];
      sums[site] += segment.counts[e];
      last_[site] = out_.seconds;
      cells[row] += segment.counts[e];
    }
  }

  void add_timed(double from, double to) {
    if (!out_.timed.empty() && out_.timed.back().to == from) {
      out_.timed.back().to = to;
    } else {
      out_.timed.push_back({from, to});
    }
  }

  void finish() {
    if (heat_) {
      for (std::size_t s = 0; s < out_.sites.size(); ++s) {
        SiteUse& site = out_.sites[s];
        site.last_touch = last_[s];
        site.set_up_accesses = by_site(0)[s];
        for (std::size_t c = 0; c < info_.classes.size(); ++c)
          site.accesses.push_back({by_site(1 + c * 2)[s], by_site(2 + c * 2)[s]});
      }
      out_.extents = places_.extents();
      out_.heat = heat_->finish(out_.seconds);
    } else {
      out_.sites.clear();
    }
    std::vector<std::uint64_t> totals(places_.size());
    for (std::uint64_t page = 0; page < info_.pages; ++page)
      totals[places_.of(page)] += reader_.page_totals()[page];
    for (std::uint64_t place = 0; place < places_.size(); ++place) {
      out_.pages += uses_[place] != untouched;
      out_.timed_pages += totals[place] > 0 || (uses_[place] & timed) != 0 ||
                          (here_[place] && timed_blocks_ > since_[place]);
    }
    std::erase(totals, 0);
    std::ranges::sort(totals, std::greater{});
    out_.curve = curve_of(out_.timed_pages, totals);
    for (std::size_t i = 0; i < hot_shares.size(); ++i)
      out_.hottest[i] = share_of_hottest(hot_shares[i], out_.timed_pages, totals);
  }

  /// What an entry needs to know of its page.
  struct PageOf {
    std::uint32_t site;
    std::uint32_t row;
  };

  const Reader& reader_;
  const StreamInfo& info_;
  Characteristics out_;
  std::vector<std::uint64_t> left_;  // per object: pages not freed
  std::vector<std::uint32_t> site_of_object_;
  Places places_;
  std::uint32_t timed_blocks_ = 0;  // so far

  // Per place: whether a page is there now, how many timed blocks were before it came, and whether
  // one was ever there, also during a timed block.
  std::vector<bool> here_;
  std::vector<std::uint32_t> since_;
  std::vector<std::uint8_t> uses_;
  std::uint64_t all_here_ = 0;

  std::unique_ptr<HeatMapBuilder> heat_;
  std::vector<PageOf> of_page_;
  std::vector<std::uint64_t> site_here_;  // per site: pages touched and not freed
  std::vector<std::uint64_t> accesses_;   // see by_site()
  std::vector<double> last_;              // per site: beginning of the last block that touched it
};

}  // namespace

double share_of_hottest(double share, std::uint64_t pages,
                        std::span<const std::uint64_t> descending) {
  const auto total =
      static_cast<double>(std::accumulate(descending.begin(), descending.end(), std::uint64_t{0}));
  if (total == 0) return 0;
  double left = share * static_cast<double>(pages);
  double sum = 0;
  for (const std::uint64_t count : descending) {
    sum += static_cast<double>(count) * std::min(left, 1.0);
    if (--left <= 0) break;
  }
  return sum / total;
}

Characteristics characterise(const Reader& reader, HeatMapSize size) {
  return Pass{reader, size}.run();
}

}  // namespace tt::trace
