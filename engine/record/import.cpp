// SPDX-License-Identifier: MIT

#include "record/import.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "record/import/importer.hpp"

namespace tt::record {

ImportFormat import_format(std::string_view name) {
  static constexpr std::array<std::pair<Text, ImportFormat>, 4> known = {
      {{"perf-script", ImportFormat::perf_script},
       {"damon", ImportFormat::damon},
       {"lackey", ImportFormat::lackey},
       {"csv", ImportFormat::csv}}};
  for (const auto& [format, value] : known)
    if (format == name) return value;
  throw std::invalid_argument("no format '" + std::string(name) +
                              "' (known: perf-script, damon, lackey, csv)");
}

trace::StreamInfo import_trace(const ImportSource& source, const std::string& name,
                               const std::filesystem::path& file, trace::StreamInfo info,
                               const ImportOptions& options, ImportSummary& summary) {
  summary = {};
  info.lanes = {{"threads", 1}};
  Lines lines{source, name};
  Importer to{lines, file, std::move(info), options, summary};
  try {
    switch (options.format) {
      case ImportFormat::perf_script:
        import_perf_script(to);
        break;
      case ImportFormat::damon:
        import_damon(to);
        break;
      case ImportFormat::lackey:
        import_lackey(to);
        break;
      case ImportFormat::csv:
        import_csv(to);
        break;
    }
  } catch (const std::invalid_argument& error) {  // of the assembler: a value beyond its limits
    lines.fail(error.what());
  }
  return to.finish();
}

}  // namespace tt::record
