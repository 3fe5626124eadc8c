// SPDX-License-Identifier: MIT

// Fuzz target: what an importer reads. The first byte of an input says which importer.
#include <string_view>

#include "fuzz.hpp"
#include "record/import.hpp"
#include "trace/reader.hpp"
#include "trace/stream.hpp"

namespace tt::fuzz {
namespace {

using record::ImportFormat;

constexpr std::size_t formats = 4;

ImportFormat format_of(const Bytes& input) {
  return static_cast<ImportFormat>(static_cast<unsigned char>(input[0]) % formats);
}

/// What most mutations break: the last line's end.
void refit(Bytes& input, Rng& rng) {
  if (input.empty()) input.push_back(0);
  if (rng.below(8) != 0 && input.back() != '\n') input.push_back('\n');
}

bool run(const Bytes& input, const std::filesystem::path& scratch) {
  if (input.empty()) return false;
  const auto out = scratch / "out.tts";
  std::filesystem::remove(out);
  record::ImportOptions options;
  options.format = format_of(input);
  options.ns_per_instruction = 0.25;
  options.llc_bytes = 1 << 14;
  options.most_pages = 1 << 12;
  options.scale = static_cast<unsigned char>(input[0]) / formats % 2 == 0 ? 1 : 4;
  options.period = input.size() % 2 == 0 ? 0 : 3;
  trace::StreamInfo info;
  info.workload = "fuzz";
  record::ImportSummary summary;
  try {
    (void)record::import_trace(in_pieces(input, 1), "input", out, info, options, summary);
  } catch (const std::runtime_error&) {
    if (std::filesystem::exists(out)) throw std::logic_error("a refused import left a stream");
    return false;
  }
  trace::Reader{out}.verify();
  return true;
}

Bytes made(ImportFormat format, std::string_view text) {
  std::string input(1, static_cast<char>(format));
  input += text;
  return {input.begin(), input.end()};
}

std::vector<Bytes> seeds() {
  return {
      made(ImportFormat::perf_script,
           "# comment\n"
           "   server  4711/4713  5123.401506:      10007 mem_load_retired.l3_miss:Pu: "
           "7f31c8000ec0\n"
           "I/O work 4711/4711 [003] 5123.402228: 5 stores: 7f31c80077c0 68100142 |OP STORE|LVL "
           "N/A|\n"
           "x 9 5123.5: 7 loads: 1000 681 |OP LOAD|LVL L1 hit|\n"
           "x 9 5124.5: 7 loads: 0\n"),
      made(ImportFormat::damon,
           "base_time_absolute: 8 m 59.809 s\n\n"
           "monitoring_start:                0 ns\nmonitoring_end:            104.599 ms\n"
           "monitoring_duration:       104.599 ms\ntarget_id: 18446623438842320000\nnr_regions: 2\n"
           "563ebaa00000-563ebaa10000(  64.000 KiB):\t1\n"
           "7f938d7e1000-7f938d7fc000( 108.000 KiB):\t0 7\n"),
      made(ImportFormat::damon,
           " kdamond.0 46568 [027] 79357.842179: damon:damon_aggregated: target_id=0 nr_regions=2 "
           "94828370427904-94828370493440: 20 4\n"
           " kdamond.0-46568 [003] ..... 79357.946320: damon_aggregated: target_id=1 nr_regions=1 "
           "94828370427904-94828370436096: 7\n"),
      made(ImportFormat::perf_script,
           "cpus=4\ns 7/8 [001] 9.1: 1 l1d-miss: aaaae7007b80 1204 |OP LOAD|LVL L1 miss|\n"
           "\t    401136 main+0x10 (/bin/a)\n\n"
           "s 7/8 [001] 9.1: 1 llc-miss: aaaae7007b80 1204 |OP LOAD|LVL L3 miss|\n"
           "s 7/8 [001] 9.2: PERF_RECORD_LOST lost 3\nCPU:1 [LOST 5 EVENTS]\n"),
      made(ImportFormat::damon,
           "base_time_absolute: 3 h 12.500 s\ndata source: perf script\n\n"
           "monitoring_start: 0 ns\nmonitoring_end: 100 ms\ntarget_id: 0\nnr_regions: 1\n"
           "# start_addr end_addr length nr_accesses age\n"
           "5581a0000000-5581a0004000 (  16.000 KiB)          18    -1\n"),
      made(ImportFormat::damon,
           "[{\"kdamond_idx\": 0, \"snapshots\": [{\"start_time\": \"1,764 d\", \"end_time\": 9,\n"
           "\"regions\": [{\"start\": \"4,096\", \"end\": 8192, \"nr_accesses\": {\"samples\": "
           "3}}]}],"
           "\"target_id\": null}]\n"),
      made(ImportFormat::damon,
           "k 2 [003] 5.1: damon:damos_esz: ctx_idx=0\n"
           "k 2 [003] 5.2: damon:damon_region_aggregated: target_id=0 nr_regions=1 4096-8192: 7 0 "
           "probe_hits=13\n"),
      made(ImportFormat::csv,
           "\xEF\xBB\xBF\"Time\";Address;Kind\n1764000000000000000;\"4096.0\";Read\n5;0;w\n"),
      made(ImportFormat::lackey,
           "==1== Lackey\nI  00401000,5\n L 00403000,1\n S 1fff000760,8\n M 00403fff,4\n"),
      made(ImportFormat::csv,
           "time,address,kind,count,size,process\n0,0x7f3a10000000,load,1.5,64,0\n"
           "12.5,4096,w,2,8,1\n\n1e3,0x7f3a10000fff,store,0,300,0\n"),
  };
}

}  // namespace

const Target& import_target() {
  static constexpr Target target{"import", seeds, refit, run};
  return target;
}

}  // namespace tt::fuzz
