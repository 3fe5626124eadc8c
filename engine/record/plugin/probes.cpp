// SPDX-License-Identifier: MIT

#include "record/plugin/probes.hpp"

#include <elf.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "record/plugin/guest.hpp"

namespace tt::record {
namespace {

constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint64_t most_bytes = 64 << 20;  // of a section
constexpr std::uint32_t stapsdt = 3;            // NT_STAPSDT

/// nopl 0x545401NN(%rax), where NN is the Edge (tuner/record/tiertune.h).
Edge marked(const std::uint8_t* code, std::size_t bytes) {
  const bool is = bytes == 7 && code[0] == 0x0f && code[1] == 0x1f && code[2] == 0x80 &&
                  code[4] == 1 && code[5] == 0x54 && code[6] == 0x54;
  return is && (code[3] == 1 || code[3] == 2) ? static_cast<Edge>(code[3]) : Edge::none;
}

/// A probe, by the addresses that the file was linked for.
struct Note {
  std::uint64_t place = 0;
  std::uint64_t semaphore = 0;  // 0: none
  std::string provider;
  std::string name;
};

struct Elf {
  std::vector<Elf64_Phdr> code;  // segments
  std::vector<Note> notes;
};

template <typename T>
std::vector<T> take(std::ifstream& file, std::uint64_t offset, std::uint64_t count) {
  std::vector<T> out;
  if (count > most_bytes / sizeof(T)) return out;
  out.resize(count);
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  const auto wanted = static_cast<std::streamsize>(count * sizeof(T));
  if (!file.read(reinterpret_cast<char*>(out.data()), wanted)) out.clear();
  return out;
}

/// Three addresses (place, base, semaphore) and three texts (provider, name, arguments).
std::optional<Note> note_of(std::span<const char> description, std::uint64_t base) {
  std::uint64_t words[3];
  if (description.size() < sizeof(words)) return std::nullopt;
  std::memcpy(words, description.data(), sizeof(words));
  std::string_view texts(description.data() + sizeof(words), description.size() - sizeof(words));
  const auto provider = texts.find('\0');
  if (provider == texts.npos) return std::nullopt;
  const auto name = texts.find('\0', provider + 1);
  if (name == texts.npos) return std::nullopt;
  // Prelinking moves the code and not the notes; the base, a section, has moved as well.
  const std::uint64_t moved = base == 0 ? 0 : base - words[1];
  return Note{words[0] + moved, words[2] == 0 ? 0 : words[2] + moved,
              std::string(texts.substr(0, provider)),
              std::string(texts.substr(provider + 1, name - provider - 1))};
}

std::optional<Elf> read_elf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const auto head = take<Elf64_Ehdr>(file, 0, 1);
  if (head.empty() || std::memcmp(head[0].e_ident, ELFMAG, SELFMAG) != 0 ||
      head[0].e_ident[EI_CLASS] != ELFCLASS64)
    return std::nullopt;
  Elf elf;
  for (const auto& segment : take<Elf64_Phdr>(file, head[0].e_phoff, head[0].e_phnum))
    if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0) elf.code.push_back(segment);
  const auto sections = take<Elf64_Shdr>(file, head[0].e_shoff, head[0].e_shnum);
  if (head[0].e_shstrndx >= sections.size()) return elf;
  const Elf64_Shdr& names = sections[head[0].e_shstrndx];
  const auto text = take<char>(file, names.sh_offset, names.sh_size);
  const auto called = [&](const Elf64_Shdr& section, std::string_view name) {
    return section.sh_name < text.size() && text.back() == '\0' &&
           name == text.data() + section.sh_name;
  };
  std::uint64_t base = 0;
  for (const auto& section : sections)
    if (called(section, ".stapsdt.base")) base = section.sh_addr;
  for (const auto& section : sections) {
    if (!called(section, ".note.stapsdt")) continue;
    const auto all = take<char>(file, section.sh_offset, section.sh_size);
    for (std::size_t at = 0; at + sizeof(Elf64_Nhdr) <= all.size();) {
      Elf64_Nhdr note;
      std::memcpy(&note, all.data() + at, sizeof(note));
      const auto rounded = [](std::uint64_t bytes) { return (bytes + 3) / 4 * 4; };
      const std::uint64_t from = at + sizeof(note) + rounded(note.n_namesz);
      if (from > all.size() || note.n_descsz > all.size() - from) break;
      if (note.n_type == stapsdt)
        if (auto found = note_of(std::span(all).subspan(from, note.n_descsz), base))
          elf.notes.push_back(std::move(*found));
      at = from + rounded(note.n_descsz);
    }
  }
  return elf;
}

}  // namespace

void Probes::look_for(const std::string& usdt) {
  const auto colon = usdt.find(':');
  if (colon == usdt.npos) return;
  provider_ = usdt.substr(0, colon);
  const auto second = usdt.find(':', colon + 1);
  begin_ = usdt.substr(colon + 1, second - colon - 1);
  if (second != usdt.npos) end_ = usdt.substr(second + 1);
}

void Probes::adopt(std::uint64_t base) {
  if (provider_.empty()) return;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long from = 0;
    unsigned long to = 0;
    unsigned long offset = 0;
    char rights[8] = "";
    int path = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %7s %lx %*s %*s %n", &from, &to, rights, &offset,
                    &path) < 4)
      continue;
    // The emulator executes nothing in place: the right to execute is not there.
    if (rights[1] != 'w' && path > 0 && line.c_str()[path] == '/')
      map(from - base, to - from, line.substr(static_cast<std::size_t>(path)), offset);
  }
}

void Probes::map(std::uint64_t address, std::uint64_t bytes, const std::string& path,
                 std::uint64_t offset) {
  if (provider_.empty()) return;
  const auto elf = read_elf(path);
  if (!elf) return;
  for (const Elf64_Phdr& segment : elf->code) {
    // The kernel makes one of neighbouring mappings of a file.
    const std::uint64_t first = segment.p_offset / page_bytes * page_bytes;
    if (first < offset || first - offset >= bytes) continue;
    // From where it was linked for.
    const std::uint64_t moved = address + segment.p_offset - offset - segment.p_vaddr;
    const std::lock_guard hold(lock_);
    std::set<std::uint64_t> semaphores;
    for (const Note& note : elf->notes) {
      if (note.provider != provider_ || (note.name != begin_ && note.name != end_)) continue;
      const std::uint64_t place = note.place + moved;
      if (place < address || place - address >= bytes) continue;
      places_[place] = end_.empty()          ? Edge::next
                       : note.name != begin_ ? Edge::end
                       : begin_ == end_      ? Edge::next
                                             : Edge::begin;
      guest->observer->probe();
      if (note.semaphore != 0) semaphores.insert(note.semaphore + moved);
    }
    if (!semaphores.empty())
      pending_.push_back({address, address + bytes, {semaphores.begin(), semaphores.end()}});
    any_ = !places_.empty();
  }
}

Edge Probes::edge(std::uint64_t address, const std::uint8_t* code, std::size_t bytes) {
  if (const Edge found = marked(code, bytes); found != Edge::none) return found;
  if (!any_) return Edge::none;
  const std::lock_guard hold(lock_);
  std::erase_if(pending_, [&](const Pending& waiting) {
    if (address < waiting.from || address >= waiting.to) return false;
    for (const std::uint64_t semaphore : waiting.semaphores) {
      std::uint16_t listeners = 0;
      if (peek(semaphore, &listeners, sizeof(listeners)) != sizeof(listeners)) continue;
      ++listeners;
      (void)poke(semaphore, &listeners, sizeof(listeners));
    }
    return true;
  });
  const auto found = places_.find(address);
  return found == places_.end() ? Edge::none : found->second;
}

}  // namespace tt::record
