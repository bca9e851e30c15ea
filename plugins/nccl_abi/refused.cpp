// What is exported so that programs load, and refused when it is called: the reason is in
// ncclGetLastError().
#include <string>

#include "plugins/nccl_abi/errors.hpp"
#include "plugins/nccl_abi/functions.hpp"

namespace sprat::nccl {
namespace {

ncclResult_t not_served(const char* call, const char* why) noexcept {
  return guard([&]() -> ncclResult_t {
    refuse(ncclInvalidUsage, std::string(call) + " is not served: " + why);
  });
}

constexpr const char* kernels =
    "kernels that communicate themselves need device memory that peers map, which Sprat does not "
    "make; use the collectives, or NCCL's own library";
constexpr const char* one_sided =
    "Sprat has no one-sided messages; use ncclSend and ncclRecv, or NCCL's own library";
constexpr const char* parameters =
    "NCCL's parameters have no meaning here; docs/configuration.md lists Sprat's";

}  // namespace

ncclResult_t DevCommCreate(ncclComm_t, const void*, void*) {
  return not_served("ncclDevCommCreate", kernels);
}
ncclResult_t DevCommDestroy(ncclComm_t, const void*) {
  return not_served("ncclDevCommDestroy", kernels);
}
ncclResult_t GinBarrierCreateRequirement(ncclComm_t, ncclTeam_t, int, void*, void*) {
  return not_served("ncclGinBarrierCreateRequirement", kernels);
}
ncclResult_t LsaBarrierCreateRequirement(ncclTeam_t, int, void*, void*) {
  return not_served("ncclLsaBarrierCreateRequirement", kernels);
}
int LLA2ACalcSlots(int, int) { return 0; }
ncclResult_t LLA2ACreateRequirement(int, int, void*, void*) {
  return not_served("ncclLLA2ACreateRequirement", kernels);
}
ncclResult_t GinInboxA2ACreateRequirement(ncclTeam_t, int, int, void*, void*) {
  return not_served("ncclGinInboxA2ACreateRequirement", kernels);
}
ncclResult_t GinOutboxCreateRequirement(int, int, void*, void*) {
  return not_served("ncclGinOutboxCreateRequirement", kernels);
}
ncclResult_t CommQueryProperties(ncclComm_t, void*) {
  return not_served("ncclCommQueryProperties", kernels);
}
ncclResult_t GetLsaDevicePointer(ncclWindow_t, size_t, int, void**) {
  return not_served("ncclGetLsaDevicePointer", kernels);
}
ncclResult_t GetLsaMultimemDevicePointer(ncclWindow_t, size_t, void**) {
  return not_served("ncclGetLsaMultimemDevicePointer", kernels);
}
ncclResult_t GetMultimemDevicePointer(ncclWindow_t, size_t, void*, void**) {
  return not_served("ncclGetMultimemDevicePointer", kernels);
}
ncclResult_t GetPeerDevicePointer(ncclWindow_t, size_t, int, void**) {
  return not_served("ncclGetPeerDevicePointer", kernels);
}
ncclResult_t GetCftDeviceLeInfo(ncclWindow_t, size_t, int, ncclTeam_t, void*, size_t*) {
  return not_served("ncclGetCftDeviceLeInfo", kernels);
}
ncclResult_t GetMultimemDeviceLeInfo(ncclWindow_t, size_t, void*, size_t*) {
  return not_served("ncclGetMultimemDeviceLeInfo", kernels);
}
ncclResult_t GetPeerDeviceLeInfo(ncclWindow_t, size_t, int, void*, size_t*) {
  return not_served("ncclGetPeerDeviceLeInfo", kernels);
}

ncclResult_t PutSignal(const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int,
                       unsigned int, ncclComm_t, cudaStream_t) {
  return not_served("ncclPutSignal", one_sided);
}
ncclResult_t Signal(int, int, int, unsigned int, ncclComm_t, cudaStream_t) {
  return not_served("ncclSignal", one_sided);
}
ncclResult_t WaitSignal(int, void*, ncclComm_t, cudaStream_t) {
  return not_served("ncclWaitSignal", one_sided);
}

ncclResult_t ParamBind(void**, const char*) { return not_served("ncclParamBind", parameters); }
ncclResult_t ParamGetI8(void*, int8_t*) { return not_served("ncclParamGetI8", parameters); }
ncclResult_t ParamGetI16(void*, int16_t*) { return not_served("ncclParamGetI16", parameters); }
ncclResult_t ParamGetI32(void*, int32_t*) { return not_served("ncclParamGetI32", parameters); }
ncclResult_t ParamGetI64(void*, int64_t*) { return not_served("ncclParamGetI64", parameters); }
ncclResult_t ParamGetU8(void*, uint8_t*) { return not_served("ncclParamGetU8", parameters); }
ncclResult_t ParamGetU16(void*, uint16_t*) { return not_served("ncclParamGetU16", parameters); }
ncclResult_t ParamGetU32(void*, uint32_t*) { return not_served("ncclParamGetU32", parameters); }
ncclResult_t ParamGetU64(void*, uint64_t*) { return not_served("ncclParamGetU64", parameters); }
ncclResult_t ParamGetStr(void*, const char**) { return not_served("ncclParamGetStr", parameters); }
ncclResult_t ParamGet(void*, void*, int, int*) { return not_served("ncclParamGet", parameters); }
ncclResult_t ParamGetParameter(const char*, const char**, int*) {
  return not_served("ncclParamGetParameter", parameters);
}
ncclResult_t ParamGetAllParameterKeys(const char***, int*) {
  return not_served("ncclParamGetAllParameterKeys", parameters);
}
void ParamDumpAll(void) {}

ncclResult_t SetEncryption(const ncclEncryptionConfig_t* config) {
  if (config != nullptr && config->magic == SPRAT_NCCL_MAGIC && config->mode == 0) {
    return ncclSuccess;  // what is asked for is none
  }
  return not_served("ncclSetEncryption",
                    "messages of the drop-in are not encrypted; docs/security.md says what is");
}

}  // namespace sprat::nccl
