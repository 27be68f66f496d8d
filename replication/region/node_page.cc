#include <algorithm>
#include <cstring>

#include "common/printable.h"
#include "region/crc32c.h"
#include "region/region_layout.h"

namespace hyperloop {
namespace {

// One copy of the node's state, on media.
struct NodeBlock {
  uint64_t magic;
  uint32_t version;
  uint32_t crc;  // over this struct with crc = 0, seed 0
  uint64_t generation;
  Uuid node;
  Uuid group;
  uint64_t sealed_epoch;
  Uuid sealed_owner;
  uint64_t installed_epoch;
  Uuid installed_owner;
  uint32_t replica_count;
  uint32_t released;
  struct Replica {
    Uuid node;
    std::array<char, kConfigurationAddress> address;  // zero terminated
  };
  std::array<Replica, kMaxConfigurationReplicas> replicas;  // the absent ones last
  uint32_t absent_count;
  uint32_t awaits_opening;
  uint64_t branch_epoch;
  Uuid branch_owner;
  std::array<uint8_t, 112> zero;
};
static_assert(sizeof(NodeBlock) == 1024 && offsetof(NodeBlock, replicas) == 112 &&
              offsetof(NodeBlock, branch_epoch) == 888);

// The directive that the node keeps, on media, beside each copy of its state.
struct DirectiveBlock {
  uint64_t magic;
  uint32_t version;
  uint32_t crc;         // as NodeBlock's
  uint64_t generation;  // of the state with which it was written
  uint64_t promised_count, promised_writer;
  uint64_t count, writer;
  uint64_t when;
  uint32_t paused;
  uint32_t drained_count;
  // Texts are zero terminated.
  std::array<char, 48> owner;
  std::array<char, 48> node;
  std::array<std::array<char, 48>, kMaxDrained> drained;
  std::array<char, 128> by;
  std::array<uint8_t, 344> zero;
};
static_assert(sizeof(DirectiveBlock) == 1024 && offsetof(DirectiveBlock, owner) == 72 &&
              offsetof(DirectiveBlock, by) == 552);
static_assert(sizeof(NodeBlock) == kDirectiveInCopy && kMaxDirectiveNode < 48 &&
              kMaxDirectiveBy < 128);
constexpr uint64_t kDirectiveMagic = 0x544345524944'4c48;  // "HLDIRECT"
constexpr uint32_t kDirectiveVersion = 1;

template <class Block>
uint32_t BlockCrc(Block block) {
  block.crc = 0;
  return Crc32c(0, &block, sizeof(block));
}

// False: it has no end, or characters that no text of a directive has.
template <size_t kSize>
bool ReadChars(const std::array<char, kSize>& chars, std::string* text) {
  const auto end = std::find(chars.begin(), chars.end(), '\0');
  if (end == chars.end()) return false;
  text->assign(chars.begin(), end);
  return IsPrintable(*text);
}

// False: it does not fit.
template <size_t kSize>
bool WriteChars(const std::string& text, std::array<char, kSize>* chars) {
  if (text.size() >= kSize || text.find('\0') != std::string::npos) return false;
  std::memcpy(chars->data(), text.data(), text.size());
  return true;
}

// The generation with which it was written; 0: it is no valid one.
uint64_t ParseDirective(const std::byte* bytes, Directive* directive, DirectiveNumber* promised) {
  DirectiveBlock block;
  std::memcpy(&block, bytes, sizeof(block));
  if (block.magic != kDirectiveMagic || block.version != kDirectiveVersion ||
      BlockCrc(block) != block.crc || block.paused > 1 || block.drained_count > kMaxDrained)
    return 0;
  *promised = {block.promised_count, block.promised_writer};
  directive->number = {block.count, block.writer};
  directive->when = block.when;
  directive->paused = block.paused == 1;
  directive->drained.resize(block.drained_count);
  bool whole = ReadChars(block.owner, &directive->owner) &&
               ReadChars(block.node, &directive->node) && ReadChars(block.by, &directive->by);
  for (uint32_t i = 0; i < block.drained_count; ++i)
    whole = whole && ReadChars(block.drained[i], &directive->drained[i]);
  return whole ? block.generation : 0;
}

// False: it does not fit.
bool MakeDirective(const NodeState& state, uint64_t generation, DirectiveBlock* block) {
  const Directive& directive = state.directive;
  if (directive.drained.size() > kMaxDrained) return false;
  *block = {};
  block->magic = kDirectiveMagic;
  block->version = kDirectiveVersion;
  block->generation = generation;
  block->promised_count = state.promised.count;
  block->promised_writer = state.promised.writer;
  block->count = directive.number.count;
  block->writer = directive.number.writer;
  block->when = directive.when;
  block->paused = directive.paused ? 1 : 0;
  block->drained_count = static_cast<uint32_t>(directive.drained.size());
  bool fits = WriteChars(directive.owner, &block->owner) &&
              WriteChars(directive.node, &block->node) && WriteChars(directive.by, &block->by);
  for (size_t i = 0; i < directive.drained.size(); ++i)
    fits = fits && WriteChars(directive.drained[i], &block->drained[i]);
  block->crc = BlockCrc(*block);
  return fits;
}

// False: not a valid copy.
bool ParseCopy(const std::byte* bytes, NodeState* state) {
  NodeBlock block;
  std::memcpy(&block, bytes, sizeof(block));
  if (block.magic != kNodeMagic || block.version != kNodePageVersion ||
      BlockCrc(block) != block.crc)
    return false;
  if (!CountsFit(block.replica_count, block.absent_count) || block.released > 1 ||
      block.generation == 0)
    return false;
  state->generation = block.generation;
  state->node = block.node;
  state->group = block.group;
  state->sealed_epoch = block.sealed_epoch;
  state->sealed_owner = block.sealed_owner;
  state->installed.epoch = block.installed_epoch;
  state->installed.owner = block.installed_owner;
  state->installed.replicas.clear();
  state->installed.absent.clear();
  state->installed.branch = {block.branch_epoch, block.branch_owner};
  state->released = block.released == 1;
  state->awaits_opening = block.awaits_opening == 1;
  for (uint32_t i = 0; i < block.replica_count + block.absent_count; ++i) {
    const auto& address = block.replicas[i].address;
    const auto end = std::find(address.begin(), address.end(), '\0');
    if (end == address.end()) return false;
    auto& list = i < block.replica_count ? state->installed.replicas : state->installed.absent;
    list.push_back({block.replicas[i].node, std::string(address.begin(), end)});
  }
  return true;
}

bool NeverWritten(std::span<const std::byte> page, int copy) {
  const auto bytes = page.subspan(kNodeCopyOffsets[copy], sizeof(NodeBlock));
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Sets the state's directive. One whose write was cut short was acknowledged to nobody, and the
// other one is the one before.
void ReadDirective(std::span<const std::byte> page, NodeState* state) {
  uint64_t newest = 0;
  for (const uint64_t copy : kNodeCopyOffsets) {
    Directive directive;
    DirectiveNumber promised;
    const uint64_t generation =
        ParseDirective(page.data() + copy + kDirectiveInCopy, &directive, &promised);
    if (generation <= newest) continue;
    newest = generation;
    state->directive = std::move(directive);
    state->promised = promised;
  }
}

// Returns the index of the copy that counts, and sets `state` to it; −1: neither is valid.
int NewestCopy(std::span<const std::byte> page, NodeState* state) {
  int newest = -1;
  for (int i = 0; i < 2; ++i) {
    NodeState copy;
    if (!ParseCopy(page.data() + kNodeCopyOffsets[i], &copy)) continue;
    if (newest < 0 || copy.generation > state->generation) {
      newest = i;
      *state = std::move(copy);
    }
  }
  return newest;
}

// A text of the page, zero terminated.
std::string ReadText(std::span<const std::byte> at) {
  std::string text;
  for (const std::byte byte : at) {
    if (byte == std::byte{0}) break;
    text.push_back(static_cast<char>(byte));
  }
  return Printable(text, at.size());
}

void WriteText(std::span<std::byte> at, std::string_view text) {
  text = text.substr(0, at.size() - 1);
  std::memset(at.data(), 0, at.size());
  std::memcpy(at.data(), text.data(), text.size());
}

}  // namespace

Result<NodeState> ReadNodeState(std::span<const std::byte> page) {
  if (page.size() < kNodePageSize)
    return Corruption("node page of " + std::to_string(page.size()) + " B is cut short");
  NodeState state;
  if (NewestCopy(page, &state) >= 0) {
    ReadDirective(page, &state);
    return state;
  }
  // The second state goes to the second copy. As long as that copy was never written, the first
  // copy holds at most a first state whose write was cut short, and nobody relies on that.
  if (NeverWritten(page, 1)) return NotFound("node page was never written");
  return Corruption("neither copy of the node page is valid: what this node promised is unknown");
}

bool NodePageIsWhole(std::span<const std::byte> page) {
  NodeState first, second;
  const bool valid = ParseCopy(page.data() + kNodeCopyOffsets[0], &first);
  if (ParseCopy(page.data() + kNodeCopyOffsets[1], &second)) return valid;
  return valid && first.generation == 1 && NeverWritten(page, 1);
}

Result<PageRange> WriteNodeState(std::span<std::byte> page, NodeState* state) {
  if (page.size() < kNodePageSize)
    return InvalidArgument("node page of " + std::to_string(page.size()) + " B");
  const Configuration& installed = state->installed;
  const std::vector<Configuration::Replica> all = installed.All();
  if (all.size() > kMaxConfigurationReplicas) {
    return InvalidArgument("configuration of " + std::to_string(all.size()) +
                           " replicas, at most " + std::to_string(kMaxConfigurationReplicas));
  }
  NodeState present;
  const int newest = NewestCopy(page, &present);
  NodeBlock block{};
  block.magic = kNodeMagic;
  block.version = kNodePageVersion;
  block.generation = present.generation + 1;
  block.node = state->node;
  block.group = state->group;
  block.sealed_epoch = state->sealed_epoch;
  block.sealed_owner = state->sealed_owner;
  block.installed_epoch = installed.epoch;
  block.installed_owner = installed.owner;
  block.replica_count = static_cast<uint32_t>(installed.replicas.size());
  block.absent_count = static_cast<uint32_t>(installed.absent.size());
  block.released = state->released ? 1 : 0;
  block.awaits_opening = state->awaits_opening ? 1 : 0;
  block.branch_epoch = installed.branch.epoch;
  block.branch_owner = installed.branch.owner;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& replica = all[i];
    if (replica.address.size() >= kConfigurationAddress ||
        replica.address.find('\0') != std::string::npos) {
      return InvalidArgument("replica address \"" + replica.address + "\" is longer than " +
                             std::to_string(kConfigurationAddress - 1) + " bytes");
    }
    block.replicas[i].node = replica.node;
    std::memcpy(block.replicas[i].address.data(), replica.address.data(), replica.address.size());
  }
  block.crc = BlockCrc(block);
  DirectiveBlock directive;
  if (!MakeDirective(*state, block.generation, &directive))
    return InvalidArgument("a text of the directive is too long");
  const uint64_t offset = kNodeCopyOffsets[newest == 0 ? 1 : 0];
  std::memcpy(page.data() + offset, &block, sizeof(block));
  std::memcpy(page.data() + offset + kDirectiveInCopy, &directive, sizeof(directive));
  state->generation = block.generation;
  return PageRange{offset, kDirectiveInCopy + sizeof(directive)};
}

std::string ReadOwnerName(std::span<const std::byte> page) {
  return ReadText(page.subspan(kOwnerNameOffset, kOwnerNameSize));
}

PageRange WriteOwnerName(std::span<std::byte> page, std::string_view name) {
  WriteText(page.subspan(kOwnerNameOffset, kOwnerNameSize), name);
  return {kOwnerNameOffset, kOwnerNameSize};
}

std::string ReadFileDamage(std::span<const std::byte> page) {
  return ReadText(page.subspan(kFileDamageOffset, kFileDamageSize));
}

void WriteFileDamage(std::span<std::byte> page, std::string_view text) {
  WriteText(page.subspan(kFileDamageOffset, kFileDamageSize), text);
}

std::string ReadFileRefusal(std::span<const std::byte> page) {
  return ReadText(page.subspan(kFileRefusalOffset, kFileRefusalSize));
}

void WriteFileRefusal(std::span<std::byte> page, std::string_view text) {
  WriteText(page.subspan(kFileRefusalOffset, kFileRefusalSize), text);
}

OwnerDamage EncodeOwnerDamage(std::string_view text) {
  OwnerDamage bytes;
  WriteText(bytes, text);
  return bytes;
}

std::string ReadOwnerDamage(std::span<const std::byte> page) {
  return ReadText(page.subspan(kOwnerDamageOffset, kOwnerDamageSize));
}

std::string ReadDatapath(std::span<const std::byte> page) {
  return ReadText(page.subspan(kDatapathOffset, kDatapathSize));
}

void WriteDatapath(std::span<std::byte> page, std::string_view name) {
  WriteText(page.subspan(kDatapathOffset, kDatapathSize), name);
}

std::string ReadAbsences(std::span<const std::byte> page) {
  return ReadText(page.subspan(kAbsencesOffset, kAbsencesSize));
}

PageRange WriteAbsences(std::span<std::byte> page, std::string_view text) {
  WriteText(page.subspan(kAbsencesOffset, kAbsencesSize), text);
  return {kAbsencesOffset, kAbsencesSize};
}

}  // namespace hyperloop
