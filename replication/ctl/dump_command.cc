// hyperloopctl dump
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <cstdio>
#include <memory>

#include "ctl/command.h"
#include "ctl/nodes.h"
#include "hyperloop/core/group.h"
#include "options/size_option.h"

namespace hyperloop::ctl {
namespace {

struct DumpOptions {
  Where where;
  uint32_t replica = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  bool hex = false;
};

bool PrintHex(uint64_t offset, std::span<const std::byte> bytes) {
  constexpr size_t kRow = 16;
  for (size_t at = 0; at < bytes.size(); at += kRow) {
    std::printf("%010llx ", static_cast<unsigned long long>(offset + at));
    const size_t n = std::min(kRow, bytes.size() - at);
    std::string text;
    for (size_t i = 0; i < kRow; ++i) {
      if (i >= n) {
        std::printf("   ");
        continue;
      }
      const auto value = std::to_integer<unsigned char>(bytes[at + i]);
      std::printf(" %02x", value);
      text += std::isprint(value) != 0 ? static_cast<char>(value) : '.';
    }
    std::printf("  %s\n", text.c_str());
  }
  return std::ferror(stdout) == 0;
}

Status Dump(const DumpOptions& options) {
  uint64_t offset = options.offset, left = options.length;
  if (!options.hex && ::isatty(STDOUT_FILENO) != 0) {
    return InvalidArgument("raw bytes do not belong on a terminal; redirect stdout or add --hex");
  }
  HL_ASSIGN_OR_RETURN(Nodes nodes, Nodes::Find(options.where));
  HL_ASSIGN_OR_RETURN(const NodePlace* place, nodes.Replica(options.replica));
  HL_ASSIGN_OR_RETURN(const std::unique_ptr<NodeView> view, nodes.View(*place));
  const uint64_t size = view->region_size();
  if (offset > size || left > size - offset) {
    return InvalidArgument("bytes " + std::to_string(offset) + " to " + std::to_string(offset) +
                           "+" + std::to_string(left) + " are not in the region of " + place->name +
                           ", which has " + std::to_string(size) + " B");
  }
  constexpr uint64_t kPiece = 1 << 20;
  std::vector<std::byte> piece(std::min(left, kPiece));
  while (left > 0) {
    const std::span<std::byte> bytes(piece.data(), std::min(left, kPiece));
    HL_RETURN_IF_ERROR(view->Read(offset, bytes).WithContext(place->name));
    const bool written = options.hex
                             ? PrintHex(offset, bytes)
                             : std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size();
    if (!written) return FromErrno(errno, "writing to stdout");
    offset += bytes.size();
    left -= bytes.size();
  }
  if (std::fflush(stdout) != 0) return FromErrno(errno, "writing to stdout");
  return Status::Ok();
}

}  // namespace

void AddDump(CLI::App& app, Action* chosen) {
  auto options = std::make_shared<DumpOptions>();
  CLI::App* dump = app.add_subcommand("dump", "write bytes of a replica's region to stdout");
  AddWhere(dump, &options->where);
  dump->add_option("--replica", options->replica, "number of the replica, from 0")
      ->check(CLI::Range(0u, kMaxGroupSize - 1))
      ->type_name("N")
      ->required();
  dump->add_option("--offset", options->offset, "first byte (K, M, G)")
      ->transform(SizeFrom(0, kMaxRegionSize))
      ->type_name("BYTES")
      ->capture_default_str();
  dump->add_option("--length", options->length, "number of bytes (K, M, G)")
      ->transform(SizeFrom(1, kMaxRegionSize))
      ->type_name("BYTES")
      ->required();
  dump->add_flag("--hex", options->hex, "write text: offset, bytes, characters");
  dump->callback([=] {
    *chosen = [=] {
      const Status status = Dump(*options);
      return status.ok() ? static_cast<int>(kExitOk) : Fail(status);
    };
  });
}

}  // namespace hyperloop::ctl
