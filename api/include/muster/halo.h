/* muster/halo.h - fields over ranks: what a rank needs of its neighbours for a convolution and its like, and sets of halos that
 * exchange it while kernels run. C11.
 *
 * The model. A field is a tensor in a layout (layouts.h) whose spatial dims are cut over the ranks of a group, evenly or not, in one
 * dim or in several: one axis for each. A *stencil* is a layout and the *windows* of an operator, one for each dim. It says for each
 * rank which results are its own, and what these read. A rank *holds* one array: its own items, and around them the *ghosts* that its
 * results read. So ghosts lie where the kernel reads them, and nothing is packed. Pads of zeros are not held: kernels know them by
 * global coordinates. Items that circular, reflected or replicated pads repeat are ghosts, also where the rank has them itself.
 *
 * A set of halos (muster_halos) is what one model exchanges: a halo for each place where it does. One call starts a place's exchange
 * on a lane of class HALO, its *interior* kernels, which read no ghost, beside it, and then its *boundary* kernels.
 *
 * In the layout, dims may also be cut that have no window (a batch), and axes may hold replicas: a rank's neighbours have the same
 * coordinates along them. A shard may be narrower than its halo, or empty: then ghosts come from further ranks. */
#ifndef MUSTER_HALO_H
#define MUSTER_HALO_H

#include <muster/layouts.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- stencils -------------------------------------------------------------------------------------------------- */

/* Which of a dim's N items a result o reads. E = dilation·(kernel-1)+1. Where fields are named, others must be as in INIT. */
typedef int32_t muster_window_kind;
enum {
  MUSTER_WINDOW_EACH = 0,        /* item o                                                                               */
  MUSTER_WINDOW_WHOLE = 1,       /* `length` results, and each reads all items: the channels of a convolution. Not cut   */
  MUSTER_WINDOW_CONVOLUTION = 2, /* (N+before+after-E)/stride+1 results; E items from o·stride-before on. kernel, stride,
                                  * dilation, before, after, pad                                                         */
  MUSTER_WINDOW_POOL = 3,        /* likewise, with pads of zeros; `ceil`: rounded up, if the last window begins before N+before */
  MUSTER_WINDOW_TRANSPOSED = 4,  /* (N-1)·stride-before-after+E+extra results; the items i for which o is one of the E results from
                                  * i·stride-before on. kernel, stride, dilation, before, after, extra                   */
  MUSTER_WINDOW_NEAREST = 5,     /* from here on: `length` results, or N·scale rounded down. The item at o·N/length      */
  MUSTER_WINDOW_NEAREST_EXACT = 6,  /* the item at (o+1/2)·N/length                                                      */
  MUSTER_WINDOW_LINEAR = 7,         /* the two items around the result's centre, or the one at it                        */
  MUSTER_WINDOW_LINEAR_ALIGNED = 8, /* likewise, with the first and the last result on the first and the last item       */
  MUSTER_WINDOW_CUBIC = 9,          /* the four items around it                                                          */
  MUSTER_WINDOW_AREA = 10           /* all items that the result covers; by `length` alone                               */
};

/* The items before 0 and from N on. */
typedef int32_t muster_pad;
enum {
  MUSTER_PAD_ZEROS = 0,
  MUSTER_PAD_CIRCULAR = 1,  /* a CONVOLUTION alone has this and the next two. The field once more; pads of at most N */
  MUSTER_PAD_REFLECT = 2,   /* the field backwards, without its first and last item; pads of at most N-1             */
  MUSTER_PAD_REPLICATE = 3  /* the first and the last item                                                           */
};

typedef struct muster_window {
  muster_window_kind kind;
  muster_pad pad;
  int64_t kernel, stride, dilation; /* 1 or more                                                             */
  int64_t before, after;            /* pads; TRANSPOSED: what is cropped of the result                       */
  int64_t extra;                    /* TRANSPOSED: below stride or dilation (output_padding of PyTorch)      */
  int64_t length;                   /* of the result                                                         */
  double scale;                     /* interpolations, if length is 0                                        */
  const int64_t* lengths;           /* how many results each rank along the axis has: those of a skip connection, which the results
                                     * are added to. NULL: the results whose windows are centred in the rank's items. Copied */
  uint32_t length_count;
  int32_t ceil;                     /* POOL: 0 or 1                                                          */
} muster_window;
#define MUSTER_WINDOW_INIT {MUSTER_WINDOW_EACH, MUSTER_PAD_ZEROS, 1, 1, 1, 0, 0, 0, 0, 0.0, NULL, 0, 0}
/* A convolution's window along one dim. */
static inline muster_window muster_window_convolution(int64_t kernel, int64_t stride, int64_t dilation, int64_t before, int64_t after,
                                                      muster_pad pad) {
  muster_window window = MUSTER_WINDOW_INIT;
  window.kind = MUSTER_WINDOW_CONVOLUTION;
  window.pad = pad;
  window.kernel = kernel;
  window.stride = stride;
  window.dilation = dilation;
  window.before = before;
  window.after = after;
  return window;
}

typedef struct muster_stencil_options {
  uint32_t size;
  uint32_t layers;              /* 1 to 64. Several: operators one after the other that share one exchange, of deep halos. Each rank
                                 * computes the results of the layers between that it needs (muster_stencil_boxes). Pads of zeros      */
  const muster_layout* layout;  /* of the items. Copied                                                                             */
  const muster_window* windows; /* layers × the layout's dims: those of the first layer, one for each dim, then those of the next.
                                 * `lengths` of the last layer's alone. Copied                                                      */
} muster_stencil_options;
#define MUSTER_STENCIL_OPTIONS_INIT {sizeof(muster_stencil_options), 1, NULL, NULL}

/* Opaque. It never changes, so several threads may read one. It belongs to no session. */
typedef struct muster_stencil muster_stencil;

/* Check and keep. Local; every rank computes the same, and the same sentence if it is refused. On failure *stencil is NULL.
 * Errors: BAD_ARGUMENT naming dim, field and value (a kernel, stride or dilation below 1, pads wider than the field, lengths that do
 * not add up to the result), UNSUPPORTED (a dim with a window that two axes cut, or whose shards are fused; a cut dim that each result
 * reads whole; a partial layout; pads other than zeros in several layers). */
MUSTER_API muster_status_t muster_stencil_create(const muster_stencil_options* options, muster_stencil** stencil);
/* The other way: its items are the results of `stencil`, its results the items. A rank reads the gradients of all results that read
 * its items. From these it computes its items' gradients whole, and adds nothing of others: in the order in which one rank would.
 * Errors: UNSUPPORTED (several layers, pads other than zeros). */
MUSTER_API muster_status_t muster_stencil_gradient(const muster_stencil* stencil, muster_stencil** gradient);
/* NULL is allowed. Halos that were made with it live on. */
MUSTER_API muster_status_t muster_stencil_destroy(muster_stencil* stencil);
/* The layout of the results, for the next operator; to be destroyed as any layout. */
MUSTER_API muster_status_t muster_stencil_result(const muster_stencil* stencil, muster_layout** layout);

/* How the ghosts come that lie beside a rank in two dims or more. */
typedef int32_t muster_corners;
enum {
  MUSTER_CORNERS_DIRECT = 0, /* from their owners, in one exchange: 8 neighbours in two dims, 26 in three               */
  MUSTER_CORNERS_BY_DIMS = 1 /* an exchange for each dim, each of what the ones before have brought too: 2 neighbours each */
};

/* One rank's part. In coordinates of the field; entries from its number of dims on are 0. `needed` and `held` may begin before 0, in
 * a pad. */
typedef struct muster_halo_box {
  int64_t offset[MUSTER_TENSOR_DIMS_MAX];
  int64_t length[MUSTER_TENSOR_DIMS_MAX];
} muster_halo_box;
typedef struct muster_halo_info {
  uint32_t size;
  int32_t dims;
  muster_halo_box own;      /* its items                                                              */
  muster_halo_box needed;   /* what its results read                                                  */
  muster_halo_box held;     /* the array that has both; its shape is held.length                      */
  muster_halo_box results;
  muster_halo_box interior; /* the results that read nothing but own items                            */
  int64_t elements_in;      /* ghosts that come from other ranks, in elements of the field            */
  int64_t elements_out;
  uint32_t gets, gives;     /* segments, those to itself among them. One EXCHANGE takes 680 together  */
  uint32_t phases;          /* exchanges, one after the other                                         */
  uint32_t reserved;
} muster_halo_info;
#define MUSTER_HALO_INFO_INIT {sizeof(muster_halo_info), 0, {{0}, {0}}, {{0}, {0}}, {{0}, {0}}, {{0}, {0}}, {{0}, {0}}, 0, 0, 0, 0, 0, 0}

/* A block that travels. */
typedef struct muster_segment {
  int32_t peer;                         /* the other end, a rank of the layout; perhaps this one: in a pad       */
  uint32_t phase;
  int64_t from[MUSTER_TENSOR_DIMS_MAX]; /* its first element, in the array that the giver holds                  */
  int64_t at[MUSTER_TENSOR_DIMS_MAX];   /* and in the one that the getter holds                                  */
  int64_t length[MUSTER_TENSOR_DIMS_MAX];
} muster_segment;

/* These compute: no session, no question to anybody. Errors: BAD_ARGUMENT (NULL, a rank that the layout does not have, corners),
 * NO_RESOURCE (more than 65536 segments). */
MUSTER_API muster_status_t muster_stencil_query(const muster_stencil* stencil, int32_t rank, muster_corners corners,
                                                muster_halo_info* info);
/* The results that read ghosts, as boxes that do not overlap (`layer` -1), or the results of a layer but the last that the rank
 * computes (one box). `boxes` holds `capacity` entries; *count gets the number of boxes, also where they are more. */
MUSTER_API muster_status_t muster_stencil_boxes(const muster_stencil* stencil, int32_t rank, int32_t layer, muster_halo_box* boxes,
                                                size_t capacity, size_t* count);
/* The segments that the rank gets (gives 0), or gives (1): by phase, by peer, and by where it lands, so that both ends count alike. */
MUSTER_API muster_status_t muster_stencil_segments(const muster_stencil* stencil, int32_t rank, muster_corners corners, int32_t gives,
                                                   muster_segment* segments, size_t capacity, size_t* count);

/* ---- sets of halos --------------------------------------------------------------------------------------------- */

/* The halos of one model: a halo for each place in it where ranks exchange. All members of the group make such a set, with the same
 * halos in the same order, and start the same ones in the same order. Opaque; used by the session's thread. */
typedef struct muster_halos muster_halos;
typedef uint32_t muster_halo; /* an index in its set */

typedef struct muster_halos_options {
  uint32_t size;
  muster_group group; /* the ranks of the stencils' layouts, in their order: muster_mesh_group(session, "domain", ...) */
  const char* name;   /* of its lane, in reports: at most 47 bytes; NULL: "halos". Each set of a session has another. Copied */
} muster_halos_options;
#define MUSTER_HALOS_OPTIONS_INIT {sizeof(muster_halos_options), MUSTER_GROUP_SELF, NULL}

/* How gradients cross the cuts. */
typedef int32_t muster_halo_gradients;
enum {
  MUSTER_HALO_FORWARD_ONLY = 0,
  MUSTER_HALO_RETURN = 1, /* those of ghosts go back to their owners, who add them: their own first, then by rank, and of one rank in
                           * the order of its ghosts. They land in memory of the set, so nothing is overwritten              */
  MUSTER_HALO_FETCH = 2   /* those of the results that read a rank's items come to it: as a forward exchange of the gradient stencil */
};

/* Kernels of one pass, as plans (muster_plan_kernel) that start in this order on the halo's lane. The lists are copied; the plans
 * stay the caller's, and must outlive the halo. */
typedef struct muster_halo_kernels {
  const muster_plan* interior; /* they run while ghosts travel. RETURN: they touch no gradient of a ghost                      */
  const muster_plan* boundary; /* forward and FETCH: they run when ghosts have come. RETURN: they run first, and then the
                                * gradients of all ghosts are complete                                                         */
  uint32_t interior_count;
  uint32_t boundary_count;
} muster_halo_kernels;
#define MUSTER_HALO_KERNELS_INIT {NULL, NULL, 0, 0}

typedef struct muster_halo_options {
  uint32_t size;
  muster_lane lane;              /* of the kernels                                                                                  */
  const char* name;              /* for messages and traces; 47 bytes at most. Copied                                               */
  const muster_stencil* stencil; /* Copied                                                                                          */
  muster_corners corners;
  muster_halo_gradients gradients;
  muster_tensor held;            /* the array that the rank holds: any strides. Its ghosts are written by each forward              */
  muster_tensor held_gradients;  /* RETURN: of the same shape; F32, BF16 or F16. FETCH: the array that the rank holds of the gradient
                                  * stencil, with the gradients of its results in it                                                */
  muster_halo_kernels forward;
  muster_halo_kernels backward;
} muster_halo_options;
#define MUSTER_HALO_OPTIONS_INIT                                                                                            \
  {                                                                                                                         \
    sizeof(muster_halo_options), MUSTER_LANE_COMPUTE, NULL, NULL, MUSTER_CORNERS_DIRECT, MUSTER_HALO_FORWARD_ONLY,          \
        {0, 0, 0, 0, {0}, {0}}, {0, 0, 0, 0, {0}, {0}}, MUSTER_HALO_KERNELS_INIT, MUSTER_HALO_KERNELS_INIT                  \
  }

typedef struct muster_halos_info {
  uint32_t size;
  uint32_t halos;
  uint64_t forward_bytes_in;   /* from other ranks, in one forward of every halo; likewise below */
  uint64_t forward_bytes_out;
  uint64_t backward_bytes_in;
  uint64_t backward_bytes_out;
  uint64_t inbox_bytes;        /* memory of the rank where returned gradients land               */
  uint64_t exchanges;          /* that this rank has started                                     */
} muster_halos_info;
#define MUSTER_HALOS_INFO_INIT {sizeof(muster_halos_info), 0, 0, 0, 0, 0, 0, 0}

/* Local: no other rank hears of it before the first start. Errors: BAD_ARGUMENT (a group without this rank, a name), STALE (group). */
MUSTER_API muster_status_t muster_halos_create(muster_session* session, const muster_halos_options* options, muster_halos** halos);
/* Waits for what is in flight. NULL is allowed. Errors: BUSY. */
MUSTER_API muster_status_t muster_halos_destroy(muster_halos* halos);
MUSTER_API muster_status_t muster_halos_query(muster_halos* halos, muster_halos_info* info);
/* Add a halo; before the first start. Local. Errors: BAD_ARGUMENT naming halo and field (a layout of another number of ranks than the
 * group has; an array whose shape is not that of held.length; dtypes), STATE (the set has started), UNSUPPORTED (FETCH where the
 * stencil has no gradient), NO_RESOURCE. */
MUSTER_API muster_status_t muster_halo_create(muster_halos* halos, const muster_halo_options* options, muster_halo* halo);

/* Start a halo's forward: its exchange, its interior kernels beside that, and then its boundary kernels. Asynchronous. after: the
 * point at which the rank's items are there, and the last use of its ghosts is over; NONE: now. *done: the point at which all that has
 * run, and the neighbours have read: then the array may be written or freed. An array that is computed anew, as where activations are
 * recomputed, is exchanged again by another forward.
 *
 * The first start of a set compares the sets of all ranks, and waits for them: MISMATCH at all of them if these differ, and the
 * refusal of the first rank that was refused anything (memory, or more than 680 faces: NO_RESOURCE). Then no byte has moved. Later a
 * rank that fails alone aborts the group, so that the others hear of it; then all call muster_halos_abandon. Errors: BAD_ARGUMENT (no
 * such halo), those of muster_plan_start, and, at the first start, those of muster_object_gather. */
MUSTER_API muster_status_t muster_halo_forward(muster_halos* halos, muster_halo halo, muster_point after, muster_point* done);
/* Start its backward likewise. *done: the point at which the gradients of the rank's own items are whole. Errors: STATE (the halo is
 * forward only), as above. */
MUSTER_API muster_status_t muster_halo_backward(muster_halos* halos, muster_halo halo, muster_point after, muster_point* done);
/* After a failure: end what is in flight, let the lanes run again, also those of the kernels, and meet the other ranks of the
 * set, who all call it. Then the set can be used again. Before the first start it does nothing. Errors: PEER_LOST (a member is gone:
 * give the set back), those of waiting. */
MUSTER_API muster_status_t muster_halos_abandon(muster_halos* halos);

#ifdef __cplusplus
}
#endif
#endif /* MUSTER_HALO_H */
