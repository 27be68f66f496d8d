// The functions of libibverbs and librdmacm that the provider calls. They are looked up at first
// use, so that a program with this provider, such as any that loads the plugin, does not depend on
// the libraries.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "hyperloop/core/status.h"

namespace hyperloop::verbs {

#define HL_VERBS_FUNCTIONS(X) \
  X(ibv_fork_init)            \
  X(ibv_get_device_list)      \
  X(ibv_free_device_list)     \
  X(ibv_get_device_name)      \
  X(ibv_open_device)          \
  X(ibv_close_device)         \
  X(ibv_query_device)         \
  X(ibv_query_port)           \
  X(ibv_query_gid)            \
  X(ibv_get_async_event)      \
  X(ibv_ack_async_event)      \
  X(ibv_alloc_pd)             \
  X(ibv_dealloc_pd)           \
  X(ibv_reg_mr)               \
  X(ibv_dereg_mr)             \
  X(ibv_create_comp_channel)  \
  X(ibv_destroy_comp_channel) \
  X(ibv_create_cq)            \
  X(ibv_destroy_cq)           \
  X(ibv_get_cq_event)         \
  X(ibv_ack_cq_events)        \
  X(ibv_create_qp)            \
  X(ibv_modify_qp)            \
  X(ibv_destroy_qp)
#define HL_RDMACM_FUNCTIONS(X)  \
  X(rdma_create_event_channel)  \
  X(rdma_destroy_event_channel) \
  X(rdma_create_id)             \
  X(rdma_destroy_id)            \
  X(rdma_bind_addr)             \
  X(rdma_listen)                \
  X(rdma_resolve_addr)          \
  X(rdma_resolve_route)         \
  X(rdma_connect)               \
  X(rdma_establish)             \
  X(rdma_accept)                \
  X(rdma_reject)                \
  X(rdma_disconnect)            \
  X(rdma_init_qp_attr)          \
  X(rdma_get_cm_event)          \
  X(rdma_ack_cm_event)

struct Library {
#define HL_MEMBER(name) decltype(&::name) name = nullptr;
  HL_VERBS_FUNCTIONS(HL_MEMBER)
  HL_RDMACM_FUNCTIONS(HL_MEMBER)
#undef HL_MEMBER

  // Loaded once for the process and never unloaded. kNotSupported: not installed, or too old.
  // Thread safe.
  static Result<const Library*> Load();
};

}  // namespace hyperloop::verbs
