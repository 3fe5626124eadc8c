// SPDX-License-Identifier: MIT

// The emulation sampler's half inside the emulator: a plugin of QEMU's user mode.
//
// It hands every load, store and executed instruction of the program to the observer, and keeps it
// informed of what is mapped: from the program's system calls (system_calls.hpp), and with the name
// of the code that asked for the memory (call_site.hpp). Buffers that the kernel fills and reads on
// the program's behalf count as the program's accesses. A program that the program executes is put
// under the emulator again.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "record/plugin/guest.hpp"
#include "record/plugin/observer.hpp"
#include "record/plugin/qemu.hpp"
#include "record/plugin/system_calls.hpp"

extern "C" {
__attribute__((visibility("default"))) int qemu_plugin_version = 1;
__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id,
                                                               const qemu_info_t* info, int argc,
                                                               char** argv);
}

namespace {

using namespace tt::record;
namespace trace = tt::trace;

/// The recording has ended and the program has not: what it translates from now on is not
/// instrumented, and what it executes is not put under us. QEMU's own way to end it,
/// qemu_plugin_reset(), lets other threads run into callbacks that are gone (QEMU 7.2).
std::atomic<bool> over = false;

/// What an access is, by the emulator's word for it, of which there are few: each is asked about
/// once, for the calls into the emulator would take longer than all else.
class Kind {
 public:
  /// As far as it is known: else it stays within no line.
  static Kind known(qemu_plugin_meminfo_t info) {
    return info < kinds.size() ? Kind(kinds[info].load(std::memory_order_relaxed)) : Kind(0);
  }
  static Kind of(qemu_plugin_meminfo_t info) {
    const Kind kind = known(info);
    return kind.bits_ != 0 ? kind : asked(info);
  }
  [[nodiscard]] bool store() const { return (bits_ & store_bit) != 0; }
  /// Whether it stays within the line that it begins in.
  [[nodiscard]] bool within_line(std::uint64_t address) const {
    return address % trace::line_bytes < (bits_ & ~store_bit);
  }

 private:
  static constexpr unsigned store_bit = 0x80;

  explicit Kind(unsigned bits) : bits_(bits) {}

  [[gnu::noinline]] static Kind asked(qemu_plugin_meminfo_t info) {
    const std::uint64_t bytes =
        std::min(std::uint64_t{1} << qemu_plugin_mem_size_shift(info), trace::line_bytes);
    const Kind kind((qemu_plugin_mem_is_store(info) ? store_bit : 0) |
                    static_cast<unsigned>(trace::line_bytes + 1 - bytes));
    if (info < kinds.size())
      kinds[info].store(static_cast<std::uint8_t>(kind.bits_), std::memory_order_relaxed);
    return kind;
  }

  unsigned bits_;  // store_bit, and how many places in a line it may begin at; 0: not known

  static constinit std::array<std::atomic<std::uint8_t>, 1 << 18> kinds;
};
constinit std::array<std::atomic<std::uint8_t>, 1 << 18> Kind::kinds{};

/// A line that the table does not answer, or an access to two.
[[gnu::noinline]] void on_line(GuestThread& thread, qemu_plugin_meminfo_t info,
                               std::uint64_t address) {
  if (over.load(std::memory_order_relaxed)) return;
  Observer& observer = *guest->observer;
  const Kind kind = Kind::of(info);
  kind.store() ? observer.store(thread, address) : observer.load(thread, address);
  if (!kind.within_line(address)) {
    const std::uint64_t next = (address | (trace::line_bytes - 1)) + 1;
    kind.store() ? observer.store(thread, next) : observer.load(thread, next);
  }
}

// One callback for both kinds: QEMU 7.2 mistakes loads for stores in the filter by kind. Nearly all
// accesses end here, without another call.
void on_access(unsigned vcpu, qemu_plugin_meminfo_t info, std::uint64_t address, void*) {
  GuestThread& thread = thread_of(vcpu);
  const Kind kind = Kind::known(info);
  if (thread.answers(address, kind.store()) && kind.within_line(address)) [[likely]]
    return;
  on_line(thread, info, address);
}

void on_call(unsigned vcpu, qemu_plugin_meminfo_t info, std::uint64_t address, void* behind) {
  if (Kind::of(info).store())
    thread_of(vcpu).calls.call(address, reinterpret_cast<std::uintptr_t>(behind));
  on_access(vcpu, info, address, nullptr);
}

void on_return_address(unsigned vcpu, qemu_plugin_meminfo_t info, std::uint64_t address, void*) {
  thread_of(vcpu).calls.leave(address);
  on_access(vcpu, info, address, nullptr);
}

void on_block(unsigned vcpu, void* instructions) {
  GuestThread& thread = thread_of(vcpu);
  if (thread.executed(reinterpret_cast<std::uintptr_t>(instructions))) [[unlikely]]
    guest->observer->drain(thread);
}

void on_operation(unsigned vcpu, void* edge) {
  GuestThread& thread = thread_of(vcpu);
  const auto what = static_cast<Edge>(reinterpret_cast<std::uintptr_t>(edge));
  // The first time at which one would end and another begin is a beginning alone.
  if (what == Edge::end || (what == Edge::next && guest->observer->in_operation(thread)))
    guest->observer->end_operation(thread);
  if (what != Edge::end) guest->observer->begin_operation(thread);
}

/// What to tell of an instruction's accesses. Behind prefixes, E8 and FF /2 are near calls, C2 and
/// C3 near returns.
qemu_plugin_vcpu_mem_cb_t callback_of(const std::uint8_t* code, std::size_t size) {
  std::size_t at = 0;
  while (at < size &&
         ((code[at] & 0xf0) == 0x40 || code[at] == 0xf2 || code[at] == 0xf3 || code[at] == 0x3e))
    ++at;
  if (at >= size) return on_access;
  if (code[at] == 0xc2 || code[at] == 0xc3) return on_return_address;
  const bool indirect = code[at] == 0xff && at + 1 < size && (code[at + 1] >> 3 & 7) == 2;
  return indirect || code[at] == 0xe8 ? on_call : on_access;
}

void on_translate(qemu_plugin_id_t, qemu_plugin_tb* block) {
  if (over) return;
  const std::size_t count = qemu_plugin_tb_n_insns(block);
  for (std::size_t i = 0; i < count; ++i) {
    qemu_plugin_insn* const insn = qemu_plugin_tb_get_insn(block, i);
    if (!guest->base_known) {
      guest->base = reinterpret_cast<std::uintptr_t>(qemu_plugin_insn_haddr(insn)) -
                    qemu_plugin_insn_vaddr(insn);
      guest->base_known = true;
      guest->observer->adopt(guest->base);
      guest->probes.adopt(guest->base);
    }
    const std::size_t size = qemu_plugin_insn_size(insn);
    const auto behind = static_cast<std::uintptr_t>(qemu_plugin_insn_vaddr(insn) + size);
    const auto* const code = static_cast<const std::uint8_t*>(qemu_plugin_insn_data(insn));
    if (const Edge edge = guest->probes.edge(qemu_plugin_insn_vaddr(insn), code, size);
        edge != Edge::none)
      qemu_plugin_register_vcpu_insn_exec_cb(
          insn, on_operation, QEMU_PLUGIN_CB_NO_REGS,
          reinterpret_cast<void*>(static_cast<std::uintptr_t>(edge)));
    qemu_plugin_register_vcpu_mem_cb(insn, callback_of(code, size), QEMU_PLUGIN_CB_NO_REGS,
                                     QEMU_PLUGIN_MEM_RW, reinterpret_cast<void*>(behind));
  }
  qemu_plugin_register_vcpu_tb_exec_cb(block, on_block, QEMU_PLUGIN_CB_NO_REGS,
                                       reinterpret_cast<void*>(count));
}

/// Called where the new thread's creator runs.
void on_thread(qemu_plugin_id_t, unsigned vcpu) {
  GuestThread*& thread = threads[vcpu % threads.size()];
  if (thread == nullptr) thread = new GuestThread;
  thread->calls.clear();
  guest->observer->begin(*thread, running);
}

void on_child() {
  guest->observer->after_fork_in_child();
  // Only the forking thread is here; what the others had seen is their process's.
  for (GuestThread* thread : threads)
    if (thread != nullptr) guest->observer->begin(*thread);
}

/// Our own command line up to the plugin's arguments, with the emulator's real path.
std::vector<std::string> emulator_words() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) {
    words.push_back(word);
    if (words.size() >= 2 && words[words.size() - 2] == "-plugin") {
      char path[4096];
      const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path));
      if (length <= 0) return {};
      words[0].assign(path, static_cast<std::size_t>(length));
      return words;
    }
  }
  return {};
}

}  // namespace

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info, int argc, char** argv) {
  if (info->system_emulation || std::string_view(info->target_name) != "x86_64") {
    std::fprintf(stderr, "tiertune: the plugin is for qemu-x86_64 in user mode\n");
    return -1;
  }
  ObserverOptions options;
  std::string usdt;
  for (int i = 0; i < argc; ++i) {
    const std::string_view word(argv[i]);
    const auto equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const std::string value(equals == word.npos ? "" : word.substr(equals + 1));
    if (name == "usdt") usdt = value;
    if (name == "folder") options.folder = value;
    if (name == "llc_mib") options.llc_mib = std::strtod(value.c_str(), nullptr);
    if (name == "ghz") options.ghz = std::strtod(value.c_str(), nullptr);
    if (name == "cpi") options.cpi = std::strtod(value.c_str(), nullptr);
    if (name == "latency_ns") options.latency_ns = std::strtod(value.c_str(), nullptr);
    if (name == "interval_ms") options.interval_ms = std::strtod(value.c_str(), nullptr);
    if (name == "until_ns") options.until_ns = std::strtoull(value.c_str(), nullptr, 10);
    if (name == "random") options.mlp[0] = std::strtod(value.c_str(), nullptr);
    if (name == "sequential") options.mlp[1] = std::strtod(value.c_str(), nullptr);
    if (name == "dependent") options.mlp[2] = std::strtod(value.c_str(), nullptr);
  }
  options.ended = [] { over = true; };
  guest = new Guest;
  guest->probes.look_for(usdt);
  guest->observer = std::make_unique<Observer>(options);
  guest->emulator = emulator_words();
  if (guest->observer->past_end()) return 0;
  ::pthread_atfork([] { guest->observer->before_fork(); },
                   [] { guest->observer->after_fork_in_parent(); }, on_child);
  qemu_plugin_register_vcpu_init_cb(id, on_thread);
  qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
  qemu_plugin_register_vcpu_syscall_cb(
      id, [](qemu_plugin_id_t own, unsigned vcpu, std::int64_t number, std::uint64_t a,
             std::uint64_t b, std::uint64_t c, std::uint64_t d, std::uint64_t e, std::uint64_t f,
             std::uint64_t g, std::uint64_t h) {
        if (!over) on_syscall(own, vcpu, number, a, b, c, d, e, f, g, h);
      });
  qemu_plugin_register_vcpu_syscall_ret_cb(
      id, [](qemu_plugin_id_t own, unsigned vcpu, std::int64_t number, std::int64_t result) {
        if (!over) on_return(own, vcpu, number, result);
      });
  qemu_plugin_register_atexit_cb(
      id, [](qemu_plugin_id_t, void*) { guest->observer->finish(nullptr); }, nullptr);
  return 0;
}
