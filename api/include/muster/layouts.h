/* muster/layouts.h - which part of a tensor each rank has, and plans that carry a tensor from one layout to another. C11.
 *
 * The model. A tensor lies over a mesh, which is an array of ranks with some axes. A rank is the row-major index of its
 * coordinates along the axes, and that is its index in the group. Along each axis the tensor is
 *
 *   replicated   each rank along the axis has the same;
 *   sharded      one dim of the tensor is divided among the ranks along the axis;
 *   partial      each rank along the axis has an addend, and the tensor is their reduction.
 *
 * A rank's array is the tensor with each sharded dim cut. The rank's parts of a dim lie end to end in it. Shards may be uneven,
 * and empty. Several axes may shard one dim: then they cut it one after another, by default the innermost axis first. Each
 * divides what the cuts before have left at that coordinate. This is what FSDP with tensor parallelism does: tp cuts, then FSDP
 * cuts what tp left, so each rank has consecutive rows (a strided shard of torch.distributed).
 *
 * For 9 rows, dp_shard 4 and tp 2: tp rank 0 has rows 0 to 4, and its FSDP ranks have 0-1, 2-3, 4 and none.
 */
#ifndef MUSTER_LAYOUTS_H
#define MUSTER_LAYOUTS_H

#include <muster/muster.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MUSTER_LAYOUT_AXES_MAX 8

typedef int32_t muster_placement;
enum { MUSTER_REPLICATE = 0, MUSTER_SHARD = 1, MUSTER_PARTIAL = 2 };

/* How n items are divided among k ranks. Rank r has: */
typedef int32_t muster_split;
enum {
  MUSTER_SPLIT_CEIL = 0,     /* items r·c up to (r+1)·c, with c = n/k rounded up. The last ranks may have none. FSDP2, DTensor */
  MUSTER_SPLIT_BALANCED = 1, /* n/k rounded down, and one more if r < n mod k. DeepSpeed's AutoTP                              */
  MUSTER_SPLIT_ALIGNED = 2,  /* as BALANCED, over units of `grain` items: whole attention heads. The rest goes to the last rank */
  MUSTER_SPLIT_GIVEN = 3     /* lengths[r]                                                                                     */
};

/* In which order the axes that shard one dim cut it. */
typedef int32_t muster_cut_order;
enum {
  MUSTER_CUT_INNERMOST_FIRST = 0,
  MUSTER_CUT_OUTERMOST_FIRST = 1 /* what torch.distributed means by Shard, Shard */
};

/* One axis. Fields that its placement does not use must be 0 or NULL. The lists are copied. */
typedef struct muster_layout_axis {
  const char* name; /* if `ranks` is 0: a dim of the session's mesh, "dp_shard_cp". Else a label in messages, or NULL; checkpoints match it
                     * with the mesh's dims too (muster_checkpoint_tensor) */
  int32_t ranks;    /* 0: the size of that dim                                                                       */
  muster_placement placement;
  int32_t dim;                 /* SHARD: of the tensor                                                               */
  muster_split split;          /* SHARD                                                                              */
  int64_t grain;               /* ALIGNED: 1 or more                                                                 */
  const int64_t* lengths;      /* GIVEN: one for each rank; together they are what is left of the dim               */
  const int64_t* fused;        /* SHARD: the dim is several tensors end to end, as fused QKV is, of so many items each. Each of
                                * them is divided separately; a rank's parts lie end to end. NULL: it is one tensor  */
  uint32_t length_count;
  uint32_t fused_count;        /* at most 1024                                                                       */
  muster_redop redop;          /* PARTIAL: any but PREMUL_SUM                                                        */
  uint32_t reserved;           /* 0                                                                                  */
} muster_layout_axis;

typedef struct muster_layout_options {
  uint32_t size;
  int32_t dims; /* 0..8; 0 is a scalar */
  int64_t shape[MUSTER_TENSOR_DIMS_MAX]; /* of the whole tensor, outermost dim first */
  uint32_t axis_count;                   /* 0..8; without axes one rank has all      */
  muster_cut_order order;
  muster_layout_axis axes[MUSTER_LAYOUT_AXES_MAX]; /* outermost first */
} muster_layout_options;
#define MUSTER_LAYOUT_AXIS_INIT {NULL, 0, MUSTER_REPLICATE, 0, MUSTER_SPLIT_CEIL, 0, NULL, NULL, 0, 0, 0, 0}
#define MUSTER_LAYOUT_OPTIONS_INIT                                                                                        \
  {                                                                                                                       \
    sizeof(muster_layout_options), 0, {0, 0, 0, 0, 0, 0, 0, 0}, 0, MUSTER_CUT_INNERMOST_FIRST, {                          \
      MUSTER_LAYOUT_AXIS_INIT, MUSTER_LAYOUT_AXIS_INIT, MUSTER_LAYOUT_AXIS_INIT, MUSTER_LAYOUT_AXIS_INIT,                 \
          MUSTER_LAYOUT_AXIS_INIT, MUSTER_LAYOUT_AXIS_INIT, MUSTER_LAYOUT_AXIS_INIT, MUSTER_LAYOUT_AXIS_INIT              \
    }                                                                                                                     \
  }

/* Opaque. It never changes, so several threads may read one. It belongs to no session, and may outlive the one that told it the
 * sizes of mesh dims. */
typedef struct muster_layout muster_layout;

/* A block of the tensor, and where it lies in the rank's array. Entries from the tensor's number of dims on are 0. */
typedef struct muster_box {
  int64_t offset[MUSTER_TENSOR_DIMS_MAX]; /* of its first element, in the tensor      */
  int64_t length[MUSTER_TENSOR_DIMS_MAX];
  int64_t at[MUSTER_TENSOR_DIMS_MAX];     /* of its first element, in the rank's array */
} muster_box;

/* Check and keep. Local; every rank computes the same, and the same sentence if it is refused. `session` may be NULL if no axis
 * takes its size from the mesh; else that asks the daemon the first time. A layout keeps the sizes of the mesh that the session
 * uses at this moment (muster_mesh_use). On failure *layout is NULL.
 * Errors: BAD_ARGUMENT naming axis, field and value (a shape of 2^63 elements or more, more than 65536 ranks, lengths that do not
 * add up to what is left of the dim, cuts into more than 65536 boxes of a rank, two axes of one name, two dims of the mesh of which
 * one has ranks of the other, as dp_shard_cp and cp), NOT_FOUND (no such dim of the mesh), and what ended the session if it has
 * ended. */
MUSTER_API muster_status_t muster_layout_create(muster_session* session, const muster_layout_options* options,
                                                muster_layout** layout);
/* NULL is allowed. Plans that were made with it live on. */
MUSTER_API muster_status_t muster_layout_destroy(muster_layout* layout);

/* These compute: no session, no question to the daemon. Errors: BAD_ARGUMENT (NULL, a rank that the layout does not have).
 *
 * The number of ranks: the product of the axes'. */
MUSTER_API muster_status_t muster_layout_ranks(const muster_layout* layout, int32_t* ranks);
/* The shape of a rank's array: MUSTER_TENSOR_DIMS_MAX entries are written, 0 from the tensor's number of dims on. */
MUSTER_API muster_status_t muster_layout_local_shape(const muster_layout* layout, int32_t rank, int64_t* shape);
/* The blocks that a rank has, in the row-major order of its array. There is one, except where a fused dim makes it several, and
 * none for a rank that has no element. `boxes` holds `capacity` entries; *count gets the number of boxes, also where they are
 * more. */
MUSTER_API muster_status_t muster_layout_boxes(const muster_layout* layout, int32_t rank, muster_box* boxes, size_t capacity,
                                                size_t* count);

/* Plan to carry a tensor from one layout to another: `source` is this rank's array in `from`, `target` in `to`. All members of
 * the group make such a plan, with the same two layouts, and start or run it as a collective. It is a collective's plan:
 *
 *  one EXCHANGE    where no addends are reduced: any change of shards and replicas, also of their mesh. A rank takes from itself
 *                  what it has already. Replicas share the sending of what all of them have. The views may have any strides. Where
 *                  source and target are the same place, what stays there moves nothing; all else must lie apart.
 *  one ALL_REDUCE  where addends are reduced, by one reduction, and each rank keeps all of its array: partial to replicate.
 *  one REDUCE_SCATTER  the same where each rank keeps a part of its array, evenly or not: partial to shard. Blocks are cut in pieces
 *                  where parts are not rows. Several partial axes are reduced as one. Both arrays without gaps.
 *
 * The last two are among the ranks along the partial axes. If these are not all ranks of the group, the mesh that the session uses
 * must have them as a group: of an axis's name, or of a dim such as "dp_cp".
 * A rank that gives and gets nothing takes part all the same. An axis that is partial in both layouts, by the same reduction, stays
 * so. Local, as muster_plan_collective: ranks may plan in any order, and layouts that differ are a MISMATCH of the start.
 * Errors: BAD_ARGUMENT (other dtypes; a view whose shape is not that of muster_layout_local_shape; layouts of other shapes, or
 * of other numbers of ranks than the group has; a sharded axis that would become partial, or any axis by another reduction than
 * SUM and AVG), UNSUPPORTED (more than one operation is needed: the text names them in their order; the mesh has no such group),
 * those of muster_plan_collective, and, at all ranks alike, NO_RESOURCE (more faces at some rank than one EXCHANGE has, more than
 * 4096 pieces). */
MUSTER_API muster_status_t muster_plan_redistribution(muster_session* session, muster_group group, const muster_layout* from,
                                                      const muster_tensor* source, const muster_layout* to,
                                                      const muster_tensor* target, muster_plan* plan);

#ifdef __cplusplus
}
#endif
#endif /* MUSTER_LAYOUTS_H */
