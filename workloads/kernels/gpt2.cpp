// SPDX-License-Identifier: MIT

// gpt2: text generation with GPT-2 XL on the CPU, a batch of sequences at a time (see gpt2.hpp).
//
// Sequences come and go as in continuous batching (Yu et al., Orca, OSDI'22): each pass of the
// generation phase gives every running sequence one token; one that reached its length is
// done, its cache is freed, and the next request takes its place, with a prompt phase of its own.
//
// Scale. R divides weights and caches alike, and both must stay what they are to memory: matrices
// that are read once per pass, rows that grow by one per token. With all of width, batch and prompt
// divided by s and layers by R / s^2, weights (layers x width^2) and caches (batch x layers x
// width x positions) are both 1/R, and lengths of sequences stay. A simulated sequence stands for
// s, so that its prompt is taken in s passes, one for each. Heads stay and become narrower; the
// vocabulary is what makes the embedding 1/R.
#include "kernels/gpt2.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "core/rng.hpp"
#include "kernels/kernel.hpp"
#include "kernels/parameters.hpp"

namespace tt::kernels {
namespace {

/// Sum in an order of its own: 16 partial sums, which any compiler may keep in vectors.
float dot(const float* a, const float* b, std::size_t count) {
  float part[16] = {};
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16)
    for (std::size_t k = 0; k < 16; ++k) part[k] += a[i + k] * b[i + k];
  for (std::size_t k = 0; i < count; ++i, ++k) part[k] += a[i] * b[i];
  for (std::size_t half = 8; half > 0; half /= 2)
    for (std::size_t k = 0; k < half; ++k) part[k] += part[k + half];
  return part[0];
}

/// out = vectors' bias + in x matrix, for `rows` rows; four rows of the matrix at a time.
void multiply(const TracedArray<float>& matrix, std::uint32_t stream_class, const float* bias,
              const std::vector<float>& in, std::vector<float>& out, std::size_t rows,
              std::size_t from, std::size_t to) {
  for (std::size_t row = 0; row < rows; ++row) std::copy(bias, bias + to, out.data() + row * to);
  for (std::size_t i = 0; i < from; i += 4) {
    const float* const w = matrix.load_range(stream_class, i * to, 4 * to).data();
    for (std::size_t row = 0; row < rows; ++row) {
      const float* const x = in.data() + row * from + i;
      const float x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
      float* const __restrict y = out.data() + row * to;
      for (std::size_t o = 0; o < to; ++o)
        y[o] = y[o] + x0 * w[o] + x1 * w[o + to] + x2 * w[o + 2 * to] + x3 * w[o + 3 * to];
    }
  }
}

void normalise(const float* in, const float* scale, float* out, std::size_t width) {
  float sum = 0;
  for (std::size_t i = 0; i < width; ++i) sum += in[i];
  const float mean = sum / static_cast<float>(width);
  for (std::size_t i = 0; i < width; ++i) out[i] = in[i] - mean;
  const float variance = dot(out, out, width) / static_cast<float>(width);
  const float factor = 1 / std::sqrt(variance + 1e-5F);
  const float* const shift = scale + width;
  for (std::size_t i = 0; i < width; ++i) out[i] = out[i] * factor * scale[i] + shift[i];
}

float gelu(float x) {
  return 0.5F * x * (1 + portable_tanh(0.7978845608F * (x + 0.044715F * x * x * x)));
}

/// e to the power of each, less the largest, over their sum.
void softmax(std::span<float> values) {
  const float largest = std::ranges::max(values);
  float sum = 0;
  for (float& value : values) sum += value = portable_exp(value - largest);
  for (float& value : values) value /= sum;
}

}  // namespace

float portable_exp(float x) {
  x = std::clamp(x, -87.0F, 88.0F);
  const float power = std::floor(x * 1.44269504F + 0.5F);
  // ln 2 in two parts, the first exact times any power.
  const float r = (x - power * 0.693359375F) + power * 2.12194440e-4F;
  float series = 1.0F / 720;
  for (const float factor : {1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F, 1.0F})
    series = series * r + factor;
  const auto exponent = static_cast<std::int32_t>(power) + 127;
  return series * std::bit_cast<float>(exponent << 23);
}

float portable_tanh(float x) {
  const float bounded = std::clamp(x, -10.0F, 10.0F);
  return 1 - 2 / (portable_exp(2 * bounded) + 1);
}

std::uint32_t sample_token(std::span<const float> logits, double uniform) {
  std::vector<float> shares(logits.begin(), logits.end());
  softmax(shares);
  double sum = 0;
  for (std::size_t token = 0; token < shares.size(); ++token) {
    sum += shares[token];
    if (uniform < sum) return static_cast<std::uint32_t>(token);
  }
  return static_cast<std::uint32_t>(shares.size() - 1);
}

Gpt2::Gpt2(trace::Recorder& recorder, const Gpt2Classes& classes, const Gpt2Shape& shape,
           std::uint32_t loading, std::uint64_t seed)
    : shape_(shape),
      classes_(classes),
      embedding_(recorder, "gpt2.wte", shape.vocabulary * shape.width),
      positions_(recorder, "gpt2.wpe", shape.context * shape.width),
      last_norm_(recorder, "gpt2.ln_f", 2 * shape.width) {
  const std::size_t d = shape.width;
  if (d == 0 || d % 4 != 0 || d % shape.heads != 0)
    throw std::invalid_argument("gpt2: the width must be a multiple of the heads and of 4");
  Rng rng{seed};
  // Near enough to GPT-2's normal distribution of deviation 0.02: a sum of four uniform draws.
  const auto draw = [&](float deviation) {
    const double sum = rng.uniform() + rng.uniform() + rng.uniform() + rng.uniform();
    return static_cast<float>((sum - 2) * 1.7320508075688772) * deviation;
  };
  const auto fill = [&](TracedArray<float>& array, float deviation) {
    for (float& value : array.store_range(loading, 0, array.size())) value = draw(deviation);
  };
  fill(embedding_, 0.02F);
  fill(positions_, 0.01F);
  const auto fill_norm = [&](std::span<float> vectors) {
    std::ranges::fill(vectors.first(d), 1.0F);
    std::ranges::fill(vectors.subspan(d, d), 0.0F);
  };
  fill_norm(last_norm_.store_range(loading, 0, 2 * d));
  for (std::size_t i = 0; i < shape.layers; ++i) {
    layers_.push_back({{recorder, "gpt2.attn.c_attn", 3 * d * d},
                       {recorder, "gpt2.attn.c_proj", d * d},
                       {recorder, "gpt2.mlp.c_fc", 4 * d * d},
                       {recorder, "gpt2.mlp.c_proj", 4 * d * d},
                       {recorder, "gpt2.vectors", 13 * d}});
    Layer& layer = layers_.back();
    const float narrowed = 0.02F / std::sqrt(2 * static_cast<float>(shape.layers));
    fill(layer.qkv, 0.02F);
    fill(layer.attention, narrowed);
    fill(layer.expand, 0.02F);
    fill(layer.contract, narrowed);
    fill(layer.vectors, 0.02F);
    fill_norm(std::span(&layer.vectors.poke(0), 2 * d));
    fill_norm(std::span(&layer.vectors.poke(6 * d), 2 * d));
  }
}

// Queries, keys and values of the pass's tokens are in wide_ from row `first_row` on; the result
// goes to the same rows of normal_.
void Gpt2::attend(const Pass& pass, std::size_t layer, std::size_t first_row) {
  const std::size_t d = shape_.width;
  const std::size_t size = d / shape_.heads;  // of a head
  const std::size_t rows = pass.tokens.size();
  const std::size_t old = pass.sequence->length_;
  const std::size_t all = old + rows;
  TracedArray<float>& cache = pass.sequence->cache_;
  const std::size_t keys_at = 2 * layer * shape_.context * d;
  const std::size_t values_at = keys_at + shape_.context * d;
  const auto keys = cache.store_range(classes_.update, keys_at + old * d, rows * d);
  const auto values = cache.store_range(classes_.update, values_at + old * d, rows * d);
  for (std::size_t row = 0; row < rows; ++row) {
    const float* const qkv = wide_.data() + (first_row + row) * 3 * d;
    std::copy(qkv + d, qkv + 2 * d, keys.data() + row * d);
    std::copy(qkv + 2 * d, qkv + 3 * d, values.data() + row * d);
  }
  scores_.resize(rows * shape_.heads * all);
  const auto score = [&](std::size_t row, std::size_t head) {
    return scores_.data() + (row * shape_.heads + head) * all;
  };
  const float narrow = 1 / std::sqrt(static_cast<float>(size));
  // Each key, and then each value, is read once for all tokens and heads.
  const float* const k = cache.load_range(classes_.cache, keys_at, all * d).data();
  for (std::size_t at = 0; at < all; ++at)
    for (std::size_t row = at < old ? 0 : at - old; row < rows; ++row)
      for (std::size_t head = 0; head < shape_.heads; ++head)
        score(row, head)[at] = narrow * dot(wide_.data() + (first_row + row) * 3 * d + head * size,
                                            k + at * d + head * size, size);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t head = 0; head < shape_.heads; ++head)
      softmax(std::span(score(row, head), old + row + 1));
    std::fill_n(normal_.data() + (first_row + row) * d, d, 0.0F);
  }
  const float* const v = cache.load_range(classes_.cache, values_at, all * d).data();
  for (std::size_t at = 0; at < all; ++at)
    for (std::size_t row = at < old ? 0 : at - old; row < rows; ++row)
      for (std::size_t head = 0; head < shape_.heads; ++head) {
        const float share = score(row, head)[at];
        const float* const from = v + at * d + head * size;
        float* const __restrict to = normal_.data() + (first_row + row) * d + head * size;
        for (std::size_t i = 0; i < size; ++i) to[i] += share * from[i];
      }
}

std::span<const float> Gpt2::forward(std::span<const Pass> passes, std::uint32_t weights) {
  const std::size_t d = shape_.width;
  std::size_t rows = 0;
  for (const Pass& pass : passes) {
    if (pass.tokens.empty() || pass.sequence->length_ + pass.tokens.size() > shape_.context)
      throw std::invalid_argument("gpt2: no tokens, or more than the context holds");
    rows += pass.tokens.size();
  }
  residual_.resize(rows * d);
  normal_.resize(rows * d);
  wide_.resize(rows * 4 * d);
  std::size_t row = 0;
  for (const Pass& pass : passes)
    for (std::size_t i = 0; i < pass.tokens.size(); ++i, ++row) {
      const auto token = embedding_.load_range(weights, pass.tokens[i] * d, d);
      const auto place = positions_.load_range(weights, (pass.sequence->length_ + i) * d, d);
      std::ranges::transform(token, place, residual_.data() + row * d, std::plus{});
    }

  const auto norm_rows = [&](const float* scale) {
    for (std::size_t r = 0; r < rows; ++r)
      normalise(residual_.data() + r * d, scale, normal_.data() + r * d, d);
  };
  const auto add_to_residual = [&](const std::vector<float>& from) {
    for (std::size_t i = 0; i < rows * d; ++i) residual_[i] += from[i];
  };
  std::vector<float> narrow(rows * d);
  for (std::size_t number = 0; number < shape_.layers; ++number) {
    const Layer& layer = layers_[number];
    const float* const vectors = layer.vectors.load_range(weights, 0, 13 * d).data();
    norm_rows(vectors);
    multiply(layer.qkv, weights, vectors + 2 * d, normal_, wide_, rows, d, 3 * d);
    std::size_t first = 0;
    for (const Pass& pass : passes) {
      attend(pass, number, first);
      first += pass.tokens.size();
    }
    multiply(layer.attention, weights, vectors + 5 * d, normal_, narrow, rows, d, d);
    add_to_residual(narrow);
    norm_rows(vectors + 6 * d);
    multiply(layer.expand, weights, vectors + 8 * d, normal_, wide_, rows, d, 4 * d);
    for (std::size_t i = 0; i < rows * 4 * d; ++i) wide_[i] = gelu(wide_[i]);
    multiply(layer.contract, weights, vectors + 12 * d, wide_, narrow, rows, 4 * d, d);
    add_to_residual(narrow);
  }

  const float* const scale = last_norm_.load_range(weights, 0, 2 * d).data();
  row = 0;
  for (std::size_t i = 0; i < passes.size(); ++i) {
    row += passes[i].tokens.size();
    normalise(residual_.data() + (row - 1) * d, scale, normal_.data() + i * d, d);
    passes[i].sequence->length_ += passes[i].tokens.size();
  }
  logits_.resize(passes.size() * shape_.vocabulary);
  for (std::size_t token = 0; token < shape_.vocabulary; ++token) {
    const float* const w = embedding_.load_range(weights, token * d, d).data();
    for (std::size_t i = 0; i < passes.size(); ++i)
      logits_[i * shape_.vocabulary + token] = dot(normal_.data() + i * d, w, d);
  }
  return logits_;
}

namespace {

enum Class : std::uint32_t { generation, prompt, cache, update };

constexpr std::size_t head_width = 64;  // of every published size of GPT-2

/// The miniature: batch, shape, and how many sequences one simulated sequence stands for.
struct Miniature {
  Gpt2Shape shape;
  std::size_t batch = 0;
  double error = 1;  // the larger of weights' and caches' relative deviation from 1/R
};

Miniature shrink(const Gpt2Shape& full, std::size_t batch, double scale) {
  Miniature best;
  for (std::size_t smaller = 1; smaller <= batch; ++smaller) {
    Miniature next;
    next.batch = smaller;
    next.shape = full;
    const double share = static_cast<double>(smaller) / static_cast<double>(batch);
    // Heads stay; four numbers of each at least, so that rows are whole vectors.
    const std::size_t unit = 4 * full.heads;
    const auto units = static_cast<std::size_t>(
        static_cast<double>(full.width) * share / static_cast<double>(unit) + 0.5);
    next.shape.width = std::max<std::size_t>(units, 1) * unit;
    const double narrowed = static_cast<double>(next.shape.width) / static_cast<double>(full.width);
    next.shape.layers = static_cast<std::size_t>(
        std::max(1.0, static_cast<double>(full.layers) / (scale * narrowed * narrowed) + 0.5));
    next.shape.vocabulary = static_cast<std::size_t>(
        std::max(16.0, static_cast<double>(full.vocabulary) / (scale * narrowed) + 0.5));
    const auto off = [&](double ratio) { return std::abs(ratio * scale - 1); };
    next.error = std::max(off(next.shape.weights() / full.weights()),
                          off(next.shape.cached() * share / full.cached()));
    // Of equals the one with the most sequences; fewer than four layers are too few.
    if (next.shape.layers >= std::min<std::size_t>(full.layers, 4) &&
        next.error < best.error + 0.005)
      best = next;
  }
  return best;
}

trace::StreamInfo record_gpt2(const RecordRequest& request) {
  const ParameterReader read{request};
  const auto whole = [&](const char* name, double most) {
    return static_cast<std::size_t>(read.number(name, 1, most));
  };
  const Gpt2Shape full{whole("layers", 1000), whole("width", 1e5), whole("width", 1e5) / head_width,
                       whole("vocabulary", 1e7), whole("context", 1e6)};
  read.require(full.width % head_width == 0, "width",
               "found " + ParameterReader::text(static_cast<double>(full.width)) +
                   ", expected a multiple of 64");
  const std::size_t full_batch = whole("batch", 4096);
  const std::size_t prompt_tokens = whole("prompt_tokens", static_cast<double>(full.context) - 1);
  const std::size_t least_tokens = whole("least_tokens", static_cast<double>(full.context));
  read.require(least_tokens > prompt_tokens, "least_tokens", "not above prompt_tokens");
  const double gflops = read.positive("gflops");
  const double duration_s = read.positive("duration_s");
  const Miniature mini = shrink(full, full_batch, request.scale);
  read.require(mini.error < 0.1, "batch",
               "no smaller model and batch have their share of memory at scale " +
                   ParameterReader::text(request.scale));
  const double stands_for = static_cast<double>(full_batch) / static_cast<double>(mini.batch);

  trace::StreamInfo info = describe(request);
  info.lanes = {{"workers", 1}};
  // All is read in long rows: the prefetchers keep a core's 10 to 12 line buffers nearly full but
  // start again at every page, 9 lines on average (estimate). A line of weights is multiplied with
  // every token of the pass while the next ones arrive; a line of the cache once (estimate: a
  // quarter of the speed, being dot products of a head's length).
  const double flops_per_line = 2 * 16;
  const auto tokens_ns = [&](std::size_t tokens) {
    return flops_per_line * static_cast<double>(tokens) / gflops;
  };
  info.classes = {{"generation", 9, tokens_ns(full_batch)},
                  {"prompt", 9, tokens_ns(prompt_tokens)},
                  {"cache", 9, 4 * tokens_ns(1)},
                  {"update", 10, 0}};
  info.op_kinds = {{"token"}};
  trace::RecorderOptions options = recorder_options(request);
  // A token is the work of all threads on all weights at once, shared with its batch: what one
  // takes is no sum of one thread's misses, so that there are no latencies of operations.
  options.op_sample_probability = 0;
  trace::Recorder recorder{request.file, info, options};

  recorder.set_timed(false);
  Gpt2 model{recorder, {cache, update}, mini.shape, update, request.seed};

  struct Running {
    Gpt2Sequence sequence;
    std::size_t length;  // that it will reach
    std::uint32_t next;  // its newest token, which has not been passed yet
  };
  Rng rng{mix64(request.seed) ^ 0x67707432ULL};
  Progress progress{request};
  std::vector<Running> running;
  // GELU, norms and softmax of the tokens of a full-scale pass: some 2 ns for each number of the
  // hidden layers (estimate). A simulated share of it.
  const auto elementwise = [&](std::size_t tokens) {
    recorder.compute(
        0, 2.0 * 4 * static_cast<double>(tokens * full.layers * full.width) / request.scale);
  };

  // The prompt phase of a new sequence: as many passes as it stands for sequences.
  const auto start = [&](std::size_t length) {
    Gpt2Sequence sequence{recorder, mini.shape};
    std::vector<std::uint32_t> tokens(prompt_tokens);
    for (std::uint32_t& token : tokens)
      token = static_cast<std::uint32_t>(rng.below(mini.shape.vocabulary));
    std::uint32_t next = 0;
    const auto passes = static_cast<std::size_t>(stands_for + 0.5);
    for (std::size_t i = 0; i < passes; ++i) {
      const std::size_t from = prompt_tokens * i / passes;
      const std::size_t to = prompt_tokens * (i + 1) / passes;
      if (from == to) continue;
      const Gpt2::Pass pass{&sequence, std::span(tokens).subspan(from, to - from)};
      next = sample_token(model.forward({&pass, 1}, prompt), rng.uniform());
      elementwise(prompt_tokens);
    }
    running.push_back({std::move(sequence), length, next});
  };
  const auto draw_length = [&](std::size_t least) {
    return least + rng.below(full.context - least + 1);
  };
  // Set-up goes on until the batch is full. The first sequences end at different times, as if the
  // server had run for long.
  for (std::size_t i = 0; i < mini.batch; ++i) start(draw_length(prompt_tokens + 1));
  recorder.set_timed(true);

  double tokens_done = 0;  // full scale, not yet counted
  std::vector<Gpt2::Pass> passes;
  for (;;) {
    const double timed_s = recorder.timed_seconds();
    if (timed_s >= duration_s) break;
    progress.at(timed_s / duration_s);
    passes.clear();
    for (Running& each : running) passes.push_back({&each.sequence, {&each.next, 1}});
    const auto logits = model.forward(passes, generation);
    elementwise(full_batch);
    for (std::size_t i = 0; i < running.size(); ++i)
      running[i].next = sample_token(
          logits.subspan(i * mini.shape.vocabulary, mini.shape.vocabulary), rng.uniform());
    // A simulated operation stands for R tokens; a pass makes as many as the full batch has.
    for (tokens_done += static_cast<double>(full_batch); tokens_done >= request.scale;
         tokens_done -= request.scale) {
      recorder.begin_operation(0);
      recorder.end_operation();
    }
    std::size_t ended = 0;
    for (std::size_t i = 0; i < running.size();) {
      if (running[i].sequence.length() < running[i].length) {
        ++i;
        continue;
      }
      running[i].sequence.free();
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      ++ended;
    }
    for (; ended > 0; --ended) start(draw_length(least_tokens));
  }
  return recorder.finish();
}

const RegisterKernel registered{
    {"gpt2",
     "text generation with GPT-2: weights read evenly, key-value caches that grow and are freed",
     {{"layers", std::int64_t{48}, "count", "layers"},
      {"width", std::int64_t{1600}, "count", "numbers per token between layers; 64 for each head"},
      {"vocabulary", std::int64_t{50257}, "count", "tokens that there are"},
      {"context", std::int64_t{1024}, "tokens", "longest sequence; its cache is allocated at once"},
      {"batch", std::int64_t{24}, "count", "sequences at a time"},
      {"prompt_tokens", std::int64_t{256}, "tokens", "length of a request"},
      {"least_tokens", std::int64_t{768}, "tokens",
       "shortest whole sequence; lengths are uniform between this and context"},
      {"gflops", 40.0, "10^9/s", "single-precision operations of a thread in matrix products"},
      {"duration_s", 600.0, "s", "length of the timed part if all memory were fast"},
      block_ms_parameter(40)},
     &record_gpt2}};

}  // namespace
}  // namespace tt::kernels
