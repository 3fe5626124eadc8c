// SPDX-License-Identifier: MIT

#include "server.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cerrno>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "convert.hpp"
#include "core/registry.hpp"
#include "core/seam.hpp"
#include "live/kernel_policies.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace tt::bindings;

namespace {

using Read = std::function<std::optional<std::string>(const std::string&)>;
using Folders = std::function<std::vector<std::string>(const std::string&)>;

/// A machine of which only its files are known. It does nothing else.
class Described final : public tt::live::KernelCalls {
 public:
  Described(Read read, Folders folders) : read_(std::move(read)), folders_(std::move(folders)) {}

  int read(const std::string& path, std::string& text) override {
    const std::optional<std::string> found = read_(path);
    if (!found) return ENOENT;
    text = *found;
    return 0;
  }
  int folders(const std::string& path, std::vector<std::string>& names) override {
    names = folders_(path);
    return 0;
  }

  tt::Nanos now() override { return {}; }
  tt::Nanos processor_time() override { return {}; }
  int write(const std::string& /*path*/, const std::string& /*text*/) override { return EROFS; }
  int trace(std::uint64_t /*tracepoint*/, int /*thread*/, std::uint64_t /*sample_type*/,
            std::unique_ptr<tt::live::TraceRing>& /*out*/) override {
    return ENOSYS;
  }
  int sample(std::span<const tt::live::SampledEvent> /*events*/, int /*processor*/,
             std::unique_ptr<tt::live::SampleRing>& /*out*/) override {
    return ENOSYS;
  }
  int map_device(const std::string& /*path*/,
                 std::unique_ptr<tt::live::DeviceMemory>& /*out*/) override {
    return ENOSYS;
  }
  int hint(std::span<const int> /*nodes*/) override { return ENOSYS; }
  int populated(int /*pid*/, std::uint64_t /*begin*/, std::uint64_t /*end*/,
                std::vector<tt::live::Populated>& /*out*/) override {
    return ENOSYS;
  }
  int soft_dirty(int /*pid*/, std::uint64_t /*begin*/, std::uint64_t /*end*/,
                 std::vector<tt::live::Populated>& /*out*/) override {
    return ENOSYS;
  }
  long move_pages(int /*pid*/, std::span<const std::uint64_t> /*addresses*/,
                  std::span<const int> /*nodes*/, std::span<int> /*statuses*/) override {
    return -ENOSYS;
  }

 private:
  Read read_;
  Folders folders_;
};

nb::dict plan(const std::string& policy, const nb::dict& knobs, Read read, Folders folders) {
  Described kernel{std::move(read), std::move(folders)};
  const tt::live::KernelPlan made =
      tt::live::kernel_plan(kernel, tt::policy(policy), to_knobs(knobs), std::nullopt);
  nb::list writes, left;
  for (const auto& each : made.writes) {
    nb::dict entry;
    entry["file"] = each.file;
    entry["value"] = each.value;
    entry["before"] = each.before ? nb::cast(*each.before) : nb::none();
    entry["knob"] = each.knob;
    entry["note"] = each.note;
    entry["takes"] = each.takes;
    writes.append(entry);
  }
  for (const auto& each : made.left) {
    nb::dict entry;
    entry["knob"] = each.knob;
    entry["reason"] = each.reason;
    entry["same"] = each.same;
    left.append(entry);
  }
  nb::dict out;
  out["writes"] = writes;
  out["left"] = left;
  out["notes"] = nb::cast(made.notes);
  return out;
}

}  // namespace

void tt::bind_server(nb::module_& m) {
  m.def(
      "is_kernels_own", [](const std::string& policy) { return tt::live::is_kernels_own(policy); },
      "policy"_a, "Whether Linux has the policy itself.");
  m.def("kernel_plan", &plan, "policy"_a, "knobs"_a, "read"_a, "folders"_a,
        "What `tierd apply` would write on a machine of which `read` gives the text of a file, or "
        "None, and `folders` the names of the folders in a folder. ValueError for knobs that "
        "cannot be had, RuntimeError for what the machine lacks.");
}
