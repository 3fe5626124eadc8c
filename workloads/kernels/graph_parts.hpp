// SPDX-License-Identifier: MIT

// Parts that the kernels of the GAP benchmark suite (Beamer, Asanović, Patterson, arXiv:1508.03619;
// sbeamer/gapbs) share: passes over all vertices, bitmaps of 64-bit words, a sliding queue with
// per-thread buffers, and the cost of computing.
//
// Each kernel allocates what GAP's does, frees its temporaries, and returns the result, which the
// caller frees.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "kernels/graph_build.hpp"
#include "kernels/traced.hpp"

namespace tt::kernels::graph {

// Computation per edge and per vertex beside the misses, and what threads lose by waiting for each
// other. Estimates: a dozen instructions per edge, two per cycle, and twice as many per vertex.
inline constexpr double edge_ns = 1.5;
inline constexpr double vertex_ns = 3.1;
// A locked instruction whose line is there: 18 to 23 cycles (Fog, Instruction tables: LOCK XADD and
// CMPXCHG on Intel's servers), at 2.4 GHz.
inline constexpr double locked_ns = 8;

inline constexpr std::size_t line = 16;                // 4-byte values in a cache line
inline constexpr std::size_t watched_vertices = 4096;  // between two calls of the watch

/// Calls `visit(first, count)` for all vertices, a cache line of 4-byte values at a time, so that
/// one report serves sixteen of them.
template <typename Visit>
void for_lines(Vertex vertices, const Watch& watch, Visit visit) {
  for (Vertex first = 0; first < vertices; first += line) {
    if (first % watched_vertices == 0) watch();
    visit(first, std::min<std::size_t>(line, vertices - first));
  }
}

/// Calls `visit(v)` for all of a list, and has the host fetch their elements of `arrays` before.
template <typename Visit, typename... Arrays>
void for_list(std::span<const Vertex> list, Visit visit, const Arrays&... arrays) {
  constexpr std::size_t ahead = 12;
  for (std::size_t i = 0; i < std::min(ahead, list.size()); ++i) (arrays.fetch(list[i]), ...);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i + ahead < list.size()) (arrays.fetch(list[i + ahead]), ...);
    visit(list[i]);
  }
}

template <typename T>
void fill(TracedArray<T>& array, T value) {
  std::ranges::fill(array.store_range(stream, 0, array.size()), value);
}

class Bitmap {
 public:
  Bitmap(trace::Recorder& recorder, std::string_view site, std::size_t bits)
      : words_(recorder, site, (bits + 63) / 64) {}

  void reset() { fill(words_, std::uint64_t{0}); }
  [[nodiscard]] bool get(Class how, std::size_t i) const {
    return (words_.load(how, i / 64) >> i % 64 & 1) != 0;
  }
  void set(Class how, std::size_t i) {
    const std::uint64_t word = words_.load(how, i / 64);
    words_.store(how == stream ? stream : update, i / 64, word | std::uint64_t{1} << i % 64);
  }
  /// Reads the words of bits [first, first + count).
  void scan(std::size_t first, std::size_t count) const {
    if (count > 0)
      (void)words_.load_range(stream, first / 64, (first + count - 1) / 64 - first / 64 + 1);
  }
  [[nodiscard]] bool peek(std::size_t i) const { return (words_.peek(i / 64) >> i % 64 & 1) != 0; }
  void free() { words_.free(); }

 private:
  TracedArray<std::uint64_t> words_;
};

/// GAP's SlidingQueue: what is appended becomes visible when the window slides.
class SlidingQueue {
 public:
  SlidingQueue(const Graph& graph, std::size_t capacity)
      : items_(graph.recorder, "queue", capacity, graph.options.id_bytes) {}

  void push(Vertex v) { items_.store(stream, tail_++, v); }
  void push(std::span<const Vertex> vertices) {
    std::ranges::copy(vertices, items_.store_range(stream, tail_, vertices.size()).begin());
    tail_ += vertices.size();
  }
  void slide() {
    first_ = last_;
    last_ = tail_;
  }
  void reset() { first_ = last_ = tail_ = 0; }
  [[nodiscard]] bool empty() const { return first_ == last_; }
  [[nodiscard]] std::size_t size() const { return last_ - first_; }
  [[nodiscard]] std::size_t first() const { return first_; }
  [[nodiscard]] std::size_t last() const { return last_; }
  [[nodiscard]] Vertex at(std::size_t i) const { return items_.load(stream, i); }
  void free() { items_.free(); }

 private:
  TracedArray<Vertex> items_;
  std::size_t first_ = 0, last_ = 0, tail_ = 0;
};

/// What GAP's threads append to first. It goes to the queue when it is full, and after a step.
class QueueBuffer {
 public:
  QueueBuffer(const Graph& graph, SlidingQueue& queue)
      : queue_(queue),
        items_(graph.recorder, "queue.buffer", graph.options.buffer_ids, graph.options.id_bytes) {}

  void push(Vertex v) {
    items_.store(stream, size_++, v);
    if (size_ == items_.size()) flush();
  }
  void flush() { queue_.push(items_.load_range(stream, 0, std::exchange(size_, 0))); }
  void free() { items_.free(); }

 private:
  SlidingQueue& queue_;
  TracedArray<Vertex> items_;
  std::size_t size_ = 0;
};

/// Computation of a pass, reported in portions.
class Work {
 public:
  explicit Work(trace::Recorder& recorder) : recorder_(recorder) {}
  void add(std::uint64_t vertices, std::uint64_t edges) {
    ns_ += vertex_ns * static_cast<double>(vertices) + edge_ns * static_cast<double>(edges);
    if (ns_ > 2000) flush();
  }
  void add_locked(std::uint64_t instructions) {
    ns_ += locked_ns * static_cast<double>(instructions);
  }
  void flush() { recorder_.compute(0, std::exchange(ns_, 0)); }

 private:
  trace::Recorder& recorder_;
  double ns_ = 0;
};

}  // namespace tt::kernels::graph
