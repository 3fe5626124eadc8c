// SPDX-License-Identifier: MIT

// The emulated machine's half inside QEMU: a plugin of the system emulation, which runs with
// -icount shift=0,sleep=off and one processor.
//
// It shows every access of the guest to the memory model (memory_model.hpp), puts what that costs
// on the virtual clock (clock.hpp), and samples misses for the guest's reader (sampler.hpp). Until
// the guest asks for it (markers.hpp) nothing is instrumented, so that booting takes seconds.
//
// An instruction moves the clock by a nanosecond. One of the kernel's or of programs may take less
// (kernel_ps, user_ps): the clock is set back before each block of them, so that it is right at the
// block's end, where the clock is read. A workload's program tells what takes time (markers.hpp),
// and its own take none. A sample stops the workload's processor as it does a real one, for the
// record (sample_ps); of those by time each is an interrupt, too (interrupt_ps).
//
// A task that has a processor of its own takes nothing of the workload's time, and its waits take
// nothing either. Of a process the clock owes what it executes, and later waits for memory repay
// it: the process sees its own time go by. For a thread of the kernel the clock stands, and how
// long it would have been busy is told: its time would else lie within whatever the workload
// measures just then, such as the time from a scan to a hinting fault.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulate/markers.hpp"
#include "emulate/memory_model.hpp"
#include "emulate/plugin/clock.hpp"
#include "emulate/plugin/guest.hpp"
#include "emulate/plugin/qemu.hpp"
#include "emulate/sampler.hpp"
#include "emulate/text.hpp"

extern "C" {
__attribute__((visibility("default"))) int qemu_plugin_version = 4;
__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id,
                                                               const qemu_info_t* info, int argc,
                                                               char** argv);
}

namespace {

using namespace tt::emulate;

constexpr Picos instruction = 1000;  // what it moves QEMU's clock by

/// Executed instructions, which translated code counts by itself.
struct Instructions {
  std::uint64_t user = 0, kernel = 0;
  [[nodiscard]] std::uint64_t all() const { return user + kernel; }
};

struct Options {
  MemoryOptions memory;
  GuestOptions guest;
  Picos kernel_ps = instruction, user_ps = instruction;  // of an instruction
  Picos sample_ps = 0, interrupt_ps = 0;  // of a sample, and beside it of one by time
  /// Of user code only the accesses of a program that tells its classes are shown: the others are
  /// its own, or of tasks elsewhere.
  bool told_only = false;
  std::string ring, report;
};

bool of_kernel(std::uint64_t address) { return static_cast<std::int64_t>(address) < 0; }

/// What happens in the machine. There is one, and one thread runs it.
struct Machine {
  Machine(qemu_plugin_id_t id, const Options& options)
      : id(id),
        kernel_ps(options.kernel_ps),
        user_ps(options.user_ps),
        sample_ps(options.sample_ps),
        interrupt_ps(options.interrupt_ps),
        told_only(options.told_only),
        report(options.report),
        memory(options.memory),
        guest(options.guest) {}

  /// Puts the instructions since the last time where they belong.
  void account();
  /// Own time of the workload's processor.
  [[nodiscard]] Picos now() const {
    if (guest.is_elsewhere()) return own + waited;
    return own + waited + (tells() ? 0 : (executed->user - seen.user) * user_ps) +
           (executed->kernel - seen.kernel) * kernel_ps;
  }
  void wait(Picos picos);
  /// Whether the program that runs tells what takes time, and its instructions take none.
  [[nodiscard]] bool tells() const { return teller != 0 && guest.pid() == teller; }
  void on_access(qemu_plugin_meminfo_t info, std::uint64_t address, MemoryModel::Site& site);
  void on_switch();
  void on_marker(std::uint8_t number);
  void tell(const char* when);

  const qemu_plugin_id_t id;
  const Picos kernel_ps, user_ps, sample_ps, interrupt_ps;
  const bool told_only;
  const std::string report;
  MemoryModel memory;
  Guest guest;
  VirtualClock clock;
  std::unique_ptr<Sampler> sampler;
  std::unordered_map<std::uint64_t, MemoryModel::Site> sites;  // by the instruction's address

  qemu_plugin_scoreboard* board = nullptr;
  const Instructions* executed = nullptr;
  Instructions seen, ours;   // accounted for; of the workload's processor
  std::uint64_t theirs = 0;  // instructions of others
  Picos own = 0, waited = 0;
  Picos threads_busy = 0;  // of the kernel, elsewhere
  bool active = false;
  std::array<ToldClass, most_classes> classes{};
  std::uint32_t teller = 0;  // the process that tells its classes
  ToldClass told;            // of its accesses now
  struct {
    Instructions instructions;
    Picos waited = 0, threads_busy = 0;
    std::uint64_t taken = 0, lost = 0, theirs = 0;
  } begun;
};

Machine* machine = nullptr;

void Machine::account() {
  const std::uint64_t user = executed->user - seen.user, kernel = executed->kernel - seen.kernel;
  seen = *executed;
  if (guest.is_kernel_thread()) {
    threads_busy += (user + kernel) * kernel_ps;
    return;
  }
  if (guest.is_elsewhere()) {
    theirs += user + kernel;
    clock.owe((user + kernel) * instruction);
    return;
  }
  ours.user += user;
  ours.kernel += kernel;
  own += (tells() ? 0 : user * user_ps) + kernel * kernel_ps;
}

void Machine::wait(Picos picos) {
  if (guest.is_kernel_thread()) threads_busy += picos;
  if (guest.is_elsewhere()) return;
  waited += picos;
  clock.wait(picos);
}

void Machine::on_access(qemu_plugin_meminfo_t info, std::uint64_t address,
                        MemoryModel::Site& site) {
  const qemu_plugin_hwaddr* const where = qemu_plugin_get_hwaddr(info, address);
  if (where == nullptr || qemu_plugin_hwaddr_is_io(where)) return;
  MemoryModel::Access access{.address = address,
                             .physical = qemu_plugin_hwaddr_phys_addr(where),
                             .instructions = executed->all(),
                             .store = qemu_plugin_mem_is_store(info)};
  if (tells() && !of_kernel(address)) {
    access.overlap = told.overlap;
    access.issue = told.issue_ps;
  }
  if (!access.store && access.overlap == 0) {
    const qemu_plugin_mem_value value = qemu_plugin_mem_get_value(info);
    access.has_value = value.type == QEMU_PLUGIN_MEM_VALUE_U64;
    access.value = value.data.u64;
  }
  MemoryModel::Cost cost = memory.access(access, site);
  if (cost.outcome == MemoryModel::Outcome::device) return;
  if (sampler != nullptr && cost.outcome == MemoryModel::Outcome::miss && !guest.is_elsewhere()) {
    const Sampler::Miss miss{now() / 1000, address, access.physical, access.store, cost.tier};
    if (const Sampler::Wants wants = sampler->wants(miss); wants != Sampler::Wants::nothing) {
      sampler->take(miss, guest.pid(), guest.tid());
      cost.picos += sample_ps + (wants == Sampler::Wants::by_time ? interrupt_ps : 0);
    }
  }
  wait(cost.picos);
}

void Machine::on_switch() {
  account();
  if (guest.switched()) memory.clear_filter();
}

void translate(qemu_plugin_id_t id, qemu_plugin_tb* block);

void restart(qemu_plugin_id_t id) { qemu_plugin_register_vcpu_tb_trans_cb(id, translate); }

void Machine::on_marker(std::uint8_t number) {
  if (const unsigned kind = number - static_cast<unsigned>(Marker::first_class);
      kind < most_classes) {
    told = classes[kind];
    return;
  }
  account();
  switch (static_cast<Marker>(number)) {
    case Marker::instrument:
    case Marker::uninstrument: {
      const bool want = static_cast<Marker>(number) == Marker::instrument;
      if (active == want) break;
      active = want;
      qemu_plugin_reset(id, restart);
      break;
    }
    case Marker::begin:
      memory.clear_counters();
      begun.instructions = ours;
      begun.waited = waited;
      begun.threads_busy = threads_busy;
      begun.theirs = theirs;
      if (sampler != nullptr) begun.taken = sampler->taken(), begun.lost = sampler->lost();
      break;
    case Marker::end:
      tell("end");
      break;
    case Marker::own_processor:
      guest.elsewhere();
      break;
    case Marker::classes:
      teller = guest.pid();
      if (!guest.peek(guest.rsi(), classes.data(), sizeof(classes))) classes = {};
      told = {};
      break;
    case Marker::compute:
      wait(guest.rsi() * 1000);
      break;
    default:
      std::fprintf(stderr, "tiertune: the guest sent the unknown marker %u\n", number);
  }
}

void Machine::tell(const char* when) {
  const MemoryModel::Counters& c = memory.counters();
  std::FILE* const file = report.empty() ? stderr : std::fopen(report.c_str(), "ae");
  if (file == nullptr) {
    std::fprintf(stderr, "tiertune: %s: cannot be written\n", report.c_str());
    std::exit(1);
  }
  using Long = unsigned long long;
  std::fprintf(
      file,
      "{\"when\": \"%s\", \"user_instructions\": %llu, \"kernel_instructions\": %llu, "
      "\"other_instructions\": %llu, \"threads_busy_ns\": %llu, \"waited_ns\": %llu, "
      "\"l2_hits\": %llu, \"llc_hits\": %llu, \"misses\": [%llu, %llu], \"prefetched\": [%llu, "
      "%llu], \"store_misses\": [%llu, %llu], "
      "\"dependent\": %llu, \"overlapped\": %llu, \"owed_ns\": %llu, \"most_owed_ns\": %llu, "
      "\"task_switches\": %llu, \"samples\": %llu, \"samples_lost\": %llu}\n",
      when, Long{ours.user - begun.instructions.user},
      Long{ours.kernel - begun.instructions.kernel}, Long{theirs - begun.theirs},
      Long{(threads_busy - begun.threads_busy) / 1000}, Long{(waited - begun.waited) / 1000},
      Long{c.l2_hits}, Long{c.llc_hits}, Long{c.misses[0]}, Long{c.misses[1]},
      Long{c.prefetched[0]}, Long{c.prefetched[1]}, Long{c.stores[0]}, Long{c.stores[1]},
      Long{c.dependent}, Long{c.overlapped}, Long{clock.owed() / 1000},
      Long{clock.most_owed() / 1000}, Long{guest.switches()},
      Long{sampler ? sampler->taken() - begun.taken : 0},
      Long{sampler ? sampler->lost() - begun.lost : 0});
  if (file != stderr) std::fclose(file);
}

void on_access(unsigned, qemu_plugin_meminfo_t info, std::uint64_t address, void* site) {
  if (machine->memory.passes_filter(address)) [[unlikely]]
    machine->on_access(info, address, *static_cast<MemoryModel::Site*>(site));
}

/// Before a block of so many instructions: what it takes less than they move the clock by. Of a
/// process elsewhere all is owed.
void on_kernel_block(unsigned, void* count) {
  const bool stands = machine->guest.is_kernel_thread();
  if (machine->guest.is_elsewhere() && !stands) return;
  machine->clock.set_back(reinterpret_cast<std::uintptr_t>(count) *
                          (instruction - (stands ? 0 : machine->kernel_ps)));
}

void on_user_block(unsigned, void* count) {
  if (machine->guest.is_elsewhere()) return;
  machine->clock.set_back(reinterpret_cast<std::uintptr_t>(count) *
                          (instruction - (machine->tells() ? 0 : machine->user_ps)));
}

void find_instructions() {
  if (machine->executed == nullptr)  // before the first processor is there it would abort
    machine->executed =
        static_cast<const Instructions*>(qemu_plugin_scoreboard_find(machine->board, 0));
}

void on_switch(unsigned, void*) {
  find_instructions();
  machine->on_switch();
}

void on_marker(unsigned, void* number) {
  find_instructions();
  machine->on_marker(static_cast<std::uint8_t>(reinterpret_cast<std::uintptr_t>(number)));
}

void translate(qemu_plugin_id_t, qemu_plugin_tb* block) {
  const std::size_t count = qemu_plugin_tb_n_insns(block);
  const bool active = machine->active;
  if (active) {
    const bool kernel = of_kernel(qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(block, 0)));
    qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
        block, QEMU_PLUGIN_INLINE_ADD_U64,
        {machine->board, kernel ? offsetof(Instructions, kernel) : offsetof(Instructions, user)},
        count);
    qemu_plugin_register_vcpu_tb_exec_cb(block, kernel ? on_kernel_block : on_user_block,
                                         QEMU_PLUGIN_CB_NO_REGS, reinterpret_cast<void*>(count));
  }
  for (std::size_t i = 0; i < count; ++i) {
    qemu_plugin_insn* const insn = qemu_plugin_tb_get_insn(block, i);
    const std::uint64_t address = qemu_plugin_insn_vaddr(insn);
    if (address == machine->guest.switch_to() && address != 0)
      qemu_plugin_register_vcpu_insn_exec_cb(insn, on_switch, QEMU_PLUGIN_CB_R_REGS, nullptr);
    std::uint8_t code[15];
    const std::size_t bytes = qemu_plugin_insn_data(insn, code, sizeof(code));
    if (const std::uint8_t number = marker_of(code, static_cast<unsigned>(bytes)); number != 0)
      qemu_plugin_register_vcpu_insn_exec_cb(insn, on_marker, QEMU_PLUGIN_CB_R_REGS,
                                             reinterpret_cast<void*>(std::uintptr_t{number}));
    if (active && (of_kernel(address) || !machine->told_only || code[0] == access_prefix))
      qemu_plugin_register_vcpu_mem_cb(insn, on_access, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
                                       &machine->sites[address]);
  }
}

/// Memory that the guest sees, too.
void* map_ring(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  void* const at = file < 0
                       ? MAP_FAILED
                       : ::mmap(nullptr, ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) ::close(file);
  if (at == MAP_FAILED) throw std::invalid_argument(path + ": cannot be mapped");
  return at;
}

std::uint64_t whole(const std::string& text) {
  std::size_t used = 0;
  const std::uint64_t value = std::stoull(text, &used, 0);
  if (used != text.size()) throw std::invalid_argument("found " + text + "; must be a number");
  return value;
}

/// utilisation:factor/utilisation:factor/...
std::vector<std::pair<double, double>> curve(const std::string& text) {
  std::vector<std::pair<double, double>> out;
  for (const std::string& point : split(text, '/')) {
    const std::vector<std::string> both = split(point, ':');
    if (both.size() != 2) throw std::invalid_argument("found " + point + "; must be X:Y");
    out.emplace_back(std::stod(both[0]), std::stod(both[1]));
  }
  return out;
}

void set(Options& options, const std::string& name, const std::string& value) {
  for (unsigned tier = 0; tier < 2; ++tier) {
    const std::string prefix = tier == 0 ? "fast_" : "slow_";
    if (!name.starts_with(prefix)) continue;
    MemoryOptions::Tier& to = options.memory.tiers[tier];
    const std::string key = name.substr(prefix.size());
    if (key == "ps") return void(to.latency = whole(value));
    if (key == "gbps") return void(to.gbps = std::stod(value));
    if (key == "loaded") return void(to.loaded = curve(value));
    if (key == "store_stall") return void(to.store_stall = std::stod(value));
  }
  const std::unordered_map<std::string, std::uint64_t*> numbers{
      {"slow_from", &options.memory.slow_from},
      {"end", &options.memory.end},
      {"l2_bytes", &options.memory.l2_bytes},
      {"llc_bytes", &options.memory.llc_bytes},
      {"l2_ps", &options.memory.l2_hit},
      {"llc_ps", &options.memory.llc_hit},
      {"kernel_ps", &options.kernel_ps},
      {"user_ps", &options.user_ps},
      {"sample_ps", &options.sample_ps},
      {"interrupt_ps", &options.interrupt_ps},
      {"switch_to", &options.guest.switch_to},
      {"comm", &options.guest.comm},
      {"pid", &options.guest.pid},
      {"tgid", &options.guest.tgid}};
  if (const auto found = numbers.find(name); found != numbers.end())
    return void(*found->second = whole(value));
  if (name == "told_only") return void(options.told_only = whole(value) != 0);
  if (name == "window") return void(options.memory.window = static_cast<unsigned>(whole(value)));
  if (name == "buffers") return void(options.memory.buffers = static_cast<unsigned>(whole(value)));
  if (name == "elsewhere") return void(options.guest.elsewhere = split(value, ':'));
  if (name == "kernel_threads") return void(options.guest.kernel_threads = split(value, ':'));
  if (name == "ring") return void(options.ring = value);
  if (name == "report") return void(options.report = value);
  throw std::invalid_argument("unknown option " + name);
}

Options read(int argc, char** argv) {
  Options options;
  for (int i = 0; i < argc; ++i) {
    const std::string word(argv[i]);
    const std::size_t equals = word.find('=');
    if (equals == word.npos) throw std::invalid_argument("found " + word + "; must be name=value");
    set(options, word.substr(0, equals), word.substr(equals + 1));
  }
  if (options.kernel_ps > instruction || options.user_ps > instruction)
    throw std::invalid_argument("kernel_ps, user_ps: at most 1000, by which the clock moves");
  return options;
}

}  // namespace

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info, int argc, char** argv) {
  try {
    if (!info->system_emulation || std::string_view(info->target_name) != "x86_64" ||
        info->system.max_vcpus != 1)
      throw std::invalid_argument("the plugin is for qemu-system-x86_64 with one processor");
    const Options options = read(argc, argv);
    machine = new Machine(id, options);
    if (std::string lacks = machine->clock.find(); !lacks.empty()) throw std::runtime_error(lacks);
    if (!options.ring.empty()) machine->sampler = std::make_unique<Sampler>(map_ring(options.ring));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tiertune: %s\n", error.what());
    return -1;
  }
  machine->clock.before_settling([] {
    machine->account();
    machine->memory.passed(machine->now());
  });
  machine->board = qemu_plugin_scoreboard_new(sizeof(Instructions));
  qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
  qemu_plugin_register_atexit_cb(
      id,
      [](qemu_plugin_id_t, void*) {
        if (machine->executed != nullptr) {
          machine->account();
          machine->tell("exit");
        }
      },
      nullptr);
  return 0;
}
