// Stands in for libnvidia-ml.so.1, with the few functions that GpuUse calls, as nvml.h declares
// them: a test says what they answer.
#include "tests/unit/io/loader/nvml_stand_in.h"

#include <stddef.h>

struct NvmlStandIn nvml_stand_in;

typedef struct {
  unsigned gpu, memory;
} Utilization;
typedef struct {
  unsigned pid;
  unsigned long long memory;
  unsigned gpu_instance, compute_instance;
} Process;

static size_t number_of(const void* device) {
  return (size_t)((const char*)device - (char*)&nvml_stand_in);
}

int nvmlInit_v2(void) {
  nvml_stand_in.begun += nvml_stand_in.init_code == 0;
  return nvml_stand_in.init_code;
}
int nvmlShutdown(void) {
  ++nvml_stand_in.ended;
  return 0;
}
const char* nvmlErrorString(int code) { return code == 3 ? "Not Supported" : "Driver Not Loaded"; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = nvml_stand_in.count;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = (char*)&nvml_stand_in + index;
  return nvml_stand_in.handle_code[index];
}
int nvmlDeviceGetUtilizationRates(void* device, Utilization* use) {
  use->gpu = nvml_stand_in.use[number_of(device)];
  use->memory = 1;
  return nvml_stand_in.use_code[number_of(device)];
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, Process* processes) {
  const unsigned room = *count;
  *count = nvml_stand_in.processes[number_of(device)];
  if (*count > room) {
    return 7;  // NVML_ERROR_INSUFFICIENT_SIZE
  }
  for (unsigned i = 0; i < *count; ++i) {
    const int is_last = i + 1 == *count;
    processes[i].pid = is_last ? nvml_stand_in.last_pid[number_of(device)] : 0;
    processes[i].memory = is_last ? nvml_stand_in.memory[number_of(device)] : 0;
  }
  return 0;
}
