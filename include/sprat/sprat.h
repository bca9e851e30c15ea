/* Sprat's C API. An enumerator is the C++ one with SPRAT_ before it.
 *
 * Every function that can fail returns a status and throws nothing; what went wrong is in
 * sprat_last_error() of the calling thread. Handles are opaque and freed by their own function.
 * Counts are elements. Any thread may call. A child of fork() may free its parent's handles and ask
 * their rank, size, failure and source; the rest is SPRAT_unavailable there. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPRAT_C_API __attribute__((visibility("default")))

typedef enum sprat_status {
  SPRAT_ok = 0,
  SPRAT_invalid_argument, /* The caller broke a contract; nothing was sent. */
  SPRAT_unavailable,      /* Something the machine or the job lacks; set-up failed. */
  SPRAT_timeout,          /* A deadline passed; the message says who was waited for. */
  SPRAT_lost_peer,        /* A rank died or left while others needed it. */
  SPRAT_mismatch,         /* Ranks disagree on what they call together. */
  SPRAT_aborted,          /* A rank called sprat_comm_abort() or sprat_comm_revoke(). */
  SPRAT_internal          /* A defect of Sprat or of a library below it. */
} sprat_status;

typedef enum sprat_dtype {
#define SPRAT_DTYPE(name, type, bytes) SPRAT_##name,
#include "sprat/dtypes.def"
} sprat_dtype;

/* What a reduction does: one of these, or a number that sprat_op_create() made. */
typedef enum sprat_op {
  SPRAT_sum,
  SPRAT_prod,
  SPRAT_min,
  SPRAT_max,
  SPRAT_avg,
  SPRAT_band,
  SPRAT_bor,
  SPRAT_bxor,
  SPRAT_land,
  SPRAT_lor,
  SPRAT_last_op = INT32_MAX /* No op: the range of the numbers. */
} sprat_op;

/* sprat_recv() from whichever rank's message comes first. */
#define SPRAT_ANY_SOURCE (-1)

typedef struct sprat_comm sprat_comm;
typedef struct sprat_work sprat_work;
typedef struct sprat_memory sprat_memory;
typedef struct sprat_fusion sprat_fusion;
typedef struct sprat_loader sprat_loader;
typedef struct sprat_batch sprat_batch;
typedef struct sprat_record sprat_record;

/* What sprat_comm_join() takes instead of the environment's value; zero and NULL mean that value.
 */
typedef struct sprat_config {
  int size;               /* Ranks of the job. If set, so is `rank`. */
  int rank;               /* This rank, from 0. */
  const char* rendezvous; /* tcp://host:port or file://path. */
  const char* host;       /* Name of this rank's host. */
  const char* token;      /* The job's shared secret. */
  int64_t join_timeout_ms;
  int64_t timeout_ms; /* Of one operation. */
} sprat_config;

/* How one operation is carried out; zero means the usual. NULL options are all zero. */
typedef struct sprat_options {
  int64_t timeout_ms; /* Deadline of this operation; 0: the configuration's. */
  int f32_output;     /* Reductions of narrower floats: `out` is f32, the sum is never rounded. */
} sprat_options;

SPRAT_C_API const char* sprat_version(void);
/* Why the last call on this thread failed; never null, empty before any failure. */
SPRAT_C_API const char* sprat_last_error(void);

/* Joins the job. config NULL: as the launcher and the environment say. Collective. */
SPRAT_C_API sprat_status sprat_comm_join(const sprat_config* config, sprat_comm** out);
/* Leaves. NULL is allowed. */
SPRAT_C_API sprat_status sprat_comm_free(sprat_comm* comm);
SPRAT_C_API sprat_status sprat_comm_rank(const sprat_comm* comm, int* out);
SPRAT_C_API sprat_status sprat_comm_size(const sprat_comm* comm, int* out);
/* Ranks of one color form a communicator ordered by (key, rank); color < 0: *out is NULL.
 * Collective. */
SPRAT_C_API sprat_status sprat_comm_split(sprat_comm* comm, int color, int key, sprat_comm** out);
/* The same ranks, with operations of their own. Collective. */
SPRAT_C_API sprat_status sprat_comm_duplicate(sprat_comm* comm, sprat_comm** out);
/* Collective over `ranks` alone, which become ranks 0, 1, ... of *out. Every member gives the same
 * list and name. */
SPRAT_C_API sprat_status sprat_comm_create_group(sprat_comm* comm, const int* ranks, size_t count,
                                                 const char* name, sprat_comm** out);
/* After a failure: the ranks that are left and call this too, in the same order. Waits for no dead
 * rank. SPRAT_unavailable if fewer than `at_least` are left. Of the world, which sprat_comm_join()
 * or this returned: a job of them, and all communicators of the old job fail. Of another: a
 * communicator of the same job, whose others go on. `comm` is still to be freed. */
SPRAT_C_API sprat_status sprat_comm_shrink(sprat_comm* comm, int at_least, sprat_comm** out);
/* *out has the ranks of `comm`, with the numbers that they have, and `newcomers` more after them,
 * which call sprat_comm_join_growing() with the same `rendezvous`: file://path, in a folder that
 * all see, or tcp://host:port of rank 0's host. A job of their own; `comm` stays as it is. Who does
 * not come within `patience_ms` (0: the configuration's join timeout) is named: SPRAT_timeout. */
SPRAT_C_API sprat_status sprat_comm_grow(sprat_comm* comm, int newcomers, const char* rendezvous,
                                         int64_t patience_ms, sprat_comm** out);
/* Joins a communicator that grows at config->rendezvous, or will do so within the join timeout. The
 * rest of `config` is as for sprat_comm_join(), but size and rank do not matter. */
SPRAT_C_API sprat_status sprat_comm_join_growing(const sprat_config* config, sprat_comm** out);
/* *out is what failed `comm`, and sprat_last_error() says it in words; SPRAT_ok while it is well.
 * Never blocks. */
SPRAT_C_API sprat_status sprat_comm_failure(sprat_comm* comm, sprat_status* out);
/* What this rank calls from here on belongs to this step, for `sprat diff`. Every rank calls it at
 * the same place. SPRAT_mismatch: SPRAT_DIGESTS_CHECK found that a rank has other results than the
 * others. */
SPRAT_C_API sprat_status sprat_comm_mark_step(sprat_comm* comm, int64_t step);
/* Fails `comm` on all its ranks, with `reason`; of the world: the whole job. */
SPRAT_C_API sprat_status sprat_comm_abort(sprat_comm* comm, const char* reason);
/* Ends what is under way on `comm`, on all its ranks, with SPRAT_aborted, and keeps the ranks:
 * sprat_comm_shrink() makes a new communicator of them. Others go on. `reason` may be NULL. */
SPRAT_C_API sprat_status sprat_comm_revoke(sprat_comm* comm, const char* reason);

/* right[i] <- left[i] op right[i], for i < count; `left` comes from lower ranks than `right`. It
 * must be associative; it need not be commutative. Runs on whichever thread drives the
 * communicator, and must not call Sprat. */
typedef void (*sprat_op_function)(const void* left, void* right, size_t count, sprat_dtype dtype,
                                  void* context);
/* A reduction of the caller's own, for any communicator of this process. Ranks must agree on
 * `name`; numbers may differ. Operations under way use `context` even after sprat_op_free(). */
SPRAT_C_API sprat_status sprat_op_create(const char* name, sprat_op_function function,
                                         void* context, sprat_op* out);
/* Multiplies each rank's contribution by `factor`, finite and equal on every rank, then adds up. */
SPRAT_C_API sprat_status sprat_op_create_premultiplied_sum(double factor, sprat_op* out);
SPRAT_C_API sprat_status sprat_op_free(sprat_op op);

/* Operations. `out` NULL: the call returns when the operation is done. Otherwise it returns once
 * the operation is queued, the buffers are the library's until sprat_work_wait(*out) returns, and
 * *out is to be freed. Every rank makes the same calls in the same order on a communicator. */

/* out <- op over ranks of in; `count` elements each. in == out is allowed. */
SPRAT_C_API sprat_status sprat_all_reduce(sprat_comm* comm, const void* in, void* out_data,
                                          size_t count, sprat_dtype dtype, sprat_op op,
                                          const sprat_options* options, sprat_work** out);
/* whole <- parts in rank order; `count` elements in a part, size * count in the whole. */
SPRAT_C_API sprat_status sprat_all_gather(sprat_comm* comm, const void* part, void* whole,
                                          size_t count, sprat_dtype dtype,
                                          const sprat_options* options, sprat_work** out);
/* part <- op over ranks of this rank's block of whole; `count` elements in a part. */
SPRAT_C_API sprat_status sprat_reduce_scatter(sprat_comm* comm, const void* whole, void* part,
                                              size_t count, sprat_dtype dtype, sprat_op op,
                                              const sprat_options* options, sprat_work** out);
/* data <- root's data. */
SPRAT_C_API sprat_status sprat_broadcast(sprat_comm* comm, void* data, size_t count,
                                         sprat_dtype dtype, int root, const sprat_options* options,
                                         sprat_work** out);
/* Block q of out <- this rank's block of rank q's in; `count` elements in a block. */
SPRAT_C_API sprat_status sprat_all_to_all(sprat_comm* comm, const void* in, void* out_data,
                                          size_t count, sprat_dtype dtype,
                                          const sprat_options* options, sprat_work** out);
/* With a root: a buffer that only the root has, and its counts, are not looked at elsewhere. */

/* Root's out <- op over ranks of in; `count` elements each. On the root, in == out is allowed. */
SPRAT_C_API sprat_status sprat_reduce(sprat_comm* comm, const void* in, void* out_data,
                                      size_t count, sprat_dtype dtype, sprat_op op, int root,
                                      const sprat_options* options, sprat_work** out);
/* Root's whole <- parts in rank order; `count` elements in a part. */
SPRAT_C_API sprat_status sprat_gather(sprat_comm* comm, const void* part, void* whole, size_t count,
                                      sprat_dtype dtype, int root, const sprat_options* options,
                                      sprat_work** out);
/* part <- this rank's block of root's whole; `count` elements in a part. */
SPRAT_C_API sprat_status sprat_scatter(sprat_comm* comm, const void* whole, void* part,
                                       size_t count, sprat_dtype dtype, int root,
                                       const sprat_options* options, sprat_work** out);

/* Blocks that differ in length: counts[r] elements for rank r, zero allowed, one block after the
 * other in rank order. */

/* whole <- parts in rank order. The same counts on every rank. */
SPRAT_C_API sprat_status sprat_all_gatherv(sprat_comm* comm, const void* part, void* whole,
                                           const size_t* counts, sprat_dtype dtype,
                                           const sprat_options* options, sprat_work** out);
/* part <- op over ranks of this rank's block of whole. The same counts on every rank. */
SPRAT_C_API sprat_status sprat_reduce_scatterv(sprat_comm* comm, const void* whole, void* part,
                                               const size_t* counts, sprat_dtype dtype, sprat_op op,
                                               const sprat_options* options, sprat_work** out);
/* Root's whole <- parts of `count` elements in rank order; only the root knows all counts. */
SPRAT_C_API sprat_status sprat_gatherv(sprat_comm* comm, const void* part, size_t count,
                                       void* whole, const size_t* counts, sprat_dtype dtype,
                                       int root, const sprat_options* options, sprat_work** out);
/* part, `count` elements, <- this rank's block of root's whole; only the root knows all counts. */
SPRAT_C_API sprat_status sprat_scatterv(sprat_comm* comm, const void* whole, const size_t* counts,
                                        void* part, size_t count, sprat_dtype dtype, int root,
                                        const sprat_options* options, sprat_work** out);
/* Block q of out <- this rank's block of rank q's in; in_counts[q] here is out_counts of this rank
 * there. in and out are disjoint. */
SPRAT_C_API sprat_status sprat_all_to_allv(sprat_comm* comm, const void* in,
                                           const size_t* in_counts, void* out_data,
                                           const size_t* out_counts, sprat_dtype dtype,
                                           const sprat_options* options, sprat_work** out);
/* Matched by (source, tag), in order. */
SPRAT_C_API sprat_status sprat_send(sprat_comm* comm, const void* data, size_t count,
                                    sprat_dtype dtype, int to, int tag,
                                    const sprat_options* options, sprat_work** out);
SPRAT_C_API sprat_status sprat_recv(sprat_comm* comm, void* data, size_t count, sprat_dtype dtype,
                                    int from, int tag, const sprat_options* options,
                                    sprat_work** out);
/* Returns once every rank has called it. */
SPRAT_C_API sprat_status sprat_barrier(sprat_comm* comm, const sprat_options* options);

/* Between begin and end, operations of this thread whose `out` is NULL are only started, on any
 * communicators; none waits for another. End waits for all of them, or hands one work for all to
 * *out. May be nested: the outermost end counts. */
SPRAT_C_API sprat_status sprat_group_begin(void);
SPRAT_C_API sprat_status sprat_group_end(sprat_work** out);

/* Blocks until done. The status is the operation's. */
SPRAT_C_API sprat_status sprat_work_wait(sprat_work* work);
/* *done <- 1 once done, else 0; makes a little progress. The status is the operation's. */
SPRAT_C_API sprat_status sprat_work_test(sprat_work* work, int* done);
/* Blocks until one of `works` is done, well or not: *index; sprat_work_wait() of it tells which. */
SPRAT_C_API sprat_status sprat_work_wait_any(sprat_work* const* works, size_t count, size_t* index);
/* *out <- the rank that sent, of a receive that is done; otherwise -1. */
SPRAT_C_API sprat_status sprat_work_source(sprat_work* work, int* out);
/* Does not cancel the operation. NULL is allowed. */
SPRAT_C_API sprat_status sprat_work_free(sprat_work* work);

/* Balanced fusion buffers: many small gradients reduced as a few large buffers, bit for bit as by
 * one all_reduce each, while the caller goes on computing. A step is: put every parameter, in any
 * order and from any threads; then flush, on every rank. Number parameters in the order in which
 * they come to be ready. One that is larger than a bucket is reduced where its data lie. */

/* Collective. counts[i] elements of dtypes[i] for parameter i; parameters share a buffer of at most
 * `bucket_bytes`, 0: 25 MiB. op: sum, avg or a premultiplied sum. The timeout is each buffer's, and
 * sprat_fusion_flush()'s. SPRAT_mismatch if ranks differ. */
SPRAT_C_API sprat_status sprat_fusion_create(sprat_comm* comm, const size_t* counts,
                                             const sprat_dtype* dtypes, size_t parameters,
                                             size_t bucket_bytes, sprat_op op,
                                             const sprat_options* options, sprat_fusion** out);
/* *data <- where a parameter lies in its buffer: what is computed right there is not copied. */
SPRAT_C_API sprat_status sprat_fusion_slot(sprat_fusion* fusion, size_t index, void** data);
/* Takes this step's values of a parameter. `data` is the library's until sprat_fusion_flush()
 * returns, which writes the result there. */
SPRAT_C_API sprat_status sprat_fusion_put(sprat_fusion* fusion, size_t index, void* data,
                                          size_t count, sprat_dtype dtype);
/* Collective. Returns when every result is where its data came from. *absent_count <- how many
 * parameters nobody has put in this step, which count as zero; the first `capacity` of their
 * indices are written to `absent`. SPRAT_mismatch if ranks have put different ones. `absent` may be
 * NULL if `capacity` is 0, `absent_count` may be NULL. */
SPRAT_C_API sprat_status sprat_fusion_flush(sprat_fusion* fusion, size_t* absent, size_t capacity,
                                            size_t* absent_count);
/* Between steps; in the midst of one it aborts the job. NULL is allowed. */
SPRAT_C_API sprat_status sprat_fusion_free(sprat_fusion* fusion);

/* Data for training: samples of files on storage, in an order that every restart continues exactly.
 * docs/data.md has the options, which are JSON. Loaders and batches need no communicator. A child
 * of fork() may only free what its parent opened, which then frees nothing. */

/* A part of a sample, as the loader's memory has it. */
typedef struct sprat_field {
  const char* name;
  const char* type; /* "bytes", "text", "json", or an element's: "u16", "f32" ... */
  const uint64_t*
      shape; /* Of elements; `dimensions` numbers, none for one element or no elements. */
  size_t dimensions;
  const void* data;
  size_t bytes;
} sprat_field;

/* One rank's part of a batch. */
typedef struct sprat_batch_info {
  uint64_t index;           /* Of the batches since the loader began, or resumed. */
  uint64_t first;           /* The run's sample that is this rank's first of it. */
  size_t samples;           /* Of this rank; may be 0. */
  const void* elements;     /* Windows and packed samples: rows of length + 1 tokens; else NULL. */
  size_t bytes;             /* Of all rows. */
  const char* element_type; /* "u16", "u32" ...; empty without elements. */
} sprat_batch_info;

/* Where one sample of a batch comes from. */
typedef struct sprat_sample_info {
  uint64_t epoch;
  size_t source;           /* Its place in the options' list. */
  uint64_t record;         /* In its source, counted over the files in the order of their names. */
  size_t fields;           /* Of a record. */
  const uint32_t* lengths; /* Of a packed sample: tokens of each document in it. */
  size_t documents;
} sprat_sample_info;

/* Works on a record before it is given, on the loader's threads, several at once, until the loader
 * is freed: `context` stays until then. Anything but 0 makes the record a corrupt one. */
typedef int (*sprat_decode_function)(sprat_record* record, void* context);
/* A stage of the caller's, between reading and the batch. */
typedef struct sprat_decode_stage {
  const char* name;
  sprat_decode_function function;
  void* context;
} sprat_decode_stage;

/* Opens the sources of the options and begins to read ahead. stages may be NULL if `count` is 0. */
SPRAT_C_API sprat_status sprat_loader_open(const char* options, const sprat_decode_stage* stages,
                                           size_t count, sprat_loader** out);
/* *out <- the next batch, to be freed; NULL after the last epoch. Waits for it. One thread of a
 * loader at a time, as for all that follows but sprat_loader_report(). */
SPRAT_C_API sprat_status sprat_loader_next(sprat_loader* loader, sprat_batch** out);
/* *out <- what was given so far, as JSON of less than 1 KB, equal on all ranks that took as many
 * batches. The text is the loader's until the next call. */
SPRAT_C_API sprat_status sprat_loader_state(sprat_loader* loader, const char** out);
/* Goes on behind a state, which a job of any number of ranks may have had. */
SPRAT_C_API sprat_status sprat_loader_resume(sprat_loader* loader, const char* state);
/* *out <- samples of an epoch: of a mixture, as many as all sources have. */
SPRAT_C_API sprat_status sprat_loader_samples_per_epoch(const sprat_loader* loader, uint64_t* out);
/* *out <- a number that is equal on ranks that see the same data. */
SPRAT_C_API sprat_status sprat_loader_fingerprint(const sprat_loader* loader, uint64_t* out);
/* What was observed since the last report, or since the loader began: *json <- one line, *text <-
 * one line for people. Either may be NULL. The texts are the loader's until the next report. Any
 * one thread at a time. */
SPRAT_C_API sprat_status sprat_loader_report(sprat_loader* loader, const char** json,
                                             const char** text);
/* A step of training has taken so long: reports then tell of steps that took much longer. */
SPRAT_C_API sprat_status sprat_loader_note_step(sprat_loader* loader, double seconds);
/* *out <- how files are read, and why so: one sentence, which is the loader's. */
SPRAT_C_API sprat_status sprat_loader_describe(sprat_loader* loader, const char** out);
/* Batches may outlive it. NULL is allowed. */
SPRAT_C_API sprat_status sprat_loader_free(sprat_loader* loader);

/* What the structures point to stays until sprat_batch_free(). */
SPRAT_C_API sprat_status sprat_batch_describe(const sprat_batch* batch, sprat_batch_info* out);
SPRAT_C_API sprat_status sprat_batch_sample(const sprat_batch* batch, size_t sample,
                                            sprat_sample_info* out);
SPRAT_C_API sprat_status sprat_batch_field(const sprat_batch* batch, size_t sample, size_t index,
                                           sprat_field* out);
/* The field of that name. */
SPRAT_C_API sprat_status sprat_batch_find(const sprat_batch* batch, size_t sample, const char* name,
                                          sprat_field* out);
/* Gives its memory back to the loader. NULL is allowed. */
SPRAT_C_API sprat_status sprat_batch_free(sprat_batch* batch);

/* Within a decode function: what a field points to stays until the record changes. */
SPRAT_C_API sprat_status sprat_record_fields(const sprat_record* record, size_t* out);
SPRAT_C_API sprat_status sprat_record_field(const sprat_record* record, size_t index,
                                            sprat_field* out);
SPRAT_C_API sprat_status sprat_record_find(const sprat_record* record, const char* name,
                                           sprat_field* out);
/* Copies `field` into the place of the one of its name, or adds it. */
SPRAT_C_API sprat_status sprat_record_set(sprat_record* record, const sprat_field* field);
SPRAT_C_API sprat_status sprat_record_remove(sprat_record* record, const char* name);
/* *out <- the sample's number in the run: random numbers of a stage begin here. */
SPRAT_C_API sprat_status sprat_record_sample(const sprat_record* record, uint64_t* out);

/* Zeroed, page-aligned memory that ranks on this host read in place: collectives on it are faster.
 * *data is its start. */
SPRAT_C_API sprat_status sprat_allocate(size_t bytes, sprat_memory** out, void** data);
/* NULL is allowed. */
SPRAT_C_API sprat_status sprat_free_memory(sprat_memory* memory);

#ifdef __cplusplus
}
#endif
