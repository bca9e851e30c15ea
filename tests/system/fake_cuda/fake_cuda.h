/* A stand-in for CUDA's driver and runtime: what tests may ask of it, beside the calls that it has
 * of theirs. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* How streams dawdle from here on; 0: not at all. FAKE_CUDA_SEED says it from outside. */
void fake_cuda_seed(unsigned seed);
/* The n-th copy that is queued from here on is refused, 1 the next one; nothing else fails. */
void fake_cuda_refuse_copy(int n);
/* The device breaks at the n-th copy that is done from here on: its streams do nothing any more,
   and all calls return the error. */
void fake_cuda_break_at_copy(int n);
/* All devices work again, and no fault is to come. */
void fake_cuda_mend(void);
/* 1: a copy that waits keeps all other calls for its device from going on, as the driver does. */
void fake_cuda_lock_in_waits(int on);
/* How many calls have waited for a stream so far, in all threads. */
int fake_cuda_waits(void);
/* Pieces of device, managed and pinned memory that are there. */
int fake_cuda_pieces(void);

#ifdef __cplusplus
}
#endif
