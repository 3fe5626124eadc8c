#include "trace/characteristics.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <utility>

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
    map_.rows = row(pages - 1) + 1;
    map_.edges = {0};
    here_.resize(map_.rows);
    begin_column();
  }

  [[nodiscard]] std::uint64_t row(std::uint64_t page) const { return page >> row_shift_; }
  void place(std::uint64_t page) {
    std::uint32_t& most = map_.pages[column_ + row(page)];
    most = std::max(most, ++here_[row(page)]);
  }
  void remove(std::uint64_t page) { --here_[row(page)]; }
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
      next = std::max(next + 1, std::min(next * std::pow(10, 1 / points_per_decade),
                                         next + all / points_in_all));
  }
  if (descending.size() < pages) curve.push_back({1, 1});
  return curve;
}

/// One pass, and what it learns on the way. Sites and heat map only where they are asked for.
class Pass {
 public:
  Pass(const Reader& reader, HeatMapSize size)
      : reader_(reader), info_(reader.info()), pages_(info_.pages, Page::untouched) {
    if ((size.rows == 0) != (size.columns == 0))
      throw std::invalid_argument("a heat map has rows and columns, or neither");
    if (size.rows == 0) return;
    heat_.emplace(info_.pages, size);
    index_sites();
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
      if (block.timed) add_timed(from, out_.seconds);
      if (heat_) heat_->end_block(out_.seconds);
    }
    finish();
    return std::move(out_);
  }

 private:
  enum class Page : std::uint8_t { untouched, here, gone };

  void index_sites() {
    std::unordered_map<std::string_view, std::uint32_t> known;
    for (const Object& object : info_.objects) {
      const auto [at, added] =
          known.emplace(object.site, static_cast<std::uint32_t>(out_.sites.size()));
      if (added) out_.sites.push_back({.site = object.site});
      ++out_.sites[at->second].objects;
      site_of_object_.push_back(at->second);
      left_.push_back(object.pages);
    }
    // Pages of no object (a foreign stream may have some) fall to one more, which is not told.
    const auto sites = static_cast<std::uint32_t>(out_.sites.size());
    here_.resize(sites + 1);
    accesses_.resize((info_.classes.size() * 2 + 1) * (sites + 1));
    last_.resize(sites + 1, -1);
    site_of_page_.resize(info_.pages, sites);
    for (std::size_t i = 0; i < info_.objects.size(); ++i)
      std::fill_n(site_of_page_.begin() + static_cast<std::ptrdiff_t>(info_.objects[i].first_page),
                  info_.objects[i].pages, site_of_object_[i]);
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
    const Page before = std::exchange(pages_[page], Page::here);
    if (before == Page::here) return;
    out_.peak_pages = std::max(out_.peak_pages, ++all_here_);
    if (before == Page::untouched) ++out_.touched_pages;
    if (!heat_) return;
    heat_->place(page);
    const std::uint32_t s = site_of_page_[page];
    ++here_[s];
    last_[s] = out_.seconds;
    if (s == out_.sites.size()) return;
    SiteUse& site = out_.sites[s];
    if (site.first_touch < 0) site.first_touch = out_.seconds;
    if (before == Page::untouched) ++site.pages;
    site.peak_pages = std::max(site.peak_pages, here_[s]);
  }

  void free(std::uint64_t page) {
    if (std::exchange(pages_[page], Page::gone) != Page::here) return;
    --all_here_;
    if (!heat_) return;
    heat_->remove(page);
    --here_[site_of_page_[page]];
  }

  /// Accesses of a kind and class, or of set-up, by site.
  [[nodiscard]] std::uint64_t* by_site(std::size_t way) {
    return accesses_.data() + way * here_.size();
  }

  void add(const Segment& segment, bool timed) {
    std::uint64_t* const sums =
        by_site(timed ? 1 + segment.stream_class * 2 + index(segment.kind) : 0);
    std::uint64_t* const cells = heat_->accesses();
    const std::uint64_t pages = info_.pages;
    for (std::size_t e = 0; e < segment.pages.size(); ++e) {
      const std::uint32_t page = segment.pages[e];
      if (page >= pages) throw std::runtime_error("corrupt stream: a page number");
      const std::uint32_t site = site_of_page_[page];
      sums[site] += segment.counts[e];
      last_[site] = out_.seconds;
      cells[heat_->row(page)] += segment.counts[e];
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
    for (std::size_t s = 0; s < out_.sites.size(); ++s) {
      SiteUse& site = out_.sites[s];
      site.last_touch = last_[s];
      site.set_up_accesses = by_site(0)[s];
      for (std::size_t c = 0; c < info_.classes.size(); ++c)
        site.accesses.push_back({by_site(1 + c * 2)[s], by_site(2 + c * 2)[s]});
    }
    if (heat_) out_.heat = heat_->finish(out_.seconds);
    const auto totals = reader_.page_totals();
    std::vector<std::uint64_t> descending{totals.begin(), totals.end()};
    std::erase(descending, 0);
    std::ranges::sort(descending, std::greater{});
    out_.touched_pages = std::max<std::uint64_t>(out_.touched_pages, descending.size());
    out_.curve = curve_of(out_.touched_pages, descending);
    for (std::size_t i = 0; i < hot_shares.size(); ++i)
      out_.hottest[i] = share_of_hottest(hot_shares[i], out_.touched_pages, descending);
  }

  const Reader& reader_;
  const StreamInfo& info_;
  Characteristics out_;
  std::vector<Page> pages_;
  std::uint64_t all_here_ = 0;

  std::optional<HeatMapBuilder> heat_;
  std::vector<std::uint32_t> site_of_object_;
  std::vector<std::uint64_t> left_;  // per object: pages not freed
  std::vector<std::uint32_t> site_of_page_;
  std::vector<std::uint64_t> here_;      // per site: pages touched and not freed
  std::vector<std::uint64_t> accesses_;  // see by_site()
  std::vector<double> last_;             // per site: beginning of the last block that touched it
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
