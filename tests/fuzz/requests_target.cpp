// SPDX-License-Identifier: MIT

// Fuzz target: traces of caches. The first byte of an input says whether columns are given.
#include <algorithm>
#include <array>
#include <string_view>

#include "fuzz.hpp"
#include "record/requests.hpp"

namespace tt::fuzz {
namespace {

constexpr std::array<const char*, 3> columns = {"", "time,key,size", "-,op,size,key,ttl,count"};

/// What most mutations break: the last line's end, and whole records.
void refit(Bytes& input, Rng& rng) {
  if (input.empty()) input.push_back(0);
  if (rng.below(4) == 0) return;
  if (std::find(input.begin() + 1, input.end(), '\0') != input.end())
    input.resize(1 + (input.size() - 1) / 24 * 24);
  else if (input.back() != '\n')
    input.push_back('\n');
}

bool run(const Bytes& input, const std::filesystem::path&) {
  if (input.empty()) return false;
  record::RequestSummary summary;
  std::uint64_t requests = 0, latest = 0;
  try {
    record::read_requests(in_pieces(input, 1), "input",
                          columns.at(static_cast<unsigned char>(input[0]) % columns.size()),
                          summary, [&](const record::CacheRequest& request) {
                            if (request.count == 0 || request.seconds < latest)
                              throw std::logic_error("a request without a count, or out of order");
                            latest = request.seconds;
                            requests += request.count;
                          });
  } catch (const std::runtime_error&) {
    return false;
  }
  if (requests != summary.requests) throw std::logic_error("requests and their number differ");
  return true;
}

Bytes made(char first, std::string_view text) {
  std::string input(1, first);
  input += text;
  return {input.begin(), input.end()};
}

Bytes records() {
  Bytes input(1 + 3 * 24);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const std::size_t at = 1 + i * 24;
    poke<std::uint32_t>(input, at, 7 + i);
    poke<std::uint64_t>(input, at + 4, 1000 + i % 2);
    poke<std::uint32_t>(input, at + 12, 4096);
    poke<std::int64_t>(input, at + 16, i == 0 ? 2 : -1);
  }
  return input;
}

std::vector<Bytes> seeds() {
  return {
      made(0,
           "key,op,size,op_count,key_size\n12,GET,0,3,20\n12,SET,100,1,20\n9,DELETE,0,1,17\n"
           "9,SAT,1,1,17\n"),
      made(0,
           "op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase\n"
           "564726470,7,30,GET_LEASE,2,50,1,3600,8\n"),
      made(0,
           "0,q:q:1:8WTfjZU14ee,17,213,4,get,0\n1,yDqF:3q:1AJrrJ1,nnCJ,24,27,6,set,86400\n"
           "1,yDqF,24,27,6,incr,0\n"),
      made(1,
           "\xEF\xBB\xBF"
           "0.5,\"a b\",10\n0,7,4096.0\n"),
      made(2, "1;2a;512;42932745;0;1\n1;r;512;42932745;60;2\n"),
      records(),
  };
}

}  // namespace

const Target& requests_target() {
  static constexpr Target target{"requests", seeds, refit, run};
  return target;
}

}  // namespace tt::fuzz
