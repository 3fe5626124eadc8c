// SPDX-License-Identifier: MIT

// engine_tests [--list] [--durations] [--except SUBSTRING] [SUBSTRING ...]: runs the tests whose
// names contain one of the substrings, or all, without those that contain an excepted one.
// --durations also tells which took longest.
#include <algorithm>
#include <chrono>
#include <iomanip>
#include <string_view>

#include "check.hpp"

int main(int argc, char** argv) {
  bool list = false;
  bool durations = false;
  std::vector<std::string_view> wanted;
  std::vector<std::string_view> excepted;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--list") {
      list = true;
    } else if (argument == "--durations") {
      durations = true;
    } else if (argument == "--except" && i + 1 < argc) {
      excepted.emplace_back(argv[++i]);
    } else if (argument.starts_with("--")) {
      std::cerr << "unknown option " << argument
                << "; known: --list, --durations, --except SUBSTRING\n";
      return 2;
    } else {
      wanted.push_back(argument);
    }
  }
  int ran = 0;
  int failed = 0;
  std::vector<std::pair<double, std::string_view>> seconds;
  for (const auto& test : check::cases()) {
    const auto in_name = [&](std::string_view part) {
      return test.name.find(part) != std::string::npos;
    };
    if (!wanted.empty() && std::ranges::none_of(wanted, in_name)) continue;
    if (std::ranges::any_of(excepted, in_name)) continue;
    ++ran;
    if (list) {
      std::cout << test.name << "\n";
      continue;
    }
    const int before = check::failures();
    const auto start = std::chrono::steady_clock::now();
    try {
      test.body();
    } catch (const std::exception& error) {
      check::fail(test.name.c_str(), 0, std::string("exception: ") + error.what());
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    seconds.emplace_back(took.count(), test.name);
    if (check::failures() != before) {
      ++failed;
      std::cerr << "FAILED: " << test.name << "\n";
    }
  }
  if (durations) {
    std::ranges::sort(seconds, std::greater{});
    seconds.resize(std::min<std::size_t>(seconds.size(), 40));
    for (const auto& [took, name] : seconds)
      std::cout << std::fixed << std::setprecision(2) << std::setw(8) << took << " s  " << name
                << "\n";
  }
  if (!list) std::cout << (ran - failed) << " passed, " << failed << " failed\n";
  return failed == 0 && ran > 0 ? 0 : 1;
}
