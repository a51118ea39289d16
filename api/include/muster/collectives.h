/* collectives.h - what the ranks of a group do together. A part of muster.h, which includes it. */
#ifndef MUSTER_COLLECTIVES_H
#define MUSTER_COLLECTIVES_H

#include <muster/muster.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t muster_op;
enum {
  MUSTER_ALL_REDUCE = 1,
  MUSTER_ALL_GATHER = 2,
  MUSTER_REDUCE_SCATTER = 3,
  MUSTER_BROADCAST = 4,
  MUSTER_BARRIER = 5,
  MUSTER_SEND = 6,
  MUSTER_RECV = 7,
  MUSTER_REDUCE = 8,
  MUSTER_GATHER = 9,
  MUSTER_SCATTER = 10,
  MUSTER_ALL_TO_ALL = 11,
  MUSTER_EXCHANGE = 12
};

typedef int32_t muster_redop;
enum {
  MUSTER_SUM = 1,
  MUSTER_AVG = 2, /* sum, then one division by the number of members (integers: towards zero, so -7/2 is -3) */
  MUSTER_MAX = 3, /* a NaN of any member gives NaN; -0 is below +0 */
  MUSTER_MIN = 4, /* likewise: a NaN of any member gives NaN */
  MUSTER_PROD = 5,
  MUSTER_PREMUL_SUM = 6 /* each member's elements times `scale`, then the sum */
};

/* A piece of a block: elements [offset, offset + count) of this rank's vector. */
typedef struct muster_piece {
  uint64_t offset;
  uint64_t count;
} muster_piece;

/* How a vector is cut into one block for each member of the group. Lists have an entry per member, in group order, and are copied.
 * Block i is that of member i, so the own block is the one with this rank's index in the group.
 *
 * In an ALL_GATHER and a REDUCE_SCATTER a block may be a list of pieces, end to end. So the shards of many tensors travel as one
 * operation, to or from where the tensors lie. Pieces are relative to the start of the member's vector and equal at all members;
 * then counts and offsets are NULL and `count` is 0. 4096 pieces at most. */
typedef struct muster_blocks {
  const uint64_t* counts;  /* elements of each block; NULL: `count` each                                         */
  const uint64_t* offsets; /* element at which each block begins, in this rank's own vector; NULL: end to end.
                              Blocks that are written must not overlap; blocks that are read may                 */
  const uint32_t* piece_counts; /* pieces of each block; NULL: one each, as counts and offsets say               */
  const muster_piece* pieces;   /* of block 0, then of block 1, and so on; NULL with piece_counts                */
} muster_blocks;

/* One edge of a neighbour exchange, as one of its two ends sees it. */
typedef struct muster_face {
  int32_t peer;       /* index in the group; a member may be its own neighbour                               */
  uint32_t tag;       /* tells several edges from one member to another apart: the same number at both ends  */
  muster_tensor view; /* what is sent, or where it lands: any strides. Both ends have equal dtype and equally
                         many elements, matched in row-major order; the shapes may differ                    */
} muster_face;

/* One collective, as this rank sees it. All members start the same operations in the same order on one (group, lane), and
 * run (muster_plan_run) the same ones in the same order on one group. Operations of different groups may come in any order on
 * different lanes. A lane is ordered and a run waits: ranks that share two groups keep one order of both on one lane, and in
 * their runs. Where they do not, the report at the deadline shows the circle. Fields that must agree: op, dtype, redop, scale,
 * peer, and the counts as each line says. A difference is MUSTER_ERR_MISMATCH on every member, before any byte moves. Zero
 * counts are legal everywhere, and so are members that give and get nothing.
 *
 *  ALL_REDUCE      target[count] = reduction of all source[count]. In place: source equals target.
 *  ALL_GATHER      target_blocks = blocks of all members; source = own block. All agree on counts and pieces; offsets are each
 *                  rank's own. In place: source is the own block inside target; with pieces: source equals target.
 *  REDUCE_SCATTER  target = own block of the reduction of all sources; a source has a block for each member (source_blocks).
 *                  All agree on counts and pieces; offsets are each rank's own. In place: target is the own block inside source,
 *                  and the other blocks of source stay as they are. In place with pieces: target equals source.
 *  BROADCAST       target[count] = the source[count] of member `peer`, who may pass source as target, or no target.
 *  REDUCE          target[count] of member `peer` = reduction of all source[count]. In place at `peer`: source equals
 *                  target. The others' target is ignored.
 *  GATHER          target_blocks of member `peer` = blocks of all; source[count] = own block. The counts of `peer` must be
 *                  what each member sends. In place at `peer`: source is the own block inside target.
 *  SCATTER         target[count] = own block of the source_blocks of member `peer`. In place at `peer`: target is the own
 *                  block inside source.
 *  ALL_TO_ALL      block j of member i's source becomes block i of member j's target; the counts of each such pair must be
 *                  equal. In place (source equals target): source and target blocks are the same, and a pair's two blocks
 *                  are equally long; they change places.
 *  EXCHANGE        each of `sends` becomes the face of the receive with the same tag at its peer: any directed graph. The
 *                  edges of all members together must match, each in tag, dtype and elements; the dtypes of edges may
 *                  differ. `dtype`, `source`, `target` and `count` are not used. One member has at most 680 faces, sends and
 *                  receives together. A received face must not overlap any other face. A start waits only for the members with
 *                  which it has faces, in a group with members on several nodes for their nodes; a run waits for all. So a start
 *                  may end at one member while others still wait. A difference is MISMATCH where it is found, and may be found
 *                  when others have gone on: these hear of it by their next operation. A member that leaves ends what others
 *                  wait for, so meet once more (BARRIER) before you leave after a start.
 *  BARRIER         no data.
 *  SEND, RECV      source[count] to member `peer`, target[count] from member `peer`, equally many. Starts match by pair and
 *                  `tag`, in the order of their starts, whatever their lanes: a receive that is posted early on one lane does
 *                  not hold up what comes on others. A lane itself is ordered: two members that each send before they receive
 *                  on one lane wait for each other until the deadline. Put them on two lanes, or make them one EXCHANGE. A
 *                  send is complete when it is received. A run waits for its partner, so runs match by order alone: tags
 *                  that differ are a MISMATCH. In a group with members on several nodes a run is a start: a tag without its
 *                  partner waits until the deadline.
 *
 * `tag` tells apart operations that are alike in all else, such as equal layers: members that give different ones hear MISMATCH.
 *
 * A target in a node-shared buffer (ALL_REDUCE, ALL_GATHER, BROADCAST; the members of `group` are among those who share it)
 * is one result for all: every member names the same place, and each brings its part of it. An all-gather whose sources
 * are the own blocks inside it moves no byte on a node, nor does a broadcast in place. The source of an ALL_REDUCE must lie
 * elsewhere; the root of a BROADCAST names the target too. If members are on several nodes, the result is written once on
 * each node, and all name the same place of the buffer of one name. If not all members share the buffer, each has a target of
 * its own there.
 *
 * Order of a reduction (decision D14): the balanced tree over member index, split at the largest power of two below the
 * number of members: ((0+1)+(2+3))+(4+5). 8-bit and 16-bit floats accumulate in f32 and round once. Integers wrap, except
 * that AVG of u8, i8 and i32 sums in 64 bits. On one node equal inputs give equal bits on every rank, every run, every path.
 * Between nodes each node first reduces what its own ranks give, where that saves traffic: SUM, AVG, PROD and PREMUL_SUM of F32 and
 * F64. Then equal inputs give equal bits on every rank and in every run, as long as the ranks stay on their nodes: on one node
 * 1 + 1e8 - 1e8 + 1 is 0 in F32, and 1 with three ranks on one node and one on another. In a job with `reproducible: true` the
 * bits are those of one node, wherever the ranks are. `muster plan explain` says which holds.
 *
 * Rounding of floats is to nearest, ties to even. Nothing saturates: a value that rounds beyond the largest F16, BF16 or
 * F8_E5M2 becomes infinity. F8_E4M3 has no infinity: magnitudes above 464 become NaN there. AVG of 8-bit and 16-bit floats
 * divides before it rounds, so a mean that fits the type comes out even if the sum does not fit; only a sum beyond f32 makes
 * the mean infinite, as in F32 itself. Every NaN that a reduction of floats writes is the positive quiet one.
 *
 * After a failure. MISMATCH and every -1xx write nothing, but for a start of an EXCHANGE: faces of a member with others that agree
 * with it may have moved. After CORRUPT the target holds what this rank computed. After any other
 * error the target is undefined (a shared one for all members), and in place so is the source: restore it before you repeat the
 * operation. A member may be lost after all have met for a run, with a part left to do (a large reduction, a node-shared target).
 * Such a run may succeed at some of the others and fail at the rest. Before the survivors go on, they compare how far each has
 * come (ALL_REDUCE, MIN, on the group that muster_group_shrink has made).
 *
 * How this differs from MPI and NCCL, operation by operation: api/mpi-and-nccl.md.
 *
 * A field that the operation uses at other members only is ignored (the target of a REDUCE away from the root). A field that it
 * does not use at all must be 0 or NULL, else BAD_ARGUMENT names the field. offset_bytes is a multiple of the dtype's size.
 *
 * Limits. A vector, and what all blocks of one side add up to: 2^63 - 1 bytes. A group: 1024 members on a node. One EXCHANGE:
 * 680 faces at a member. An object: 2^40 bytes from each member. The text of a start's failure is cut to 240 bytes, other texts
 * of the daemon to 1023. */
typedef struct muster_collective {
  uint32_t size;
  muster_op op;
  muster_group group;
  muster_dtype dtype; /* BARRIER: 0. EXCHANGE does not look at it                      */
  muster_redop redop; /* 0 where there is no reduction                                 */
  int32_t peer;       /* root, or partner of SEND and RECV: index in the group; else 0 */
  uint32_t tag;       /* The same number at all members, else MISMATCH; BARRIER: 0     */
  muster_range source;
  muster_range target;
  uint64_t count;              /* elements of the vector; of each block, where it is cut and its blocks have no counts    */
  muster_blocks source_blocks; /* REDUCE_SCATTER, SCATTER at `peer`, ALL_TO_ALL. Left out: `count` each, end to end       */
  muster_blocks target_blocks; /* ALL_GATHER, GATHER at `peer`, ALL_TO_ALL                                                */
  const muster_face* sends;    /* EXCHANGE. Copied.                                                                       */
  const muster_face* receives;
  uint32_t send_count;
  uint32_t receive_count;
  double scale;     /* PREMUL_SUM; for integers a whole number; else 0                         */
  const char* site; /* where in the program this is, for reports: "model.py:311"; NULL: nowhere. Copied, 47 bytes at most */
} muster_collective;
#define MUSTER_COLLECTIVE_INIT \
  {sizeof(muster_collective), 0, 0, 0, 0, 0, 0, {0, 0}, {0, 0}, 0, {NULL, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL}, NULL, NULL, 0, \
   0, 0.0, NULL}

/* Validate against this rank's buffers and the group, and register. Local: the agreement with the other members takes place
 * when the plan starts, so ranks may create plans in any order. May block for the daemon's answer. Errors: BAD_ARGUMENT naming
 * field, value and remedy, STALE (group or buffer), NO_RESOURCE (limits.plans_per_rank_max; more faces than a message holds). */
MUSTER_API muster_status_t muster_plan_collective(muster_session* session, const muster_collective* collective, muster_plan* plan);
/* Run a collective plan now and wait for its end. This rank's inputs must be ready: a run waits for no points. Among members on
 * one node, in host memory, the callers do the work themselves (the direct path): a fraction of a microsecond for small
 * vectors, no system call while the others come soon. Where the rule of choice says otherwise (`muster plan explain`: large
 * reductions, memory of devices, members on several nodes) it is a start on the operation's usual lane and a wait: GATHER for
 * ALL_GATHER and GATHER, REDUCE for REDUCE and REDUCE_SCATTER, ALLREDUCE (up to 64 KiB: SMALL) for ALL_REDUCE, HALO for
 * EXCHANGE, SMALL for BARRIER, else COPY. If a start has stopped that lane, such a run returns STATE until muster_lane_reset. It
 * has not begun: the other members wait for the run that follows the reset. On several nodes members that mean operations of
 * different lanes do not meet: they hear TIMEOUT, not MISMATCH.
 * All members must run it: a run and a start do not meet. timeout_ns: 0 for the group's default.
 * Errors: those of a start's point (MISMATCH, TIMEOUT, PEER_LOST, ABORTED) and, in a job with `digests`, CORRUPT (members have
 * different results of this run), each told once to every member of the group, after which the group may run again; STALE,
 * BAD_ARGUMENT (a kernel's plan), DAEMON_LOST, JOB_ENDED; INTERRUPTED if this rank was interrupted (muster_interrupt). From a
 * run that has not begun: STATE (see above), BUSY (the lane that it would take is full), NO_RESOURCE (the rank's arena is too
 * small for the first run). WAIT_TIMEOUT: the engine is stopped, and may still write the target. */
MUSTER_API muster_status_t muster_plan_run(muster_session* session, muster_plan plan, int64_t timeout_ns);
/* Change the counts of a collective's plan, from this rank's next start or run of it on. A mixture of experts needs this: what
 * it sends changes with each step, its memory does not. `count`, `source_blocks` and `target_blocks` mean what they mean in
 * muster_collective, and may be left out as there; a NULL pointer is a muster_blocks of NULLs. Buffers, offsets of the ranges,
 * dtype and all else stay. Local, asks nobody: starts in flight keep the counts they were started with. All members must change
 * their counts at the same place in the order of their operations (a difference is MISMATCH, as ever).
 * Errors: BAD_ARGUMENT (blocks that leave their buffer or overlap: the plan then keeps its counts; a kernel's plan),
 * UNSUPPORTED (an EXCHANGE, whose faces say how many, a BARRIER, and blocks in pieces: make another plan; the memory of a device
 * that this process does not see), STALE. */
MUSTER_API muster_status_t muster_plan_recount(muster_session* session, muster_plan plan, uint64_t count,
                                               const muster_blocks* source_blocks, const muster_blocks* target_blocks);
/* One-shot: looks the plan up in the session's cache, creates it at first use, runs it. The cache has 4096 plans and drops the
 * least recently used. Errors: those of muster_plan_collective and of muster_plan_run; NO_RESOURCE if all plans in the cache
 * are in flight. */
MUSTER_API muster_status_t muster_run(muster_session* session, const muster_collective* collective, int64_t timeout_ns);
/* One-shot: looks the plan up in the session's cache, creates it at first use, starts it. Errors: those of
 * muster_plan_collective and of muster_plan_start; NO_RESOURCE if all plans in the cache are in flight. */
MUSTER_API muster_status_t muster_collect(muster_session* session, const muster_collective* collective,
                                          const muster_submit* submit, muster_point* point);
/* Exchange bytes whose number only the giver knows. These calls run, they do not start: all members call, at the same place in
 * the order of their runs on the group. The session owns the result until its next call of these two; `data` of that call may
 * lie in the result.
 * Errors: those of muster_run; BAD_ARGUMENT (a root that is no member, NULL for data or results); NO_RESOURCE at every member
 * for an object of more than 2^40 bytes, and at one alone if the result does not fit into its memory. That member then aborts
 * the group, so that the others get ABORTED and do not wait for it; it gets ABORTED from its next operation on the group.
 *
 * Broadcast: every member gets `data` and `bytes` of member `root` as *result and *result_bytes; the others' are ignored. */
MUSTER_API muster_status_t muster_object_broadcast(muster_session* session, muster_group group, int32_t root, const void* data,
                                                   uint64_t bytes, const void** result, uint64_t* result_bytes);
/* Gather: member i's bytes are [offsets[i], offsets[i + 1]) of *result, for all members in group order. root: the member that
 * gets them (the others get NULL and no offsets); -1: every member. offsets holds one entry more than the group has members; it
 * may be NULL at a member that gets nothing. */
MUSTER_API muster_status_t muster_object_gather(muster_session* session, muster_group group, int32_t root, const void* data,
                                                uint64_t bytes, const void** result, uint64_t* offsets);
/* Do all members hold the same bytes, as replicas must? Run, as the two above: all members call, each with its own `count`
 * views, whose elements in row-major order make one 128-bit digest. Digests are gathered, so all members find the same; equal
 * bits are what counts (0.0 is not -0.0). Strides, shapes and places may differ. timeout_ns: 0 for the group's default. After a
 * difference the group may run again. By itself Muster compares a sample of runs alone (`digests` in musterd.yaml); use this to
 * check what was started. Members may be on several nodes. Errors: CORRUPT (at every member: the ranks outside the majority,
 * or that there is none, and the digests), MISMATCH (the members' views differ in number, dtype or elements), BAD_ARGUMENT (a
 * view that leaves its buffer), STALE, UNSUPPORTED (memory that this process does not see), those of muster_plan_run. */
MUSTER_API muster_status_t muster_compare(muster_session* session, muster_group group, const muster_tensor* views,
                                          size_t count, int64_t timeout_ns);
/* Meet all members of a group: BARRIER, run. Errors: those of muster_run. */
MUSTER_API muster_status_t muster_barrier(muster_session* session, muster_group group);

#ifdef __cplusplus
}
#endif
#endif /* MUSTER_COLLECTIVES_H */
