// SPDX-License-Identifier: MIT

// tiertune_workload: a workload's kernel as a program of its own (trace/recorder.hpp).
//
//   tiertune_workload list
//   tiertune_workload run KERNEL [--scale R] [--seed N] [--set NAME=VALUE]... [--operations N]
//       [--seconds S] [--vmstat NAME,...] [--report-ms MS] [--emulated]
//
// It tells what it does in lines of JSON on standard output: {"begin"} and {"end"} of the timed
// part, with its seconds by the machine's clock, operations by kind, pages by memory node, and what
// the named counters of /proc/vmstat have grown by; in between {"done"}, or {"report"} every MS,
// which costs some time. --operations and --seconds are those of the recorded stream, for kernels
// that run for a time. --emulated: the machine hears the markers (emulate/markers.hpp).
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "emulate/native/program.hpp"
#include "emulate/text.hpp"
#include "kernels/kernel.hpp"

namespace {

using namespace tt;

/// `of`: whose value it is, for the complaint. Finite.
double number(const std::string& of, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !std::isfinite(value))
    throw std::invalid_argument(of + ": found '" + text + "'; must be a number");
  return value;
}

/// The whole text as an integer of that type; nothing if it is none.
template <typename Integer>
std::optional<Integer> integer(const std::string& text) {
  Integer value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc{} || end != last) return std::nullopt;
  return value;
}

std::uint64_t whole(const std::string& of, const std::string& text) {
  if (const auto value = integer<std::uint64_t>(text)) return *value;
  throw std::invalid_argument(of + ": found '" + text + "'; must be a whole number from 0 on");
}

/// As the kernel declares it; the registry checks and converts.
kernels::Value value_of(const std::string& of, const kernels::Value& initial,
                        const std::string& text) {
  if (std::holds_alternative<std::string>(initial)) return text;
  if (std::holds_alternative<bool>(initial)) {
    if (text != "true" && text != "false")
      throw std::invalid_argument(of + ": found '" + text + "'; must be true or false");
    return text == "true";
  }
  if (std::holds_alternative<std::vector<double>>(initial)) {
    std::vector<double> out;
    if (!text.empty())
      for (const std::string& each : tt::emulate::split(text, ',')) out.push_back(number(of, each));
    return out;
  }
  if (const auto whole = integer<std::int64_t>(text)) return *whole;
  return number(of, text);
}

const kernels::KernelInfo& find(const std::string& name) {
  std::string known;
  for (const kernels::KernelInfo& info : kernels::kernels()) {
    if (info.name == name) return info;
    known += (known.empty() ? "" : ", ") + info.name;
  }
  throw std::invalid_argument("unknown kernel '" + name + "'; known: " + known);
}

void set(kernels::RecordRequest& request, const kernels::KernelInfo& kernel,
         const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == text.npos)
    throw std::invalid_argument("--set: found '" + text + "'; must be NAME=VALUE");
  const std::string name = text.substr(0, equals), value = text.substr(equals + 1);
  const auto declared =
      std::ranges::find_if(kernel.parameters, [&](const auto& each) { return each.name == name; });
  // An unknown one is the registry's to refuse.
  request.parameters[name] = declared == kernel.parameters.end()
                                 ? kernels::Value(value)
                                 : value_of("--set: " + name, declared->initial, value);
}

/// How long a kernel runs that asks for the time, to end or to do something by it; 0 for others.
double duration(const kernels::KernelInfo& kernel, const kernels::Parameters& given) {
  for (const kernels::ParameterDecl& each : kernel.parameters) {
    if (each.name != "duration_s") continue;
    const auto found = given.find(each.name);
    const kernels::Value& value = found == given.end() ? each.initial : found->second;
    // Of another type it is the registry's to refuse.
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return static_cast<double>(*whole);
    if (const auto* real = std::get_if<double>(&value)) return *real;
  }
  return 0;
}

int run(const std::vector<std::string>& words) {
  if (words.empty()) throw std::invalid_argument("run: which kernel?");
  const kernels::KernelInfo& kernel = find(words[0]);
  emulate::Program& program = emulate::program();
  kernels::RecordRequest request;
  request.threads = 1;
  request.progress = [&](double done) { return program.progress(done); };
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& name = words[i];
    if (name == "--emulated") {
      program.emulated = true;
      continue;
    }
    if (i + 1 == words.size()) throw std::invalid_argument(name + ": a value is missing");
    const std::string& value = words[++i];
    if (name == "--scale")
      request.scale = number(name, value);
    else if (name == "--seed")
      request.seed = whole(name, value);
    else if (name == "--set")
      set(request, kernel, value);
    else if (name == "--operations")
      program.operations = whole(name, value);
    else if (name == "--seconds")
      program.seconds = number(name, value);
    else if (name == "--vmstat")
      program.vmstat = tt::emulate::split(value, ',');
    else if (name == "--report-ms")
      program.report_ns = whole(name, value) * 1'000'000;
    else
      throw std::invalid_argument("unknown option " + name);
  }
  if (const double lasts = duration(kernel, request.parameters); lasts > 0) {
    if (program.operations == 0 || program.seconds <= 0)
      throw std::invalid_argument(kernel.name +
                                  " runs for a time: it needs --operations and --seconds above 0");
    // The recorded one ended with the operation that passed its duration, a little later. So does
    // this one: with the last one, and not with one before.
    if (program.seconds > lasts && program.seconds < 1.05 * lasts) program.seconds = lasts;
  }
  (void)kernels::record(kernel.name, std::move(request));
  return 0;
}

int list() {
  std::fputs("[", stdout);
  const char* between = "";
  for (const kernels::KernelInfo& info : kernels::kernels()) {
    std::printf("%s\"%s\"", between, info.name.c_str());
    between = ", ";
  }
  std::puts("]");
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::vector<std::string> words(arguments + 1, arguments + count);
  try {
    if (words.size() == 1 && words[0] == "list") return list();
    if (!words.empty() && words[0] == "run") return run({words.begin() + 1, words.end()});
    throw std::invalid_argument("usage: tiertune_workload list | run KERNEL [options]");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tiertune_workload: %s\n", error.what());
    return 2;
  }
}
