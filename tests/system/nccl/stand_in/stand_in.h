/* A stand-in for NCCL's own library: what tests may ask of it, beside NCCL's calls. Its ranks are
 * threads of one process, its operations run in streams of the stand-in for CUDA. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* How often pnccl<name> has been called so far, in all threads: "AllReduce". */
int real_nccl_calls(const char* name);
/* Communicators that are there, neither destroyed nor aborted. */
int real_nccl_communicators(void);
/* The calling thread's device when this rank last joined. */
int real_nccl_device_of(int rank);
/* From here on joining fails on this rank; -1: on none. */
void real_nccl_refuse_rank(int rank);
/* The communicators of this rank have failed by a result, as ncclCommGetAsyncError has it; 0: none
   that is made later. */
void real_nccl_fail_rank(int rank, int result);
/* Whoever asks how a communicator is gets no answer until this is called with 0. */
void real_nccl_hold_answers(int hold);
/* How many calls wait for that now. */
int real_nccl_answers_held(void);

#ifdef __cplusplus
}
#endif
