#include "group/slot_program.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "support/must.h"
#include "support/status_matchers.h"

namespace hyperloop {
namespace {

TEST(SlotProgramTest, StaysInsideItsBudgetAndLimits) {
  for (uint32_t group_size = 1; group_size <= kMaxGroupSize; ++group_size) {
    for (const uint32_t window : {1u, 2u, 4u, 5u, 64u, kMaxWindow}) {
      const auto made = GroupGeometry::For(Datapath::kOffload, group_size, window, 0);
      ASSERT_OK(made);
      const GroupGeometry& geometry = *made;
      SlotProgram program = SlotProgram::For(geometry);
      // Re-arming and result included.
      program.order = FlushOrder::kPipelined;
      EXPECT_LE(program.message_bytes(0), 150u * group_size);
      program.order = FlushOrder::kHopByHop;
      EXPECT_LE(program.message_bytes(0), 300u * group_size);
      // RECV m re-arms slot m + lookahead, which slot m enables, so the patch comes just in time.
      EXPECT_EQ(program.lookahead + program.rearm_distance, geometry.slots);
      EXPECT_GE(program.lookahead, 2u) << "a tail enables two slots at a time";
      EXPECT_GE(geometry.slots * 3 / 4, window) << "receives between two updates of the counter";
      EXPECT_GE(geometry.slots - window, geometry.slots / 2)
          << "a forced flush between a slot's use and its next";
      EXPECT_GE(geometry.slots - window - 1, geometry.slots / 4)
          << "a READ of the ack area between a slot's use and its next";
      EXPECT_EQ(program.message_bytes(group_size - 1),
                program.patch_bytes(group_size - 1) + ResultBytes(group_size));
    }
  }
}

// docs/group-primitives.md states these bytes.
TEST(SlotProgramTest, MessagesOfAGroupOfThreeAreAsLongAsDocumented) {
  const auto bytes = [](FlushOrder order) {
    SlotProgram program = SlotProgram::For(Must(GroupGeometry::For(Datapath::kOffload, 3, 64, 0)));
    program.order = order;
    return std::vector<uint32_t>{program.message_bytes(0), program.message_bytes(1),
                                 program.message_bytes(2)};
  };
  EXPECT_EQ(bytes(FlushOrder::kHopByHop), (std::vector<uint32_t>{820, 548, 276}));
  EXPECT_EQ(bytes(FlushOrder::kPipelined), (std::vector<uint32_t>{390, 264, 138}));
}

// Two proofs in one place would each count as the other.
TEST(SlotProgramTest, EachProofHasAPlaceOfItsOwnBehindTheAcknowledgements) {
  for (const uint32_t group_size : {1u, 2u, 3u, kMaxGroupSize}) {
    for (const uint32_t slots : {8u, 128u, kMaxSlots}) {
      std::set<uint32_t> places;
      for (uint32_t slot = 0; slot < slots; ++slot)
        for (uint32_t replica = 0; replica < group_size; ++replica)
          places.insert(ProofOffset(slots, group_size, slot, replica));
      EXPECT_EQ(places.size(), size_t{slots} * group_size);
      EXPECT_GE(*places.begin(), slots * AckStride(group_size));
      EXPECT_LE(*places.rbegin() + sizeof(uint64_t), AckAreaBytes(slots, group_size));
      for (const uint32_t place : places) ASSERT_EQ(place % sizeof(uint64_t), 0u);
    }
  }
}

TEST(SlotProgramTest, FlushesHopByHopOnlyWhereOneRnicServesAll) {
  const auto placed = [](uint64_t primary, std::vector<uint64_t> replicas) {
    SlotProgram program;
    PrimaryInfo info;
    info.rnic = primary;
    std::vector<MemberInfo> chain(replicas.size());
    for (size_t i = 0; i < chain.size(); ++i) chain[i].rnic = replicas[i];
    program.Place(info, chain);
    return program.order;
  };
  EXPECT_EQ(placed(7, {7, 7, 7}), FlushOrder::kHopByHop);
  EXPECT_EQ(placed(7, {7, 7, 8}), FlushOrder::kPipelined);
  EXPECT_EQ(placed(8, {7, 7, 7}), FlushOrder::kPipelined);
  EXPECT_EQ(placed(0, {0, 0, 0}), FlushOrder::kPipelined) << "0 says nothing";
}

}  // namespace
}  // namespace hyperloop
