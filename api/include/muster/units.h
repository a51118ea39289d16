/* muster/units.h - parameters that are sharded over ranks: gathered when they are used, freed after it, their gradients reduced. C11.
 *
 * The model. A unit is the parameters that are gathered, used and reduced together: an embedding, one block. The units of a model
 * are a set (muster_units). Each rank keeps a shard of each parameter, and of its gradient. In a step the trainer says where its
 * forward and backward stand, and starts its own kernels. Muster gathers a unit before it is used, frees it afterwards, gathers the
 * next one meanwhile, and reduces gradients. All this runs on lanes that belong to the set:
 *
 *   muster_step_begin                             shards may be read
 *     muster_unit_forward_begin                -> a point: kernels that wait for it may read the whole parameters
 *       (kernels)
 *     muster_unit_forward_end                     after the last kernel that reads them
 *     ...
 *     muster_unit_backward_begin               -> two points: for whole parameters, and for whole gradients to be written
 *       (kernels)
 *     muster_unit_backward_end                 -> a point: the gradient shard may be read
 *   muster_step_end                            -> points: all gradient shards may be read
 *   (optimiser, over shards)
 *
 * The calls do not wait for work: a trainer may run a step ahead of its lanes. They wait only while the ring is full.
 *
 * Agreement. All ranks create the same units in the same order and make the same calls in the same order. Creation is local; the
 * first muster_step_begin compares. If a rank uses another unit than the others do, its gather or reduction is a MISMATCH: `tag`
 * is the unit's number plus 1. So is a reduction if a rank has more or fewer backwards or steps than others; its `tag` counts these
 * too. Create units in the order in which forward uses them. If muster_units_broadcast is called before the first step, that call
 * compares.
 *
 * Memory. The places of whole units are fixed by the first muster_step_begin, and never change. Together they are never larger than
 * the budget. Ranks whose parts of a unit differ in size all reserve what the largest part takes. Without a budget, modules at a
 * distance of at most `prefetch` share no memory. So a unit is gathered while the one before it is in use. With less memory the
 * prefetch is shallower: muster_units_query says how deep it is.
 *
 * Failure. A start that fails stops its lane, and the trainer hears of it from the point that it waits for. Then
 * muster_step_abandon makes the set ready for another step. A call for a unit, or muster_step_end, may fail in a step. BAD_ARGUMENT
 * changes nothing. Any other failure breaks the step: this rank aborts the groups of the units, so that others do not wait for it.
 * They get ABORTED, with its text. A figure or a broadcast that fails at one rank aborts its groups too, and needs muster_step_abandon.
 *
 * Rules and reference: fully_shard of torch.distributed (FSDP2). Where it gathers into a buffer and copies, a gather here lands in
 * the whole tensors, and a reduction reads from them.
 */
#ifndef MUSTER_UNITS_H
#define MUSTER_UNITS_H

#include <muster/layouts.h>
#include <muster/muster.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a set of units ------------------------------------------------------------------------------------------- */

typedef struct muster_units muster_units; /* opaque; belongs to its session, and is used by the session's thread */

enum {
  /* A unit may be reduced several times in a step, and its gradients add up. Costs memory of a gradient shard. */
  MUSTER_UNITS_ACCUMULATE = 1,
  /* Each unit has memory of its own for whole gradients, so that they can be kept over several backwards. */
  MUSTER_UNITS_KEEP_GRADIENTS = 2,
  /* The ranks of a node that share a unit have one whole copy between them, and their shards lie in it: nothing is gathered, nothing
   * moves, and no budget is needed. For units whose parameters are used in their own dtype, whose shards are one block each, and whose
   * `shard` has all its ranks on one node. Other units behave as without this flag. Either all groups of a `shard` lie on one node each,
   * or none does; otherwise the first muster_step_begin is MISMATCH. A SHARD view of a shared unit has the strides of the whole
   * parameter. Other ranks read these shards until their step has ended, so each step ends in a barrier of the ranks that share. Write
   * shards only after the points of muster_step_end, also after a step without gradients. These shards are a node-shared buffer. One
   * that was not given back, as after a kill, still has its contents: write all of it. */
  MUSTER_UNITS_SHARE_ON_NODE = 4,
  /* The set is this rank's alone: its units name no dim, and its layouts have no axes. No call waits for another rank. Without this
   * flag all ranks of the mesh make the set, also where nothing of it is sharded. */
  MUSTER_UNITS_ALONE = 8
};

typedef struct muster_units_options {
  uint32_t size;
  uint32_t flags;
  const char* name;       /* of its lanes, in reports: at most 47 bytes; NULL: "units". One for each set of a session. Copied */
  uint64_t budget_bytes;  /* for whole units and slices; 0: what `prefetch` needs                                          */
  uint32_t prefetch;      /* how many modules ahead units are gathered: 0..16                                              */
  uint32_t reduce_inputs; /* whole gradients of how many modules may wait for their reduction: 1..16                       */
} muster_units_options;
#define MUSTER_UNITS_OPTIONS_INIT {sizeof(muster_units_options), 0, NULL, 0, 1, 1}

/* Make an empty set. Local, asks nobody. options may be NULL. Errors: BAD_ARGUMENT. */
MUSTER_API muster_status_t muster_units_create(muster_session* session, const muster_units_options* options, muster_units** units);
/* Wait for the work of a set, then give it back with its memory and its lanes. Call it before muster_close. Memory that plans of the
 * caller use stays until the session ends. NULL is allowed. Errors: those of the wait, such as WAIT_TIMEOUT, and BUSY. Then call it
 * again; nothing else may be done with the set. */
MUSTER_API muster_status_t muster_units_destroy(muster_units* units);

typedef struct muster_units_info {
  uint32_t size;
  uint32_t units;
  uint32_t prefetch;             /* how deep it is: 0 until the first step                            */
  uint32_t order_changes;        /* steps whose forward was not that of the step before               */
  uint64_t budget_bytes;         /* as given; 0: none                                                 */
  uint64_t least_bytes;          /* the smallest budget of these units                                */
  uint64_t place_bytes;          /* memory for whole units and slices                                 */
  uint64_t gradient_bytes;       /* memory for whole gradients                                        */
  uint64_t shard_bytes;          /* memory for shards, their gradients, and copies in other dtypes    */
  uint64_t whole_bytes;          /* of whole units. Counted when a call is made, not when work is done */
  uint64_t whole_bytes_peak;
  uint64_t gathers, reductions;
  uint64_t prefetches;           /* gathers before the unit was asked for                             */
  uint64_t prefetches_skipped;   /* for want of memory                                                */
  uint64_t demands;              /* gathers that no prefetch had started                              */
  char warning[256];             /* the latest; empty if none                                         */
} muster_units_info;
#define MUSTER_UNITS_INFO_INIT {sizeof(muster_units_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}}
/* Local, asks nobody. Errors: BAD_ARGUMENT. */
MUSTER_API muster_status_t muster_units_query(muster_units* units, muster_units_info* info);

/* ---- units ----------------------------------------------------------------------------------------------------- */

typedef uint32_t muster_unit; /* its index in the set, in the order of creation */

enum {
  MUSTER_PARAMETER_FROZEN = 1, /* it has no gradient */
  /* Each rank along the unit's `tensor` computes only a part of the sum that is its gradient. So it is under sequence parallelism for
   * norms, biases after a row-parallel layer, and routers. The parts are summed before the gradient is reduced. */
  MUSTER_PARAMETER_SUMMED_OVER_TP = 2,
  /* Its replicas along dims of the mesh that its unit does not name are meant to differ: no rank compares them in a step. A
   * checkpoint takes those of one rank, with MUSTER_CHECKPOINT_REPLICAS_MAY_DIFFER. */
  MUSTER_PARAMETER_LOCAL = 4
};
typedef struct muster_parameter {
  const char* name; /* in reports and checkpoints: unique in the set, without control characters. Copied     */
  /* Over axes that are dims of the session's mesh. The axis of the unit's `shard` shards it. With that axis replicated, a rank has
   * its "whole" tensor: its tp part. Axes that the layout leaves out replicate. It may be destroyed after the call. */
  const muster_layout* layout;
  muster_dtype dtype; /* of the shard, its gradient and the optimiser */
  uint32_t flags;
} muster_parameter;

enum {
  /* Begins before all others in each step, and may stay open around them, as the root module of a model does. One at most. */
  MUSTER_UNIT_ROOT = 1,
  /* Backward does not read the parameters, as that of an embedding: they are not gathered for it. */
  MUSTER_UNIT_BACKWARD_WITHOUT_WHOLE = 2
};

/* The state of a unit after its forward. */
enum {
  MUSTER_RESHARD_DEFAULT = 0, /* NEVER for the root, ALWAYS for the others                             */
  MUSTER_RESHARD_ALWAYS = -1, /* it is freed, and gathered again for backward                          */
  MUSTER_RESHARD_NEVER = -2   /* it stays whole until its backward has ended                           */
  /* k >= 1: k consecutive ranks keep it between them, and gather it from each other for backward. k divides the size of `shard`.
   * k = 1 acts as NEVER, k = size of `shard` as ALWAYS. Not for parameters that another axis shards too. */
};

typedef struct muster_unit_options {
  uint32_t size;
  uint32_t flags;
  const char* name;      /* unique in the set; at most 47 bytes. Copied                                                   */
  const char* module;    /* units of one module are used together and created one after another; NULL: its name */
  const char* shard;     /* dim of the mesh over which it is sharded: "dp_shard_cp"; NULL: it is not    */
  const char* replicate; /* dim of the mesh over which gradients are reduced as well: "dp_replicate"; NULL: none */
  const char* tensor;    /* dim of the mesh for MUSTER_PARAMETER_SUMMED_OVER_TP: "tp"; NULL: none        */
  muster_dtype whole_dtype;  /* of whole parameters of floats; 0: each parameter's own                  */
  muster_dtype reduce_dtype; /* of whole gradients, and of their reduction; 0: the parameters'. Those of F64 are reduced as they are:
                              * UNSUPPORTED with MUSTER_UNITS_ACCUMULATE, another dtype, or a divisor that is left to a kernel  */
  int32_t after_forward;     /* MUSTER_RESHARD_*, or k                                                  */
  uint32_t parts;            /* how many places of the model use this unit (tied weights): 1..64. Forward and backward end
                              * when each part has ended */
  double divisor;            /* of the sum of gradients; 0: the ranks of shard x replicate              */
  const muster_parameter* parameters;
  uint32_t parameter_count;
  uint32_t reserved; /* 0 */
} muster_unit_options;
#define MUSTER_UNIT_OPTIONS_INIT \
  {sizeof(muster_unit_options), 0, NULL, NULL, NULL, NULL, NULL, 0, 0, MUSTER_RESHARD_DEFAULT, 1, 0.0, NULL, 0, 0}

/* Add a unit to the set and allocate its shards, zeroed. Local; asks the daemon. The trainable parameters of a unit have one dtype.
 * The shards of a unit lie in its whole tensors in pieces: a shard of dim 0 is one, one of dim 1 has a piece for each row. Those of all
 * ranks together are 4096 at most. Other axes, such as tp, may leave some ranks no part of a parameter: that is a warning
 * (muster_units_query). Errors: BAD_ARGUMENT naming unit, parameter, field and value (a parameter in two units, a k that does not
 * divide, a layout that does not fit, a `replicate`, or a `tensor` of summed gradients, whose ranks have different parts of a trainable
 * parameter), STATE (the first step has begun), NOT_FOUND (no such dim), NO_RESOURCE (pieces), those of muster_buffer_alloc. */
MUSTER_API muster_status_t muster_unit_create(muster_units* units, const muster_unit_options* options, muster_unit* unit);

enum {
  MUSTER_UNIT_SHARD = 0,          /* what this rank keeps of the parameter                                     */
  MUSTER_UNIT_GRADIENT_SHARD = 1, /* the reduced gradient of that; dtype and shape as the shard                */
  MUSTER_UNIT_WHOLE = 2,          /* valid between forward_begin and _end, and backward_begin and _end         */
  MUSTER_UNIT_WHOLE_GRADIENT = 3  /* kernels of a backward write it. In `reduce_dtype`                         */
};
/* A view of one parameter. The trainable parameters of one dtype lie end to end in the order of the unit's list, and so do the frozen
 * ones, also in each whole and in each shard; so neighbours can be one matrix. The first two views exist from creation, the others from
 * the first muster_step_begin on. Local, asks nobody. Errors: BAD_ARGUMENT (a frozen parameter has no gradient), STATE (too early). */
MUSTER_API muster_status_t muster_unit_tensor(muster_units* units, muster_unit unit, uint32_t parameter, int32_t which,
                                              muster_tensor* tensor);
/* The blocks of the parameter that a view of this rank has, as muster_layout_boxes. `which`: SHARD or WHOLE. */
MUSTER_API muster_status_t muster_unit_boxes(muster_units* units, muster_unit unit, uint32_t parameter, int32_t which,
                                             muster_box* boxes, size_t capacity, size_t* count);
/* The parameter's layout, for checkpoints and redistributions: the caller's, to be destroyed. Errors: BAD_ARGUMENT. */
MUSTER_API muster_status_t muster_unit_layout(muster_units* units, muster_unit unit, uint32_t parameter, muster_layout** layout);

/* ---- a step ---------------------------------------------------------------------------------------------------- */

enum {
  MUSTER_STEP_UNCHANGED = 1 /* shards are those of the step before: what is whole stays whole (evaluation) */
};
/* Begin a step, which is what lies between two changes of the parameters: several forwards and backwards are possible. `after`: the
 * point after which shards may be read and gradient shards written (the optimiser's last kernel); NONE: at once. It counts with
 * MUSTER_STEP_UNCHANGED too.
 *
 * Along each dim of the mesh but pp that has two ranks or more, each trained parameter is cut, or its unit names the dim (`shard`,
 * `replicate`, `tensor`), alone or within a product. Along tp it is enough that another trained parameter of the unit is cut: what lies
 * beside it, as a norm, has equal gradients there. Else replicas would train apart: BAD_ARGUMENT with unit, parameter and dim, unless
 * the parameter is MUSTER_PARAMETER_LOCAL. A set of one rank (MUSTER_UNITS_ALONE) may do as it likes.
 *
 * The first one of a set makes lanes, places, plans and the groups of int reshards, and compares the set with those of the
 * other ranks: it is a collective over the mesh without pp, and waits for it. All ranks get the same error, before anything moves.
 * Errors: MISMATCH (the units differ: field, values, ranks), NO_RESOURCE (a budget below the least; memory; plans), STATE (the step
 * before has not ended), any error of this call at another rank (its text names that rank), those of muster_run. */
MUSTER_API muster_status_t muster_step_begin(muster_units* units, muster_point after, uint32_t flags);
/* Forward reads the unit from `*ready` on. Gathers it if need be, and what is expected next. A unit that recomputes its forward in its
 * backward calls this too. Errors: STATE naming unit and reason (no step, the root not first, its memory holds a unit that is in use). */
MUSTER_API muster_status_t muster_unit_forward_begin(muster_units* units, muster_unit unit, muster_point* ready);
/* `part` (0..parts-1) has ended; `after`: the point of the last kernel that reads the unit; NONE: the caller has read it itself. */
MUSTER_API muster_status_t muster_unit_forward_end(muster_units* units, muster_unit unit, uint32_t part, muster_point after);
/* Backward of the latest forward of this unit that has no backward yet. Kernels wait for both points, where they are not NONE.
 * Whole gradients are undefined at first, unless they were kept. Errors: STATE (no forward before it; gradients that are kept
 * lie there). */
MUSTER_API muster_status_t muster_unit_backward_begin(muster_units* units, muster_unit unit, muster_point ready[2]);

enum {
  MUSTER_BACKWARD_KEEP_GRADIENTS = 1, /* reduce nothing now: later backwards add to the whole gradients        */
  MUSTER_BACKWARD_SHARDS_ONLY = 2,    /* reduce over `shard` now, over `replicate` with the step's last reduction */
  MUSTER_BACKWARD_KEEP_WHOLE = 4      /* do not free the parameters: another forward comes soon                */
};
/* `part` has ended. When all have, the gradients are reduced and the parameters are freed. *reduced (or NULL): the point after which
 * gradient shards may be read; NONE if nothing was reduced. Errors: STATE (no backward; a second reduction in a step without
 * MUSTER_UNITS_ACCUMULATE). */
MUSTER_API muster_status_t muster_unit_backward_end(muster_units* units, muster_unit unit, uint32_t part, muster_point after,
                                                    uint32_t flags, muster_point* reduced);
/* The backward under way has no gradient for the parameter: it adds zero to those of the step's other backwards. All ranks must say so,
 * before the unit's last muster_unit_backward_end. Errors: BAD_ARGUMENT (a frozen parameter), STATE (no backward). */
MUSTER_API muster_status_t muster_unit_unused(muster_units* units, muster_unit unit, uint32_t parameter);
/* End the step: what is still open ends at `after`. Gradients that were kept are reduced. done[]: all gradient shards may be read after
 * these points (NONE entries count as reached), and with MUSTER_UNITS_SHARE_ON_NODE shards may be written. A unit of which some part
 * never ran is a warning (muster_units_query). Errors: STATE (no step; gradients that were reduced over `shard` alone, when the step
 * has ended all the same). */
MUSTER_API muster_status_t muster_step_end(muster_units* units, muster_point after, muster_point done[2]);
/* Give the step up after a failure: wait for what it started, reset the set's lanes, forget what is whole. Then meet the other ranks on
 * each lane and group of the set: those of its units, and "weight", "pp" and the dims of muster_units_broadcast. So all ranks of the
 * mesh call it, of all stages, and all begin the next step together. The wait has the job's default deadline. Before the first step it
 * does nothing. Errors: PEER_LOST (a member is gone: give the set back, and make another one over the ranks that are left), those of
 * waiting for the session. The next muster_run on a group that was aborted still returns ABORTED, once. */
MUSTER_API muster_status_t muster_step_abandon(muster_units* units);

/* Between muster_step_end and the optimiser: out (F64[1]) = the sum of squares of all gradient shards, each element counted once. A
 * parameter that is replicated over a dim is counted on one rank of that dim. The same number on all ranks. Its root is the norm to
 * clip by. It is infinite or NaN if any gradient of any rank is, also where it is not counted. So it is the check for overflow too: it
 * adds in F64, which finite gradients of F32, BF16 and F16 do not overflow. A collective over "weight", "pp", and "domain" and
 * "dp_replicate" where they cut a parameter. *done: the point at which it is there. Errors: BAD_ARGUMENT (out), STATE (in a step, or
 * before the first), UNSUPPORTED (a parameter that is sharded over a part of a dim, as over efsdp where ep > 1). */
MUSTER_API muster_status_t muster_units_square_sum(muster_units* units, const muster_tensor* out, muster_point* done);
/* Likewise: out (F64[2]) = how many elements of all gradients are zero (-0.0 is, a NaN is not), and how many elements there are, each
 * counted once. Frozen parameters have none. A collective, with the errors of muster_units_square_sum. Reference: count_zeros_fp32 of
 * Megatron-LM. */
MUSTER_API muster_status_t muster_units_zero_count(muster_units* units, const muster_tensor* out, muster_point* done);

/* Make replicas equal: each rank gets the shards of the first rank that should have the same ones. For trainers that load or draw
 * parameters on some ranks alone. The first rank has coordinate 0 along each dim of the mesh, but "pp", that does not cut the
 * parameter. So what tp cuts goes over "dp_replicate", from one rank to others of its tp coordinate; what tp does not cut goes over
 * "tp" too. Parameters that are frozen go as well; gradients, and what the optimiser keeps, stay as they are.
 *
 * All ranks of the set call it between two steps, or before the first one. Then it begins with what the first muster_step_begin would
 * do, and may fail as that. `after`: the point after which shards may be read and written; NONE: at once. *done: the point after which
 * shards may be read; the next step waits for it by itself. A collective over the dims. Errors: BAD_ARGUMENT (done), STATE (in a step),
 * UNSUPPORTED (as muster_units_square_sum), those of muster_step_begin. Reference: init_sync of PyTorch's
 * DistributedDataParallel. */
MUSTER_API muster_status_t muster_units_broadcast(muster_units* units, muster_point after, muster_point* done);

/* ---- beyond the usual ------------------------------------------------------------------------------------------ */

/* This unit's shards change, and may be read after `after`. The next gather waits for that point and for that of muster_step_begin; with
 * MUSTER_STEP_UNCHANGED the unit is gathered all the same. So a unit can be gathered for the next step while
 * others are still updated. Call it between two steps. Errors: BAD_ARGUMENT (no such unit), STATE (in a step, or before the first). */
MUSTER_API muster_status_t muster_unit_changed(muster_units* units, muster_unit unit, muster_point after);
/* Gather, and keep whole until muster_unit_reshard; free when `after` is reached. Errors of both: BAD_ARGUMENT (no such unit; ready is
 * NULL), STATE naming unit and reason (no step; its memory holds a unit that is in use; its forward or backward has not ended). */
MUSTER_API muster_status_t muster_unit_unshard(muster_units* units, muster_unit unit, muster_point* ready);
MUSTER_API muster_status_t muster_unit_reshard(muster_units* units, muster_unit unit, muster_point after);
/* Set the units to gather when this unit's forward (backward: 0), or backward (1), begins, in this order. They replace the
 * prediction from the order of use. Copied. A unit whose place is taken is not prefetched, nor are those after it. Call it after
 * the first muster_step_begin. Errors: BAD_ARGUMENT (no such unit, also in `next`), STATE (before the first step). */
MUSTER_API muster_status_t muster_unit_prefetch(muster_units* units, muster_unit unit, int32_t backward, const muster_unit* next,
                                                size_t count);
/* Change to MUSTER_RESHARD_ALWAYS or _NEVER from now on. A unit that was not created with NEVER may lose its place to another one, and
 * is gathered again then. Errors: BAD_ARGUMENT (another value; no such unit), STATE (before the first step). */
MUSTER_API muster_status_t muster_unit_set_reshard(muster_units* units, muster_unit unit, int32_t after_forward);

#ifdef __cplusplus
}
#endif
#endif /* MUSTER_UNITS_H */
