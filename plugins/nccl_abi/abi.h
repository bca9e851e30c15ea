/* NCCL's binary interface as Sprat declares it: types, then every function of functions.def.
   Layouts and numbers are those that programs are compiled with; tests hold them against nccl.h
   where there is one. C11 and C++. */
#ifndef SPRAT_NCCL_ABI_H
#define SPRAT_NCCL_ABI_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#ifndef SPRAT_NCCL_NO_CUDA_TYPES /* for those who have CUDA's own */
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
#endif

typedef struct ncclComm* ncclComm_t;
typedef struct ncclWindow_vidmem* ncclWindow_t;

enum { SPRAT_NCCL_ID_BYTES = 128 };
/* Passed by value. */
typedef struct {
  char internal[SPRAT_NCCL_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclTimeout = 8, /* since 2.30; never returned to a program that was told of an older version */
  ncclNumResults = 9
} ncclResult_t;

typedef enum {
  ncclSum = 0,
  ncclProd = 1,
  ncclMax = 2,
  ncclMin = 3,
  ncclAvg = 4,
  ncclNumOps = 5, /* and the first that a program may make */
  ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

typedef enum {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
  ncclNumTypes = 12
} ncclDataType_t;

typedef enum {
  ncclScalarDevice = 0,       /* read while the operation runs */
  ncclScalarHostImmediate = 1 /* read before the call returns */
} ncclScalarResidence_t;

#define SPRAT_NCCL_UNDEFINED INT_MIN /* of an int in a configuration that nobody has set */
#define SPRAT_NCCL_MAGIC 0xcafebeefu
#define SPRAT_NCCL_SIMULATION_MAGIC 0x74685283u
enum { SPRAT_NCCL_NO_COLOR = -1, SPRAT_NCCL_SHRINK_ABORT = 1, SPRAT_NCCL_SUSPEND_MEMORY = 1 };

/* Grows at its end only; `size` says how much of it the caller knows. */
typedef struct ncclConfig {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched; /* the last of 2.28 */
  int graphUsageMode;
  int numRmaCtx;
  int maxP2pPeers;
  int graphStreamOrdering; /* the last of 2.30 */
  int launchOrderImplicit;
  int numRmaSig;
  int rmaEagerInit;
  int hostCftMode; /* one more follows in 2.32, which says nothing here */
} ncclConfig_t;

/* Of one collective; since 2.32. Grows as ncclConfig_t does. */
typedef struct ncclCollConfig {
  size_t size;
  unsigned int magic;
  unsigned int version;
  void* ext;
  int minCTAs;
  int maxCTAs;
  int nvlsCTAs;
  int cgaClusterSize;
  const char* algSelection;
  int forceAlgSelection;
  int CTAPolicy;
  uint64_t userProfilerTag;
  cudaEvent_t launchCompletionEvent;
} ncclCollConfig_t;

typedef struct ncclSimInfo {
  size_t size;
  unsigned int magic;
  unsigned int version;
  float estimatedTime; /* -1: unknown */
} ncclSimInfo_t;

typedef struct ncclEncryptionConfig {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int mode; /* 0: none */
  const char* psk;
} ncclEncryptionConfig_t;

typedef enum {
  ncclStatGpuMemSuspend = 0,
  ncclStatGpuMemSuspended = 1,
  ncclStatGpuMemPersist = 2,
  ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

/* Returned and passed by value: ranks `stride` apart, of which the caller is the `rank`-th. */
typedef struct ncclTeam {
  int nRanks, rank, stride;
} ncclTeam_t;

#ifndef SPRAT_NCCL_TYPES_ONLY
#ifdef __cplusplus
extern "C" {
#endif
#define SPRAT_NCCL(result, name, parameters, arguments) \
  result nccl##name parameters;                         \
  result pnccl##name parameters;
#include "plugins/nccl_abi/functions.def"
#ifdef __cplusplus
}
#endif
#endif

#endif
