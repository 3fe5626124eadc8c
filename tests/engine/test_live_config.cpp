// SPDX-License-Identifier: MIT

// What a live engine takes from the tuner's best.yaml, and how it refuses anything else.
#include <string>

#include "check.hpp"
#include "core/rng.hpp"
#include "live/config.hpp"

using namespace tt;
using live::Config;
using live::read_config;
using live::read_knob;

namespace {

const std::string best =
    "# 1.31 times as fast as doing nothing\n"
    "scenario:\n"
    "  workload: cachelib\n"
    "  policy: hybridtier\n"
    "  ratio: '1:8'\n"
    "  page_bytes: 4096\n"
    "knobs:\n"
    "  sample_batch: 12500.0\n"
    "  frequency_hot_threshold: 7\n"
    "  aol.enabled: true  # a remark\n"
    "  variant: 'artifact'\n"
    "  promote_watermark: 1.5e-02\n"
    "objective: {value: 1.5, default_value: 1.2}\n"
    "provenance:\n"
    "  study: with policy: in it\n"
    "  engine_build: 0123456789ab-fedcba987654\n"
    "  fingerprints:\n"
    "    policy: other\n"
    "verdict:\n"
    "  knobs:\n"
    "  - a\n"
    "  text: goes on\n"
    "    in another line\n";

std::string with(const std::string& from, const std::string& to) {
  std::string text = best;
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace

TEST("live config: a best.yaml gives policy, knobs and build") {
  const Config config = read_config(best);
  CHECK_EQ(config.policy, std::string{"hybridtier"});
  CHECK_EQ(config.page_bytes, 4096u);
  CHECK_EQ(config.engine_build, std::string{"0123456789ab-fedcba987654"});
  CHECK_EQ(config.knobs.size(), 5u);
  CHECK(config.knobs.at("sample_batch") == KnobValue{12500.0});
  CHECK(config.knobs.at("frequency_hot_threshold") == KnobValue{std::int64_t{7}});
  CHECK(config.knobs.at("aol.enabled") == KnobValue{true});
  CHECK(config.knobs.at("variant") == KnobValue{std::string{"artifact"}});
  CHECK(config.knobs.at("promote_watermark") == KnobValue{0.015});
  CHECK_EQ(read_config("scenario:\n  policy: first-touch\nknobs: {}\n").policy,
           std::string{"first-touch"});
}

TEST("live config: what is wrong is named with line, key, and what is allowed") {
  CHECK_THROWS(read_config(""), "no scenario with a policy");
  CHECK_THROWS(read_config(with("policy: hybridtier", "policy: lru")), "line 4: policy: ");
  CHECK_THROWS(read_config(with("policy: hybridtier", "policy: [a]")),
               "line 4: policy: found '[a]', allowed is a plain value");
  CHECK_THROWS(read_config(with("  ratio: '1:8'", "  policy: arc")),
               "line 5: policy: written twice");
  CHECK_THROWS(read_config(with("page_bytes: 4096", "page_bytes: 4 KiB")),
               "line 6: page_bytes: found '4 KiB', allowed is a number of bytes");
  CHECK_THROWS(read_config(with("sample_batch: 12500.0", "samples: 1")),
               "line 8: samples: policy hybridtier has no such knob");
  CHECK_THROWS(read_config(with("sample_batch: 12500.0", "sample_batch 1")), "line 8: found");
  CHECK_THROWS(read_config(with("threshold: 7", "threshold: 7.5")),
               "line 9: frequency_hot_threshold: found '7.5', allowed is a whole number from 1 to");
  CHECK_THROWS(read_config(with("threshold: 7", "threshold: 0")), "found '0'");
  CHECK_THROWS(read_config(with("threshold: 7", "threshold: .inf")), "found '.inf'");
  CHECK_THROWS(read_config(with("threshold: 7", "threshold:")), "found nothing");
  CHECK_THROWS(read_config(with("enabled: true", "enabled: yes")), "allowed is true or false");
  CHECK_THROWS(read_config(with("'artifact'", "'artifact")), "both its quotes");
  CHECK_THROWS(read_config(with("'artifact'", "\"a\\n\"")), "without quotes inside");
  CHECK_THROWS(read_config(with("'artifact'", "other")), "allowed is paper or artifact");
  CHECK_THROWS(read_config(with("  sample_batch: 12500.0", "  variant: paper")), "written twice");
  CHECK_THROWS(read_config(with("knobs:\n", "knobs: {a: 1}\n")),
               "line 7: knobs: found '{a: 1}', allowed is one key on each line below");
  CHECK_THROWS(read_config("scenario\n"), "line 1: found 'scenario', allowed is KEY: VALUE");
}

TEST("live config: any bytes are read or refused") {
  Rng rng{11};
  int read = 0, refused = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string text = best;
    for (std::uint64_t changes = 1 + rng.below(4); changes > 0; --changes) {
      const std::size_t at = rng.below(text.size());
      switch (rng.below(3)) {
        case 0:
          text[at] = static_cast<char>(rng.below(256));
          break;
        case 1:
          text.erase(at, 1 + rng.below(20));
          break;
        default:
          text.insert(at, text.substr(rng.below(text.size()), rng.below(30)));
      }
      if (text.empty()) text = "x";
    }
    try {
      (void)read_config(text);
      ++read;
    } catch (const std::runtime_error&) {
      ++refused;
    }
  }
  CHECK(read > 100);
  CHECK(refused > 100);
}
