/* NCCL's interface as programs see it: nccl.h where there is one, else our own declarations of it.
 */
#ifndef SPRAT_TESTS_NCCL_API_H
#define SPRAT_TESTS_NCCL_API_H

#ifdef SPRAT_NCCL_HEADER
#include <nccl.h>
#else
#include "plugins/nccl_abi/abi.h"
#define NCCL_SPLIT_NOCOLOR SPRAT_NCCL_NO_COLOR
#define NCCL_SHRINK_ABORT SPRAT_NCCL_SHRINK_ABORT
#define NCCL_SHRINK_DEFAULT 0
#define NCCL_CONFIG_INITIALIZER                                                                 \
  {                                                                                             \
    sizeof(ncclConfig_t), SPRAT_NCCL_MAGIC, 22809, SPRAT_NCCL_UNDEFINED, SPRAT_NCCL_UNDEFINED,  \
        SPRAT_NCCL_UNDEFINED, SPRAT_NCCL_UNDEFINED, NULL, SPRAT_NCCL_UNDEFINED,                 \
        SPRAT_NCCL_UNDEFINED, NULL, SPRAT_NCCL_UNDEFINED, SPRAT_NCCL_UNDEFINED,                 \
        SPRAT_NCCL_UNDEFINED, SPRAT_NCCL_UNDEFINED, SPRAT_NCCL_UNDEFINED, SPRAT_NCCL_UNDEFINED, \
        SPRAT_NCCL_UNDEFINED, SPRAT_NCCL_UNDEFINED, SPRAT_NCCL_UNDEFINED, SPRAT_NCCL_UNDEFINED, \
        SPRAT_NCCL_UNDEFINED, SPRAT_NCCL_UNDEFINED, SPRAT_NCCL_UNDEFINED, SPRAT_NCCL_UNDEFINED  \
  }
#define NCCL_SIM_INFO_INITIALIZER \
  { sizeof(ncclSimInfo_t), SPRAT_NCCL_SIMULATION_MAGIC, 22809, -1.0f }
#endif

#endif
