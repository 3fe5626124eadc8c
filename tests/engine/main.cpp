#include <string_view>

#include "check.hpp"

int main(int argc, char** argv) {
  int ran = 0;
  int failed = 0;
  for (const auto& test : check::cases()) {
    if (argc > 1 && test.name.find(argv[1]) == std::string::npos) continue;
    const int before = check::failures();
    try {
      test.body();
    } catch (const std::exception& error) {
      check::fail(test.name.c_str(), 0, std::string("exception: ") + error.what());
    }
    ++ran;
    if (check::failures() != before) {
      ++failed;
      std::cerr << "FAILED: " << test.name << "\n";
    }
  }
  std::cout << (ran - failed) << " passed, " << failed << " failed\n";
  return failed == 0 && ran > 0 ? 0 : 1;
}
