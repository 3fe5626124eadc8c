// SPDX-License-Identifier: MIT

// gpt2: generation with a key-value cache gives what a plain transformer gives that computes every
// sequence anew, and the stream has weights that are read evenly and caches that grow and go.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "kernels/gpt2.hpp"
#include "kernels/kernel.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"

using namespace tt;
using namespace tt::trace;
using check::Scratch;
using kernels::Gpt2;
using kernels::Gpt2Sequence;
using kernels::Gpt2Shape;

namespace {

constexpr Gpt2Shape tiny{3, 24, 3, 61, 24};

struct Machine {
  Machine() : recorder(scratch.file("m.tts"), description(), {}) {}
  static StreamInfo description() {
    StreamInfo info;
    info.classes = {{"all", 1, 0}};
    info.lanes = {{"all", 1}};
    return info;
  }
  Scratch scratch;
  Recorder recorder;
};

using Row = std::vector<double>;

Row norm(const Row& in, const float* scale) {
  const auto width = static_cast<double>(in.size());
  const double mean = std::accumulate(in.begin(), in.end(), 0.0) / width;
  double variance = 0;
  for (const double value : in) variance += (value - mean) * (value - mean) / width;
  Row out;
  for (std::size_t i = 0; i < in.size(); ++i)
    out.push_back((in[i] - mean) / std::sqrt(variance + 1e-5) * scale[i] + scale[in.size() + i]);
  return out;
}

Row product(const Row& in, std::span<const float> matrix, const float* bias, std::size_t out) {
  Row sums(bias, bias + out);
  for (std::size_t i = 0; i < in.size(); ++i)
    for (std::size_t o = 0; o < out; ++o) sums[o] += in[i] * matrix[i * out + o];
  return sums;
}

/// Logits after the last of the tokens, all computed anew, in double precision.
Row plain(const Gpt2& model, std::span<const std::uint32_t> tokens) {
  const auto& shape = model.shape();
  const std::size_t d = shape.width;
  std::vector<Row> x;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    x.emplace_back();
    for (std::size_t i = 0; i < d; ++i)
      x[t].push_back(static_cast<double>(model.embedding().peek(tokens[t] * d + i)) +
                     static_cast<double>(model.positions().peek(t * d + i)));
  }
  for (const Gpt2::Layer& layer : model.layers()) {
    const float* const v = layer.vectors.peek_all().data();
    std::vector<Row> qkv;
    for (const Row& row : x)
      qkv.push_back(product(norm(row, v), layer.qkv.peek_all(), v + 2 * d, 3 * d));
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      Row mixed(d);
      const std::size_t size = d / shape.heads;
      for (std::size_t head = 0; head < shape.heads; ++head) {
        Row share;
        double sum = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          double score = 0;
          for (std::size_t i = head * size; i < (head + 1) * size; ++i)
            score += qkv[t][i] * qkv[s][d + i];
          share.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
          sum += share.back();
        }
        for (std::size_t s = 0; s <= t; ++s)
          for (std::size_t i = head * size; i < (head + 1) * size; ++i)
            mixed[i] += share[s] / sum * qkv[s][2 * d + i];
      }
      const Row attended = product(mixed, layer.attention.peek_all(), v + 5 * d, d);
      for (std::size_t i = 0; i < d; ++i) x[t][i] += attended[i];
      Row hidden = product(norm(x[t], v + 6 * d), layer.expand.peek_all(), v + 8 * d, 4 * d);
      for (double& h : hidden)
        h = 0.5 * h * (1 + std::tanh(std::sqrt(2 / M_PI) * (h + 0.044715 * h * h * h)));
      const Row contracted = product(hidden, layer.contract.peek_all(), v + 12 * d, d);
      for (std::size_t i = 0; i < d; ++i) x[t][i] += contracted[i];
    }
  }
  const Row last = norm(x.back(), model.last_norm().peek_all().data());
  Row logits;
  for (std::size_t token = 0; token < shape.vocabulary; ++token) {
    logits.push_back(0);
    for (std::size_t i = 0; i < d; ++i)
      logits[token] += last[i] * model.embedding().peek(token * d + i);
  }
  return logits;
}

double difference(std::span<const float> ours, const Row& theirs) {
  double most = 0;
  for (std::size_t i = 0; i < theirs.size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(ours[i]) - theirs[i]));
  return most;
}

/// 8 sequences of a small model, of which the miniature keeps 2 with a quarter of the width:
/// R = 16 of layers x width^2.
kernels::RecordRequest small(const std::filesystem::path& file) {
  kernels::RecordRequest request;
  request.workload = "gpt2";
  request.input = "test";
  request.scale = 16;
  request.threads = 8;
  request.llc_bytes = static_cast<double>(1 << 20);
  request.seed = 3;
  request.file = file;
  request.parameters = {{"layers", std::int64_t{4}},
                        {"width", std::int64_t{256}},
                        {"vocabulary", std::int64_t{2000}},
                        {"context", std::int64_t{64}},
                        {"batch", std::int64_t{8}},
                        {"prompt_tokens", std::int64_t{16}},
                        {"least_tokens", std::int64_t{48}},
                        {"duration_s", 0.2},
                        {"block_ms", 0.5}};
  return request;
}

struct Sums {
  std::map<std::string, double> pages;                              // by site
  std::map<std::string, double> accesses;                           // timed
  std::map<std::pair<std::uint32_t, AccessKind>, double> by_class;  // timed
  std::vector<std::uint64_t> embedding;                             // timed, by page
  double set_up_stores = 0;
  std::uint64_t freed = 0;
  double peak = 0;                  // pages in use
  std::vector<double> cache_pages;  // in use, block by block of the timed part
};

Sums sums(const Reader& reader) {
  Sums all;
  const auto& info = reader.info();
  for (const Object& object : info.objects) {
    all.pages[object.site] += static_cast<double>(object.pages);
    for (const auto total : reader.page_totals().subspan(object.first_page, object.pages))
      all.accesses[object.site] += static_cast<double>(total);
  }
  std::vector<double> touched(info.objects.size());
  Block block;
  for (std::uint64_t i = 0; i < info.blocks; ++i) {
    reader.read(i, block);
    for (const Event& event : block.events) {
      if (event.type == EventType::touch) touched[event.object] += event.count;
      if (event.type == EventType::unmap) touched[event.object] = 0, ++all.freed;
    }
    double caches = 0;
    for (std::size_t o = 0; o < touched.size(); ++o)
      if (info.objects[o].site == "gpt2.kv_cache") caches += touched[o];
    all.peak = std::max(all.peak, std::accumulate(touched.begin(), touched.end(), 0.0));
    if (block.timed) all.cache_pages.push_back(caches);
    for (const Segment& segment : block.segments) {
      if (block.timed)
        all.by_class[{segment.stream_class, segment.kind}] += static_cast<double>(segment.sum);
      else if (segment.kind == AccessKind::store)
        all.set_up_stores += static_cast<double>(segment.sum);
    }
  }
  return all;
}

}  // namespace

TEST("gpt2: portable exponential and hyperbolic tangent") {
  for (double x = -80; x < 80; x += 0.0173) {
    const double exact = std::exp(static_cast<double>(static_cast<float>(x)));
    CHECK_NEAR(static_cast<double>(kernels::portable_exp(static_cast<float>(x))) / exact, 1, 1e-6);
  }
  for (double x = -12; x < 12; x += 0.0173)
    CHECK_NEAR(static_cast<double>(kernels::portable_tanh(static_cast<float>(x))), std::tanh(x),
               1e-6);
  CHECK_EQ(kernels::portable_exp(0.0F), 1.0F);
  CHECK(kernels::portable_exp(-1000.0F) < 1e-37F);
}

TEST("gpt2: with its cache the model gives what a plain transformer gives without one") {
  Machine machine;
  Gpt2 model{machine.recorder, {0, 0}, tiny, 0, 5};
  Rng rng{9};
  std::vector<Gpt2Sequence> sequences;
  std::vector<std::vector<std::uint32_t>> texts(3);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    sequences.emplace_back(machine.recorder, tiny);
    for (std::size_t t = 0; t < 4 + 3 * i; ++t)
      texts[i].push_back(static_cast<std::uint32_t>(rng.below(tiny.vocabulary)));
  }
  // Prompts: the first whole, the second in two parts, the third together with generation.
  Gpt2::Pass pass{&sequences[0], texts[0]};
  auto logits = model.forward({&pass, 1}, 0);
  const Row first = plain(model, texts[0]);
  // The logits differ by far more than the tolerance.
  CHECK(*std::ranges::max_element(first) - *std::ranges::min_element(first) > 0.2);
  CHECK_NEAR(difference(logits, first), 0, 1e-5);
  pass = {&sequences[1], std::span(texts[1]).first(3)};
  CHECK_NEAR(difference(model.forward({&pass, 1}, 0), plain(model, std::span(texts[1]).first(3))),
             0, 1e-5);
  pass = {&sequences[1], std::span(texts[1]).subspan(3)};
  CHECK_NEAR(difference(model.forward({&pass, 1}, 0), plain(model, texts[1])), 0, 1e-5);
  texts[0].push_back(7);
  const std::vector<Gpt2::Pass> both{{&sequences[2], texts[2]},
                                     {&sequences[0], std::span(texts[0]).last(1)}};
  logits = model.forward(both, 0);
  CHECK_NEAR(difference(logits.first(61), plain(model, texts[2])), 0, 1e-5);
  CHECK_NEAR(difference(logits.subspan(61), plain(model, texts[0])), 0, 1e-5);
  // Generation, all three at a time, to the end of the context for the longest.
  while (sequences[2].length() < tiny.context) {
    std::vector<Gpt2::Pass> passes;
    for (std::size_t i = 0; i < 3; ++i) {
      texts[i].push_back(static_cast<std::uint32_t>(rng.below(tiny.vocabulary)));
      passes.push_back({&sequences[i], std::span(texts[i]).last(1)});
    }
    logits = model.forward(passes, 0);
    for (std::size_t i = 0; i < 3; ++i)
      CHECK_NEAR(difference(logits.subspan(61 * i, 61), plain(model, texts[i])), 0, 1e-5);
  }
  CHECK_EQ(texts[2].size(), tiny.context);
  pass = {&sequences[2], std::span(texts[0]).last(1)};
  CHECK_THROWS(model.forward({&pass, 1}, 0), "more than the context holds");
  CHECK_THROWS((Gpt2{machine.recorder, {0, 0}, {1, 18, 3, 8, 8}, 0, 5}), "multiple of the heads");
}

TEST("gpt2: tokens are drawn from the distribution of the logits") {
  const std::vector<float> logits{0, std::log(2.0F), -100, std::log(5.0F)};
  std::vector<double> drawn(4);
  for (int i = 0; i < 1000; ++i) drawn[kernels::sample_token(logits, (i + 0.5) / 1000)] += 0.001;
  CHECK_NEAR(drawn[0], 0.125, 0.0015);
  CHECK_NEAR(drawn[1], 0.25, 0.0015);
  CHECK_EQ(drawn[2], 0.0);
  CHECK_NEAR(drawn[3], 0.625, 0.0015);
}

TEST("gpt2: weights are read evenly, once per pass; caches grow, are read again, and are freed") {
  const Scratch scratch;
  const StreamInfo info = kernels::record("gpt2", small(scratch.file("g.tts")));
  const Reader reader{scratch.file("g.tts")};
  reader.verify();
  const Sums all = sums(reader);
  const auto per_page = [&](const char* site) {
    return all.accesses.at(site) / all.pages.at(site);
  };
  const double usual = per_page("gpt2.mlp.c_fc");
  for (const char* site : {"gpt2.attn.c_attn", "gpt2.attn.c_proj", "gpt2.mlp.c_proj", "gpt2.wte"})
    CHECK_NEAR(per_page(site) / usual, 1, 0.05);
  CHECK(per_page("gpt2.wpe") < usual);
  // Set-up stores the weights: 16 numbers to a line.
  const double layers = 4;
  const double width = 64;
  CHECK(all.set_up_stores > layers * 12 * width * width / 16);
  // Per generation pass and sequence one position of 2 x layers x width is written.
  const double weights_lines =
      (layers * (12 * width * width + 13 * width) + 500 * width + 2 * width) / 16;
  const double passes = all.by_class.at({0, AccessKind::load}) / weights_lines;
  const double positions = all.by_class.at({3, AccessKind::store}) / (2 * layers * width / 16);
  const double prompts =
      all.by_class.at({1, AccessKind::load}) / weights_lines / 4;  // 4 passes each
  CHECK_NEAR(positions / (2 * passes + 16 * prompts), 1, 0.03);
  // A sequence's position is read again for each later token: 40 or so times 2 sequences.
  const double read_again =
      all.by_class.at({2, AccessKind::load}) / (passes * 2 * 2 * layers * width / 16);
  CHECK(read_again > 20 && read_again < 64);
  // Sequences end, and others begin.
  CHECK(all.freed >= 4);
  CHECK_NEAR(prompts, static_cast<double>(all.freed), 0.3);
  CHECK_EQ(all.freed + 2, static_cast<std::uint64_t>(
                              std::ranges::count(info.objects, "gpt2.kv_cache", &Object::site)));
  int grew = 0;
  int fell = 0;
  for (std::size_t i = 1; i < all.cache_pages.size(); ++i) {
    grew += all.cache_pages[i] > all.cache_pages[i - 1];
    fell += all.cache_pages[i] < all.cache_pages[i - 1];
  }
  CHECK_EQ(static_cast<std::uint64_t>(fell), all.freed);
  CHECK(grew > 3 * fell);
  // Tokens at full scale: 8 per pass.
  CHECK_NEAR(static_cast<double>(info.operations) * 16, 8 * passes, 32);
}

TEST("gpt2: the miniature of GPT-2 XL has its share of weights and caches") {
  const Scratch scratch;
  for (const double scale : {400.0, 512.0, 640.0}) {
    auto request = small(scratch.file("g.tts"));
    request.parameters = {{"prompt_tokens", std::int64_t{1}},
                          {"least_tokens", std::int64_t{2}},
                          {"duration_s", 1e-3}};
    request.scale = scale;
    const StreamInfo info = kernels::record("gpt2", request);
    double weights = 0;
    double caches = 0;
    for (const Object& object : info.objects)
      if (object.site != "gpt2.wpe")  // 6.6 MB, of which a pass reads a row per sequence
        (object.site == "gpt2.kv_cache" ? caches : weights) +=
            static_cast<double>(object.pages) * 4096 * scale;
    // 1.558 billion weights; 24 caches of 2 x 48 x 1600 x 1024 numbers.
    CHECK_NEAR(weights / (4 * 1.558e9), 1, 0.06);
    CHECK_NEAR(caches / (4.0 * 24 * 2 * 48 * 1600 * 1024), 1, 0.06);
  }
}

TEST("gpt2: every parameter shows") {
  const Scratch scratch;
  const auto with = [&](const char* name, kernels::Value value) {
    auto request = small(scratch.file("r.tts"));
    request.parameters["duration_s"] = 0.03;
    if (name[0] != '\0') request.parameters[name] = std::move(value);
    const StreamInfo info = kernels::record("gpt2", request);
    return std::pair{info, sums(Reader{request.file})};
  };
  const auto [info, usual] = with("", 0.0);
  const double weights = usual.pages.at("gpt2.mlp.c_fc");
  CHECK_EQ(with("layers", std::int64_t{8}).second.pages.at("gpt2.mlp.c_fc"), 2 * weights);
  CHECK(with("width", std::int64_t{512}).second.pages.at("gpt2.mlp.c_fc") > 3 * weights);
  CHECK(with("vocabulary", std::int64_t{4000}).second.pages.at("gpt2.wte") >
        1.9 * usual.pages.at("gpt2.wte"));
  CHECK(with("context", std::int64_t{128}).second.pages.at("gpt2.wpe") >
        1.9 * usual.pages.at("gpt2.wpe"));
  CHECK(with("batch", std::int64_t{16}).second.pages.at("gpt2.kv_cache") >
        1.5 * usual.pages.at("gpt2.kv_cache"));
  // Longer prompts: more of the caches is in use from the beginning.
  CHECK(with("prompt_tokens", std::int64_t{32}).second.cache_pages.front() >
        1.2 * usual.cache_pages.front());
  CHECK(with("gflops", 4.0).first.operations < info.operations / 2);
  CHECK(with("duration_s", 0.06).first.operations > 1.5 * static_cast<double>(info.operations));
  CHECK(with("block_ms", 5.0).first.blocks < info.blocks / 3);
  // Sequences end earlier.
  auto request = small(scratch.file("r.tts"));
  const auto longer = kernels::record("gpt2", request).objects.size();
  request.parameters["least_tokens"] = std::int64_t{17};
  CHECK(kernels::record("gpt2", request).objects.size() > longer);
  CHECK_THROWS(with("least_tokens", std::int64_t{16}), "least_tokens: not above prompt_tokens");
  CHECK_THROWS(with("width", std::int64_t{1000}), "width: found 1000, expected a multiple of 64");
  CHECK_THROWS(with("batch", std::int64_t{1}), "no smaller model and batch");
}
