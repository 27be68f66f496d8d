// Polls the completion queue as rdma-core's mlx5 provider would. Each CQE that the engine writes is
// read with the vendor's accessors (mlx5dv_get_cqe_*) and structs, without our own decoding.
#include <endian.h>

#include "softrnic/engine/testing/engine_test_util.h"

namespace hyperloop::softrnic {
namespace {

// Does what libmlx5's next_cqe_sw does. Null: the entry still belongs to the device.
mlx5_cqe64* Next(const TestCq& cq, uint32_t consumer) {
  mlx5_cqe64* const cqe = &cq.ring[consumer & (cq.depth - 1)];
  const bool lap = (consumer & cq.depth) != 0;
  if (mlx5dv_get_cqe_opcode(cqe) == MLX5_CQE_INVALID || mlx5dv_get_cqe_owner(cqe) != (lap ? 1 : 0))
    return nullptr;
  return cqe;
}

TEST(EngineVendor, SendsAndImmediateWritesOverThreeLaps) {
  Pair pair;
  const uint32_t depth = pair.b_recv.depth;
  uint32_t consumer = 0;
  for (uint32_t i = 0; i < 3 * depth; ++i, ++consumer) {
    SCOPED_TRACE(i);
    ASSERT_EQ(Next(pair.b_recv, consumer), nullptr);
    pair.b_qp.Receive(pair.b.At(pair.dst, 256));
    const uint32_t imm = htobe32(0xa1b2c300 + i);
    const auto wqe_index = pair.a_qp.next;
    if (i % 2 == 0) {
      const Sge sge = pair.a.At(pair.src, 1 + i % 200);
      rnic::WqeControl control = pair.a_qp.Control(CqeMode::kAlways);
      control.solicited = true;
      pair.a_qp.Put([&](void* w) {
        return rnic::EncodeSendImm(w, control, {&sge, 1}, be32toh(imm));
      });
    } else {
      pair.a_qp.WriteImm(pair.Remote(pair.dst), pair.b.rkey, pair.a.At(pair.src, 1 + i % 200),
                         be32toh(imm), CqeMode::kAlways);
    }
    pair.a_qp.Ring();
    pair.Run();

    mlx5_cqe64* const received = Next(pair.b_recv, consumer);
    ASSERT_NE(received, nullptr);
    EXPECT_EQ(mlx5dv_get_cqe_opcode(received),
              i % 2 == 0 ? MLX5_CQE_RESP_SEND_IMM : MLX5_CQE_RESP_WR_IMM);
    EXPECT_EQ(mlx5dv_get_cqe_se(received), i % 2 == 0 ? 1 : 0);
    EXPECT_EQ(mlx5dv_get_cqe_format(received), 0) << "no scatter to CQE, no compression";
    EXPECT_EQ(received->imm_inval_pkey, imm);
    EXPECT_EQ(be32toh(received->byte_cnt), 1 + i % 200);
    EXPECT_EQ(be32toh(received->sop_drop_qpn) & 0xffffff, pair.b_qp.qpn);
    EXPECT_EQ(be16toh(received->wqe_counter), static_cast<uint16_t>(i));

    mlx5_cqe64* const sent = Next(pair.a_cq, consumer);
    ASSERT_NE(sent, nullptr);
    EXPECT_EQ(mlx5dv_get_cqe_opcode(sent), MLX5_CQE_REQ);
    EXPECT_EQ(be32toh(sent->sop_drop_qpn),
              static_cast<uint32_t>(i % 2 == 0 ? MLX5_OPCODE_SEND_IMM : MLX5_OPCODE_RDMA_WRITE_IMM)
                      << 24 |
                  pair.a_qp.qpn);
    EXPECT_EQ(be16toh(sent->wqe_counter), wqe_index);
    pair.a_cq.consumer = pair.b_recv.consumer = consumer + 1;
    pair.a_cq.Release(), pair.b_recv.Release();
  }
}

TEST(EngineVendor, ErrorCqeHasSyndromeOpcodeAndQueue) {
  Pair pair;
  pair.a_qp.Nop();
  pair.a_qp.Write(pair.Remote(pair.dst), pair.b.rkey ^ 1, pair.a.At(pair.src, 8));
  pair.a_qp.Ring();
  pair.Run();
  mlx5_cqe64* const cqe = Next(pair.a_cq, 0);
  ASSERT_NE(cqe, nullptr);
  EXPECT_EQ(mlx5dv_get_cqe_opcode(cqe), MLX5_CQE_REQ_ERR);
  mlx5_err_cqe error;
  std::memcpy(&error, cqe, sizeof(error));
  EXPECT_EQ(error.syndrome, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
  EXPECT_EQ(be32toh(error.s_wqe_opcode_qpn),
            static_cast<uint32_t>(MLX5_OPCODE_RDMA_WRITE) << 24 | pair.a_qp.qpn);
  EXPECT_EQ(be16toh(error.wqe_counter), 1);
}

}  // namespace
}  // namespace hyperloop::softrnic
