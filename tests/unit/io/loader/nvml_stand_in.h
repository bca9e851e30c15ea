// What the stand-in for NVIDIA's library is to answer, and what it was asked.
#ifndef SPRAT_NVML_STAND_IN_H
#define SPRAT_NVML_STAND_IN_H

enum { stand_in_gpus = 4 };

struct NvmlStandIn {
  int init_code; /* of nvmlInit_v2: 0, or an error's */
  unsigned count;
  int handle_code[stand_in_gpus];
  int use_code[stand_in_gpus];
  unsigned use[stand_in_gpus]; /* percent */
  unsigned processes[stand_in_gpus];
  unsigned last_pid[stand_in_gpus];         /* of the last process; the others are no process's */
  unsigned long long memory[stand_in_gpus]; /* bytes of the last process */
  int begun, ended; /* calls of nvmlInit_v2 that succeeded, of nvmlShutdown */
};

#endif
