// SPDX-License-Identifier: MIT

// GPT-2: a decoder-only transformer with a key-value cache (Radford et al., 2019; public source
// openai/gpt-2, src/model.py). Single precision, everything computed.
//
// A pass takes new tokens of some sequences through all layers: layer norm, queries, keys and
// values, attention over the sequence's cache, projection, layer norm, a hidden layer of four times
// the width with GELU, projection; in the end the logits of each sequence's next token, by the
// embedding matrix once more. Every weight is read once per pass, whatever the number of tokens.
// A sequence's keys and values are written once and read again for each of its later tokens.
//
// Not recorded: activations. A few buffers are reused by all layers; at full scale they stay in the
// cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/traced.hpp"
#include "trace/recorder.hpp"

namespace tt::kernels {

struct Gpt2Shape {
  std::size_t layers = 48;  // the defaults are GPT-2 XL's
  std::size_t width = 1600;
  std::size_t heads = 25;
  std::size_t vocabulary = 50257;
  std::size_t context = 1024;

  /// Weights of the matrices that a pass reads, one position of a sequence's cache: in numbers.
  [[nodiscard]] double weights() const {
    const auto d = static_cast<double>(width);
    return 12 * static_cast<double>(layers) * d * d + static_cast<double>(vocabulary) * d;
  }
  [[nodiscard]] double cached() const { return 2.0 * static_cast<double>(layers * width); }
};

struct Gpt2Classes {
  std::uint32_t cache = 0;   // keys and values, in rows
  std::uint32_t update = 0;  // their stores
};

/// Keys and values of a sequence: by layer, keys then values, by position.
class Gpt2Sequence {
 public:
  Gpt2Sequence(trace::Recorder& recorder, const Gpt2Shape& shape)
      : cache_(recorder, "gpt2.kv_cache", 2 * shape.layers * shape.context * shape.width) {}
  [[nodiscard]] std::size_t length() const { return length_; }
  void free() { cache_.free(); }

 private:
  friend class Gpt2;
  TracedArray<float> cache_;
  std::size_t length_ = 0;
};

class Gpt2 {
 public:
  struct Layer {
    TracedArray<float> qkv;        // width x 3 width
    TracedArray<float> attention;  // width x width
    TracedArray<float> expand;     // width x 4 width
    TracedArray<float> contract;   // 4 width x width
    // Norm's scale and shift, biases of qkv and attention, norm's scale and shift, biases of expand
    // and contract: 2 + 3 + 1 + 2 + 4 + 1 times the width.
    TracedArray<float> vectors;
  };
  /// New tokens of a sequence; the logits of the token after them are wanted.
  struct Pass {
    Gpt2Sequence* sequence;
    std::span<const std::uint32_t> tokens;
  };

  /// Random weights as GPT-2 is initialised; stored as class `loading`. The width must be a
  /// multiple of the heads and of 4 (std::invalid_argument).
  Gpt2(trace::Recorder& recorder, const Gpt2Classes& classes, const Gpt2Shape& shape,
       std::uint32_t loading, std::uint64_t seed);

  /// Reads all weights once, as class `weights`. Returns logits, pass by pass, valid until the next
  /// call.
  std::span<const float> forward(std::span<const Pass> passes, std::uint32_t weights);

  [[nodiscard]] const Gpt2Shape& shape() const { return shape_; }
  [[nodiscard]] const std::vector<Layer>& layers() const { return layers_; }
  [[nodiscard]] const TracedArray<float>& embedding() const { return embedding_; }
  [[nodiscard]] const TracedArray<float>& positions() const { return positions_; }
  [[nodiscard]] const TracedArray<float>& last_norm() const { return last_norm_; }

 private:
  void attend(const Pass& pass, std::size_t layer, std::size_t first_row);

  Gpt2Shape shape_;
  Gpt2Classes classes_;
  TracedArray<float> embedding_;  // a row per token; also the last matrix
  TracedArray<float> positions_;  // a row per position
  TracedArray<float> last_norm_;  // scale and shift
  std::vector<Layer> layers_;

  // Activations: a row per new token.
  std::vector<float> residual_, normal_, wide_, scores_, logits_;
};

/// e^x and tanh x by a fixed sequence of basic operations: sampled tokens, and so addresses, are
/// the same on every machine. Relative error below 1e-6 for |x| < 80.
[[nodiscard]] float portable_exp(float x);
[[nodiscard]] float portable_tanh(float x);

/// The token at a uniform draw in [0, 1) of the distribution that the logits describe.
[[nodiscard]] std::uint32_t sample_token(std::span<const float> logits, double uniform);

}  // namespace tt::kernels
