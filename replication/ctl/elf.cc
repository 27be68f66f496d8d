#include "ctl/elf.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "hyperloop/core/status.h"
#include "hyperloop/core/unique_fd.h"
#include "hyperloop/replication/linked_rocksdb.h"

namespace hyperloop::ctl {
namespace {

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  Result<ElfInfo> Read() {
    if (bytes_.substr(0, 2) == "#!") return NotAProgram("a script");
    const auto header = At<Elf64_Ehdr>(0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) {
      return NotAProgram("not an ELF program");
    }
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB) {
      return NotAProgram("an ELF file, but not a 64-bit little-endian one");
    }
    if (header->e_type != ET_EXEC && header->e_type != ET_DYN) {
      return NotAProgram("an ELF file, but neither a program nor a shared object");
    }
    info_.machine = header->e_machine;
    for (uint32_t i = 0; i < header->e_phnum; ++i) {
      const auto segment = At<Elf64_Phdr>(header->e_phoff + uint64_t{i} * sizeof(Elf64_Phdr));
      if (!segment) return Outside("a program header");
      if (segment->p_type == PT_INTERP) info_.has_interpreter = true;
      if (segment->p_type == PT_DYNAMIC) dynamic_ = *segment;
      if (segment->p_type == PT_LOAD) loads_.push_back(*segment);
    }
    if (dynamic_) HL_RETURN_IF_ERROR(ReadDynamic());
    info_.holds_rocksdb = HoldsRocksDb(bytes_);
    return info_;
  }

 private:
  // The value is copied, because nothing in a file need be aligned.
  template <class T>
  std::optional<T> At(uint64_t offset) const {
    if (offset > bytes_.size() || sizeof(T) > bytes_.size() - offset) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  Status NotAProgram(const std::string& what) const {
    return InvalidArgument(path_ + " is " + what + Interpreter());
  }
  std::string Interpreter() const {
    if (bytes_.substr(0, 2) != "#!") return "";
    const std::string_view line = bytes_.substr(2, bytes_.substr(2).find('\n'));
    return " for " + std::string(line.substr(0, 100));
  }
  Status Outside(const char* what) const {
    return Corruption(path_ + ": " + what + " lies outside the file (" +
                      std::to_string(bytes_.size()) + " B)");
  }
  std::optional<uint64_t> FileOffset(uint64_t address) const {
    for (const Elf64_Phdr& load : loads_) {
      if (address >= load.p_vaddr && address - load.p_vaddr < load.p_filesz) {
        return load.p_offset + (address - load.p_vaddr);
      }
    }
    return std::nullopt;
  }
  Status ReadDynamic() {
    std::optional<uint64_t> strings;
    std::vector<Elf64_Dyn> names;
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic_->p_filesz; at += sizeof(Elf64_Dyn)) {
      const auto entry = At<Elf64_Dyn>(dynamic_->p_offset + at);
      if (!entry) return Outside("the dynamic section");
      if (entry->d_tag == DT_NULL) break;
      if (entry->d_tag == DT_STRTAB) strings = FileOffset(entry->d_un.d_ptr);
      if (entry->d_tag == DT_NEEDED) names.push_back(*entry);
    }
    for (const Elf64_Dyn& name : names) {
      if (!strings || name.d_un.d_val > bytes_.size() ||
          *strings > bytes_.size() - name.d_un.d_val) {
        return Outside("a library's name");
      }
      const std::string_view rest = bytes_.substr(*strings + name.d_un.d_val);
      const size_t end = rest.find('\0');
      if (end == std::string_view::npos) return Outside("a library's name");
      info_.needed.emplace_back(rest.substr(0, end));
    }
    return Status::Ok();
  }

  const std::string_view bytes_;
  const std::string& path_;
  ElfInfo info_;
  std::vector<Elf64_Phdr> loads_;
  std::optional<Elf64_Phdr> dynamic_;
};

}  // namespace

Result<ElfInfo> ParseElf(const std::string& bytes, const std::string& path) {
  return Reader(bytes, path).Read();
}

Result<ElfInfo> ReadElf(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return FromErrno(errno, path);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return InvalidArgument(path + " is not a file");
  }
  const size_t size = static_cast<size_t>(status.st_size);
  void* bytes = size == 0 ? MAP_FAILED : ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (bytes == MAP_FAILED) return InvalidArgument(path + " is not an ELF program (it is empty)");
  Result<ElfInfo> info = Reader({static_cast<const char*>(bytes), size}, path).Read();
  ::munmap(bytes, size);
  return info;
}

}  // namespace hyperloop::ctl
