// Our declarations against nccl.h's: sizes, offsets and numbers. Compiled to nothing where there is
// no nccl.h.
#include <gtest/gtest.h>

#ifdef SPRAT_NCCL_HEADER
#include <limits.h>
#include <nccl.h>
#include <stdint.h>

#include <cstddef>
#include <type_traits>
namespace ours {
#define SPRAT_NCCL_NO_CUDA_TYPES
#define SPRAT_NCCL_TYPES_ONLY
#include "plugins/nccl_abi/abi.h"
}  // namespace ours

// Ours reaches further, as later versions do; of what theirs has each member lies where ours does.
#define SPRAT_SAME_PLACE(type, member)                                     \
  static_assert(offsetof(::type, member) == offsetof(ours::type, member)); \
  static_assert(sizeof(::type::member) == sizeof(ours::type::member))
static_assert(sizeof(::ncclUniqueId) == sizeof(ours::ncclUniqueId));
static_assert(sizeof(::ncclConfig_t) <= sizeof(ours::ncclConfig_t));
static_assert(sizeof(::ncclSimInfo_t) == sizeof(ours::ncclSimInfo_t));
SPRAT_SAME_PLACE(ncclConfig_t, magic);
SPRAT_SAME_PLACE(ncclConfig_t, version);
SPRAT_SAME_PLACE(ncclConfig_t, blocking);
SPRAT_SAME_PLACE(ncclConfig_t, netName);
SPRAT_SAME_PLACE(ncclConfig_t, splitShare);
SPRAT_SAME_PLACE(ncclConfig_t, commName);
SPRAT_SAME_PLACE(ncclConfig_t, collnetEnable);
SPRAT_SAME_PLACE(ncclConfig_t, shrinkShare);
SPRAT_SAME_PLACE(ncclConfig_t, nvlinkCentricSched);
SPRAT_SAME_PLACE(ncclSimInfo_t, estimatedTime);
#define SPRAT_SAME_NUMBER(name) \
  static_assert(static_cast<int>(::name) == static_cast<int>(ours::name))
SPRAT_SAME_NUMBER(ncclInProgress);
SPRAT_SAME_NUMBER(ncclRemoteError);
SPRAT_SAME_NUMBER(ncclInvalidUsage);
SPRAT_SAME_NUMBER(ncclMin);
SPRAT_SAME_NUMBER(ncclAvg);
SPRAT_SAME_NUMBER(ncclNumOps);
SPRAT_SAME_NUMBER(ncclMaxRedOp);
SPRAT_SAME_NUMBER(ncclUint64);
SPRAT_SAME_NUMBER(ncclBfloat16);
SPRAT_SAME_NUMBER(ncclFloat8e5m2);
SPRAT_SAME_NUMBER(ncclNumTypes);
SPRAT_SAME_NUMBER(ncclScalarHostImmediate);
static_assert(sizeof(::ncclRedOp_t) == sizeof(ours::ncclRedOp_t));
static_assert(sizeof(::ncclDataType_t) == sizeof(ours::ncclDataType_t));
static_assert(NCCL_CONFIG_UNDEF_INT == SPRAT_NCCL_UNDEFINED);
#endif

TEST(NcclLayout, is_that_of_nccl_h) {
#ifndef SPRAT_NCCL_HEADER
  GTEST_SKIP() << "there was no nccl.h to compile with";
#endif
}
