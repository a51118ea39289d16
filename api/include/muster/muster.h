/* muster.h - the public surface of Muster, which includes collectives.h; kernels.h has the builders of kernels, layouts.h the
 * layouts of sharded tensors, units.h what shards the parameters of a model. C11 (and C++), no CUDA headers.
 *
 * Ownership  What you open you close. Handles (buffers, groups, plans) die with their session. A string that you pass
 *            is copied before the call returns. Names and sites have no control characters (BAD_ARGUMENT), for others
 *            read them in reports. A string that you get lives as long as its comment says.
 * Threads    One thread at a time uses a session. While that thread is in a call no other may call, not even to abort; only
 *            muster_interrupt may, and it ends the thread's wait. pthread_cancel in a call ends the process. A deadline bounds
 *            each wait.
 *            A process may open several sessions: they share no state in it, and each may be used by a thread of its own. Two
 *            ranks on one thread that run a collective would wait for each other until its deadline.
 * Fork       A child of fork() must not use its parent's session: each call returns MUSTER_ERR_STALE. Only muster_close
 *            works there: it frees what the child has inherited and leaves the parent's session alone.
 * Units      *_bytes, *_ns; a bare `count` counts elements; strides count elements.
 * Cost       muster_plan_start and muster_point_test: no system call (a start that finds the daemon asleep wakes it by
 *            one), no lock, no heap. A wait may sleep.
 *            Signals, resets, recounts, batches, counters and queries of session and buffers do not ask the daemon either.
 *            Queries of groups and of the mesh ask it the first time. Every other call asks it, and may block up to the
 *            session's timeout. A "local" call needs no other member; it may still ask the daemon.
 * Options    Structs that carry `size` are initialised by their _INIT macro or builder. A later library accepts an older
 *            size of muster_open_options; any other must have the library's own.
 * ABI        Frozen within a minor version 0.x: the library is libmuster.so.0.x, and of its structs only muster_open_options
 *            may grow. Another x is another library, for which programs are compiled anew.
 * Errors     Every call returns a status; muster_last_error() has this thread's sentence with values and remedy.
 * Failure    Operations meet at a place: starts of a group on their lane, its runs in one order, SEND and RECV by pair.
 *            1. A place fails as a whole. A member that dies, leaves or aborts ends all places of its groups. A deadline, an
 *               interrupt, a mismatch of starts or a failed step ends its own place. A mismatch of runs, and CORRUPT, end none.
 *            2. An operation for which all members had met, or all neighbours for a start of an EXCHANGE, is completed: a start
 *               always, a run if a loss ended the place and the lost member had no part left to do. All other operations begun
 *               before the end fail at every member, with the cause of the end.
 *            3. A start that fails stops its lane until muster_lane_reset. Starts behind it there fail with the same error.
 *               Starts on other lanes that wait for one of these fail with DEPENDENCY (after a session's end, -3xx, with that).
 *               A run that fails returns its error, and the group may run again at once.
 *            4. A rank is told of one fault once, and again only by operations that it had begun before. It is told of every
 *               lost member.
 *            5. A rank that attaches again takes part in what is begun from then on. Until then the others wait for it until
 *               their deadline. If its launcher has said that it will not come, their operations fail at once.
 *            6. A rank that attaches for the first time learns of each fault since the first rank came, in order, by an
 *               operation each, as the others did. So its operations meet the intended ones of the others. Once all earlier
 *               ranks of a job have left, their faults do not concern the next ones.
 * Times      The meaning of 0 and of a negative number of nanoseconds, and what a positive one bounds:
 *
 *                                                        0                     negative       positive bounds
 *              muster_open_options.timeout_ns            60 s                  BAD_ARGUMENT   each call that asks the daemon
 *              muster_point_wait, muster_point_wait_any  test once             the session's  the wait; the work goes on
 *              muster_group_shrink                       the session's         BAD_ARGUMENT   the call
 *              muster_submit.deadline_ns                 the group's default   BAD_ARGUMENT   the operation at all members
 *              muster_plan_run, muster_run               the group's default   BAD_ARGUMENT   the same, and so the call
 *              muster_compare                            the group's default   BAD_ARGUMENT   each collective that it runs
 *              muster_mesh_deadline                      back to the job's     BAD_ARGUMENT   operations that give 0, from then on
 *
 *            muster_barrier and muster_object_* have no such argument: the group's default bounds each collective that they
 *            run. A group has the job's default (`defaults.deadline` of musterd.yaml, or the job's own), unless
 *            muster_mesh_deadline gave its mesh another. Kernels have the job's.
 *
 * The model. A session has one rank of one job. It owns buffers in memory that the daemon can reach. Work is described by
 * a value (muster_kernel, muster_collective), made into a plan once, and started on a lane as often as wanted. Lanes are
 * ordered; work on different lanes overlaps unless a start names the points it waits for. Each start reaches one point of
 * its lane's timeline; a point is what you wait for.
 */
#ifndef MUSTER_MUSTER_H
#define MUSTER_MUSTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MUSTER_API __attribute__((visibility("default")))
#else
#define MUSTER_API
#endif

#define MUSTER_VERSION_MAJOR 0
#define MUSTER_VERSION_MINOR 2
#define MUSTER_VERSION_PATCH 0
/* 0xMMmmpp of the header; muster_version() gives the library's. */
#define MUSTER_VERSION ((MUSTER_VERSION_MAJOR << 16) | (MUSTER_VERSION_MINOR << 8) | MUSTER_VERSION_PATCH)

/* ---- status -------------------------------------------------------------------------------------------------- */

typedef int32_t muster_status_t;

/* The hundreds digit says how much was lost, and so what the caller must redo. */
enum {
  MUSTER_OK = 0,
  MUSTER_PENDING = 1, /* not an error: not finished yet */

  /* -1xx  this call only: nothing happened here. Members that have entered the collective wait for this rank until their
   * deadline; if it will not come, abort the group (muster_group_abort). */
  MUSTER_ERR_BAD_ARGUMENT = -101, /* correct it and call again                                 */
  MUSTER_ERR_BUSY = -102,         /* ring full, or the object is in use: wait for a point      */
  MUSTER_ERR_UNSUPPORTED = -103,  /* this build or device cannot                               */
  MUSTER_ERR_NO_RESOURCE = -104,  /* a limit was reached; the text names limit, need, remedy   */
  MUSTER_ERR_STALE = -105,        /* the handle's object is gone                               */
  MUSTER_ERR_DENIED = -106,       /* this user or token may not                                */
  MUSTER_ERR_DUPLICATE = -107,    /* rank or name taken                                        */
  MUSTER_ERR_NOT_FOUND = -108,    /* no such job, dim, group                                   */
  MUSTER_ERR_CONFIG = -109,       /* configuration or mesh not valid, or the mesh not the job's */
  MUSTER_ERR_STATE = -110,        /* the call does not fit the object's state; in check mode: wrong use */
  MUSTER_ERR_WAIT_TIMEOUT = -111, /* the wait's own time ran out; the operation goes on        */
  MUSTER_ERR_WAIT_INTERRUPTED = -112, /* muster_interrupt ended the wait; the operation goes on */

  /* -2xx  a group's operation. A start that failed stops its lane until muster_lane_reset(). A run that failed is reported
   * once to each member, and then the group may run again. */
  MUSTER_ERR_MISMATCH = -201,   /* ranks disagree: field, values and ranks are in the text    */
  MUSTER_ERR_TIMEOUT = -202,    /* the deadline passed: the text names the missing ranks      */
  MUSTER_ERR_PEER_LOST = -203,  /* a member died or left, or its node is lost: the text says  */
  MUSTER_ERR_ABORTED = -204,    /* a member called muster_group_abort, was interrupted, or gave the operation up */
  MUSTER_ERR_DEPENDENCY = -205, /* the start, or one before it on its lane, waited for a point that failed */
  MUSTER_ERR_CORRUPT = -206,    /* members hold different bytes where they must be equal: the text names who */
  MUSTER_ERR_INTERRUPTED = -207, /* muster_interrupt ended this rank's part; the other members get ABORTED   */
  MUSTER_ERR_MINORITY = -208,    /* nodes are silent, and this side may not go on without them: the text names them */

  /* -3xx  the session: close it, and open another where there is something to open */
  MUSTER_ERR_PROTOCOL = -301,    /* shared memory or a message broke the protocol            */
  MUSTER_ERR_VERSION = -302,     /* library and daemon cannot talk                           */
  MUSTER_ERR_DAEMON_LOST = -303, /* daemon or engine gone, or not reachable                  */
  MUSTER_ERR_JOB_ENDED = -304,   /* the job has ended or is ending (`muster end`, its daemon's shutdown, its starter leaving, a
                                  * restarted daemon that could not take it over). Every later call that needs the job returns
                                  * this, and work that was not running by then has failed with it */

  /* -4xx  the device; -5xx  our defect */
  MUSTER_ERR_DEVICE = -401,
  MUSTER_ERR_INTERNAL = -501
};

/* Local, thread-safe, never NULL, static storage. "MUSTER_ERR_PEER_LOST" and one fixed sentence. */
MUSTER_API const char* muster_status_name(muster_status_t status);
MUSTER_API const char* muster_status_sentence(muster_status_t status);
/* This thread's last failure in words: what, where, remedy. Empty string if none yet. Read it after a call that failed, as
 * errno: calls that succeed (OK, PENDING) do not change it. Valid until the thread's next call that fails. */
MUSTER_API const char* muster_last_error(void);
/* 0xMMmmpp of the library. */
MUSTER_API uint32_t muster_version(void);

/* ---- session ------------------------------------------------------------------------------------------------- */

typedef struct muster_session muster_session; /* opaque: one rank of one job, attached to its node's daemon */

/* Where the daemon is, and which rank this is. Every field left at its default is taken from the environment: the
 * launcher's variables in the order that `muster env` prints (MUSTER_*, torchrun, Open MPI, Slurm, MPICH). */
typedef struct muster_open_options {
  uint32_t size;
  int32_t rank;         /* -1: from the environment                                            */
  int32_t world_size;   /* -1: from the environment                                            */
  uint32_t flags;       /* 0                                                                   */
  const char* endpoint; /* "/run/muster/musterd.sock"; NULL: MUSTER_ENDPOINT, else the default */
  const char* job;      /* NULL: MUSTER_JOB, else derived from the launcher                    */
  const char* mesh;     /* the job's, "dp_shard=2,tp=2"; NULL: MUSTER_MESH. None, or "": the mesh that the job has, or
                         * "dp_shard=-1" if this call creates the job. So either all ranks name the mesh or no rank does */
  const char* token;    /* single-use claim; NULL: MUSTER_TOKEN                                */
  int64_t timeout_ns;   /* bound of every blocking call of the session; 0: 60 s                */
  const char* job_key;  /* the job's key, 16 to 255 bytes; NULL: MUSTER_JOB_KEY, else the text in the file that
                         * MUSTER_JOB_KEY_FILE names. None, or "": the job has no key. Ranks that show the same name and
                         * key are of one job, in whatever container or on whatever node they are (api/launchers.md)   */
} muster_open_options;
#define MUSTER_OPEN_OPTIONS_INIT {sizeof(muster_open_options), -1, -1, 0, NULL, NULL, NULL, NULL, 0, NULL}

/* Attach as one rank of a job. Blocks until the job is ready or the timeout. If nobody has made the job, its first rank makes it.
 * In a cluster the job is made only when all ranks of the world have called, on any nodes. If the launcher says that all ranks are
 * on this node, the first rank makes it there too (api/launchers.md). options may be NULL. On failure *session is NULL. Errors:
 * DAEMON_LOST (no daemon there, or no answer in time), DENIED, DUPLICATE (a living process holds the rank: returned after a second
 * in which it might leave, or at once if many calls of this user wait so; DAEMON_LOST if timeout_ns is shorter), NOT_FOUND (no
 * such job), TIMEOUT (ranks of the job are missing on all nodes: which; once one rank gives up, all that wait hear it),
 * BAD_ARGUMENT (rank or number of ranks), CONFIG (mesh not valid, or not the job's), JOB_ENDED (the job or its daemon is ending),
 * VERSION, NO_RESOURCE, BUSY (a job of the cluster file is not made yet, for a node is away, say: the text says why; call again). */
MUSTER_API muster_status_t muster_open(const muster_open_options* options, muster_session** session);

/* Detach. Does not wait for work: what is in flight is cancelled. Members get PEER_LOST from each operation, present or later,
 * in which they have not met this rank. To end a job well, all ranks meet in a barrier and then close. If others go on, one
 * that is slow to leave the last operation with this rank may get PEER_LOST there already. Waits for the daemon's answer, 1 s
 * at most. NULL is allowed. Afterwards the pointer is dead: a call with it, a second close too, returns STALE, until 64 more
 * sessions have been closed and another one is opened, which may have the same address. No other thread may be in a call.
 * The job stays warm for the next attachment. */
MUSTER_API muster_status_t muster_close(muster_session* session);

typedef struct muster_session_info {
  uint32_t size;
  int32_t rank, world_size;
  int32_t local_rank, local_size; /* ranks of this job on this node */
  uint32_t attachments;           /* how often this rank was attached before, in this job's life */
  char job[64];
  char mesh[256]; /* canonical: "pp=1,dp_replicate=2,dp_shard=2,cp=1,tp=2" */
} muster_session_info;
#define MUSTER_SESSION_INFO_INIT {sizeof(muster_session_info), 0, 0, 0, 0, 0, {0}, {0}}
/* Local, no question to the daemon. Errors: BAD_ARGUMENT (size), and what ended the session if it has ended. */
MUSTER_API muster_status_t muster_session_query(muster_session* session, muster_session_info* info);

/* A descriptor that becomes readable after a point is reached or a lane fails; read and discard its bytes, then test your
 * points. -1 on error. Owned by the session. */
MUSTER_API int muster_event_fd(muster_session* session);

/* ---- mesh and groups ------------------------------------------------------------------------------------------ */

typedef uint64_t muster_group; /* 0 is never valid */
#define MUSTER_GROUP_SELF UINT64_MAX /* this rank alone: collectives complete without a peer */

typedef struct muster_group_info {
  uint32_t size;
  int32_t rank, ranks; /* this rank's index in the group; how many members */
  char name[64];       /* in reports: the first name that a rank asked for; its makers' name; or "ranks 0 2-4" */
} muster_group_info;
#define MUSTER_GROUP_INFO_INIT {sizeof(muster_group_info), 0, 0, {0}}

/* The group of this rank along a mesh dim: basic, from the outermost to the innermost "pp", "dp_replicate", "dp_shard", "cp",
 * "domain", "tp", and "ep"; derived, as `muster mesh` lists them with their members ("dp", "dp_shard_cp", "world", …); or a
 * flattened name (`flatten` of the job, muster_mesh_flatten). Local; asks the daemon the first time. A dim of size 1 gives
 * MUSTER_GROUP_SELF. The same name always gives the same handle, and names with the same ranks share one; reports call it by the
 * name that a rank of the job asked for first. Errors: NOT_FOUND with the list of valid names. */
MUSTER_API muster_status_t muster_mesh_group(muster_session* session, const char* dim, muster_group* group);
/* Size of a dim and this rank's coordinate along it. Either output may be NULL. Errors: NOT_FOUND. */
MUSTER_API muster_status_t muster_mesh_coords(muster_session* session, const char* dim, int32_t* coordinate, int32_t* size);
/* Local; asks the daemon the first time, as do operations on the group. Errors: STALE, BAD_ARGUMENT (size). */
MUSTER_API muster_status_t muster_group_query(muster_session* session, muster_group group, muster_group_info* info);
/* World ranks of the members, in group order. `ranks` holds `capacity` entries; *count gets the number of members, also where
 * they are more. Local; asks the daemon the first time. Errors: STALE, BAD_ARGUMENT. */
MUSTER_API muster_status_t muster_group_ranks(muster_session* session, muster_group group, int32_t* ranks,
                                              size_t capacity, size_t* count);
/* End every operation in flight of the group on all its ranks with MUSTER_ERR_ABORTED. A member with none in flight, as this
 * one, gets ABORTED from its next operation on the group. Runs and starts report it separately: a member that does both gets
 * it from its next run and from its next start, however late that comes. Waits for the daemon's answer, not for the others.
 * Errors: STALE. */
MUSTER_API muster_status_t muster_group_abort(muster_session* session, muster_group group);

/* Groups beside those of the mesh, for a job that goes on without a lost rank, or with more ranks. All these calls but
 * muster_group_shrink are local: each member calls when it likes. Members that ask for the same get the same group.
 *
 * Make a group of `count` ranks of the job, in the order given, this one among them. Alone it is MUSTER_GROUP_SELF. name: for
 * reports, and to tell groups of equal ranks apart; NULL, or at most 63 bytes. Copied. Errors: BAD_ARGUMENT (no rank, one twice
 * or outside the job, this one missing), NO_RESOURCE (this rank would hold more made groups than limits.groups_made_max).
 * Groups that others have not freed yet may take up the room at a member: the call waits for it, until the deadline. */
MUSTER_API muster_status_t muster_group_make(muster_session* session, const int32_t* ranks, size_t count, const char* name,
                                             muster_group* group);
/* Make a new group of the members of `group` that are still there, in its order. All of them call. The call waits for every
 * rank that was attached when the group last lost a member, for each of these is told of the loss. It does not wait for a rank
 * that attached since (it was started again), but takes it in if it calls in time. A member that dies meanwhile is left out. A
 * sole survivor gets MUSTER_GROUP_SELF. If nobody is missing the result is `group` itself. A group grows in this way too: a
 * restarted rank is a member of `group` again. Before `group` works, each operation of the others returns one pending loss;
 * repeat a barrier until it returns OK. timeout_ns: 0 for the session's.
 * On several nodes all survivors get the same list, or none. Each node answers for its members. A node whose end its own daemon
 * has reported is left out, so any number may go on. A node that is silent may live: without it only those go on who reach nodes
 * with more than half of the group's members, living or not. With exactly half that is the side of `cluster.tie_breaker`, if the
 * cluster file names one. A member that dies while the nodes agree may be in the list; the new group then tells of its loss.
 * Errors: TIMEOUT (with the ranks that are attached and did not call, or the nodes of which nothing is known yet; call again, and
 * get what the others have agreed on meanwhile), MINORITY (this rank's side may not go on, or the others have gone on without it;
 * call again once the nodes are back), those of muster_group_make, STALE. */
MUSTER_API muster_status_t muster_group_shrink(muster_session* session, muster_group group, int64_t timeout_ns,
                                               muster_group* survivors);
/* Give a made group back; it ends when every member that holds it has freed it or left. The plan cache drops its plans. Errors:
 * BUSY while other plans or shared buffers of this session use it, BAD_ARGUMENT (a group of a mesh, flattened ones too), STALE. */
MUSTER_API muster_status_t muster_group_free(muster_session* session, muster_group group);

typedef uint64_t muster_mesh; /* the ranks of a group as an array with named dims */
#define MUSTER_MESH_JOB ((muster_mesh)0) /* the one that the job was created with */
/* Make a mesh over the members of a group, in group order, with all its groups in one transaction: "dp_shard=3", "tp=2" with the
 * names and rules of a job's mesh (dp_shard may be -1), and the job's flattened names. Local; the same group and degrees give
 * the same groups everywhere. Errors: CONFIG (degrees that do not multiply to the number of members, unknown dims), NO_RESOURCE
 * (as for muster_group_make, then nothing was made), STALE, BAD_ARGUMENT. */
MUSTER_API muster_status_t muster_mesh_make(muster_session* session, muster_group group, const char* mesh, muster_mesh* made);
/* Choose the mesh or slice that muster_mesh_group, _coords, _flatten and _slice of this session use from now on. Local. Errors:
 * STALE. */
MUSTER_API muster_status_t muster_mesh_use(muster_session* session, muster_mesh mesh);
/* Give a made mesh back with its groups, flattened names and slices; or a slice alone, which had no groups of its own. Errors:
 * BUSY while the mesh, or a slice of it, is the chosen one, or as for muster_group_free; STALE. */
MUSTER_API muster_status_t muster_mesh_free(muster_session* session, muster_mesh mesh);
/* Name the product of `count` neighbouring dims of the chosen mesh: muster_mesh_group and _coords of this session know `name` from
 * then on. dims: basic, derived or flattened names, in root order. Dims of size 1 between them do not count. Local; asks the
 * daemon. The group is one of the mesh if that has the same ranks, or else as muster_group_make gives it for these ranks and this
 * name, and counts as a made group. It goes with the mesh, or with the session. A name that stands for the same dims already
 * changes nothing. Errors, after which nothing was named: NOT_FOUND with the valid names (dims); BAD_ARGUMENT naming the dims
 * (none, not in root order, not neighbours, of the expert view) or the name (not 1 to 63 lower-case letters, digits and '_'; it
 * stands for other dims); NO_RESOURCE (32 flattened names, or as for muster_group_make). */
MUSTER_API muster_status_t muster_mesh_flatten(muster_session* session, const char* const* dims, size_t count, const char* name);
/* The part of the chosen mesh through this rank that has just these dims: {"dp_replicate", "dp_shard_cp"} of a mesh with cp. dims
 * as above, but strictly ascending, and others may lie between them. Choose the slice by muster_mesh_use. It has the names of its
 * dims, and those that stand for a product of them; their groups are those of the mesh. A flattening or a slice made there is one
 * of the mesh, so a flattened name serves there too. Local; asks the daemon. The same dims give the same handle until it is
 * freed; it means nothing to other ranks. Errors: NOT_FOUND with the valid names, BAD_ARGUMENT naming the dims (none, not
 * ascending, expert dims with those that they cut), NO_RESOURCE (4096 different slices of a mesh). */
MUSTER_API muster_status_t muster_mesh_slice(muster_session* session, const char* const* dims, size_t count, muster_mesh* slice);
/* Change the default deadline of all groups of a mesh (MUSTER_MESH_JOB or a made one): derived ones, and flattened ones, later ones
 * too. Groups of other meshes keep theirs. deadline_ns: 0 for the job's default. Collective over the mesh: all its ranks call,
 * each with the same deadline, at the same place in the order of their runs on "world". It waits for all. Operations that a rank
 * begins after its call have the new deadline, starts and runs. Those begun before keep the old one; starts that have had no
 * room on their lane yet may get the new one. Sessions that attach later find it. Errors: BAD_ARGUMENT (negative; a slice, whose
 * groups are its mesh's), STALE, MISMATCH (at every rank: their deadlines differ), and those of muster_run, by the old deadline. */
MUSTER_API muster_status_t muster_mesh_deadline(muster_session* session, muster_mesh mesh, int64_t deadline_ns);

/* ---- memory --------------------------------------------------------------------------------------------------- */

typedef int32_t muster_dtype;
enum {
  MUSTER_F32 = 1,
  MUSTER_BF16 = 2,
  MUSTER_F16 = 3,
  MUSTER_F64 = 4,
  MUSTER_I32 = 5,
  MUSTER_I64 = 6,
  MUSTER_U8 = 7,
  MUSTER_I8 = 8,
  MUSTER_F8_E4M3 = 9, /* OCP 8-bit floats (Micikevicius et al., arXiv:2209.05433): no infinity, |x| <= 448 */
  MUSTER_F8_E5M2 = 10 /* IEEE-like, |x| <= 57344                                                            */
};
/* Bytes of one element; 0 for a number that is no dtype. */
MUSTER_API size_t muster_dtype_bytes(muster_dtype dtype);

typedef uint64_t muster_buffer; /* a range of memory that the daemon's engine reads and writes; 0 is never valid */

/* Allocate zeroed memory on the rank's device, 64-byte aligned. Local; blocks for the daemon's answer. For a host device
 * *address is where this process sees it (read and write it freely while no work in flight uses it); for a cuda device it
 * is NULL. address may be NULL. Errors: NO_RESOURCE (names limit and need), BAD_ARGUMENT (bytes 0). */
MUSTER_API muster_status_t muster_buffer_alloc(muster_session* session, uint64_t bytes, muster_buffer* buffer, void** address);
/* How the memory of a buffer is provided. */
typedef struct muster_buffer_options {
  uint32_t size;
  uint32_t flags; /* 0 */
  uint64_t bytes;
  const char* name;       /* NULL: none; else at most 63 bytes. Copied.                                             */
  muster_group shared_by; /* 0: this rank alone. A group: its members have one memory between them; needs a name    */
  int32_t memory;         /* -1: the daemon's own. Else a descriptor of memory to import: stays the caller's         */
  uint32_t reserved;      /* 0                                                                                       */
  uint64_t memory_offset_bytes; /* of an imported buffer: a multiple of 64                                           */
} muster_buffer_options;
#define MUSTER_BUFFER_OPTIONS_INIT {sizeof(muster_buffer_options), 0, 0, NULL, 0, -1, 0, 0}

/* Make a buffer of memory that is something special, on a host device. Local; blocks for the daemon's answer. address may
 * be NULL.
 *
 *  named        The memory stays with the job when the session ends: the next session of this rank that asks for the name
 *               finds the contents (muster_buffer_query says so), as it does after a kill. muster_buffer_free gives it back.
 *               The same name must be asked for with the same bytes.
 *  node-shared  `shared_by` and `name`: one memory for all members of the group on the node. They ask for it in any order and
 *               see each other's writes. It stays as a named one does, until its last holder has freed it; that of a made mesh
 *               ends with the mesh. ALL_GATHER, ALL_REDUCE and BROADCAST into it bring one result for all members instead of
 *               one each: see muster_collective. For all else the ranks themselves order their writes and reads of a range.
 *               If members are on several nodes, each node has a memory of its own under that name, with contents and bytes
 *               of its own. It goes with its node: what the other nodes have stays.
 *  imported     `memory` is a memfd (memfd_create with MFD_ALLOW_SEALING, then F_ADD_SEALS with F_SEAL_SHRINK; no huge
 *               pages), for memory that a framework has already. Its pages are reserved if they are not. It has no name.
 *
 * Errors: BAD_ARGUMENT (fields that do not go together, an offset, a descriptor that is no such memory, other bytes than
 * the name was made with), DUPLICATE (this session has the buffer already), STALE (group), NO_RESOURCE (limit and need),
 * UNSUPPORTED (not a host device). */
MUSTER_API muster_status_t muster_buffer_create(muster_session* session, const muster_buffer_options* options,
                                                muster_buffer* buffer, void** address);

typedef struct muster_buffer_info {
  uint32_t size;
  int32_t found;  /* 1: it was there before this session asked for it, with its contents */
  uint64_t bytes;
  void* address;  /* in this process; NULL on a cuda device */
} muster_buffer_info;
#define MUSTER_BUFFER_INFO_INIT {sizeof(muster_buffer_info), 0, 0, NULL}
/* Local, no question to the daemon. Errors: STALE. */
MUSTER_API muster_status_t muster_buffer_query(muster_session* session, muster_buffer buffer, muster_buffer_info* info);
/* The plan cache drops its plans of the buffer. Errors: BUSY while another plan uses it or one of those is in flight, STALE. */
MUSTER_API muster_status_t muster_buffer_free(muster_session* session, muster_buffer buffer);

typedef struct muster_range { /* where a vector or an array starts */
  muster_buffer buffer;
  uint64_t offset_bytes;
} muster_range;

#define MUSTER_TENSOR_DIMS_MAX 8
/* A strided view of a buffer. size and stride of the first `dims` entries count, outermost first; stride in elements. */
typedef struct muster_tensor {
  muster_buffer buffer; /* 0: an absent optional operand */
  uint64_t offset_bytes;
  muster_dtype dtype;
  int32_t dims; /* 0..8; 0 is a scalar */
  int64_t size[MUSTER_TENSOR_DIMS_MAX];
  int64_t stride[MUSTER_TENSOR_DIMS_MAX];
} muster_tensor;

/* A block of a larger array with ghosts around it: `before[d]` and `after[d]` rows of dim d that neighbours own. Rows in memory
 * are the outermost dim first, without gaps. muster_ghosted_view makes of it what kernels and EXCHANGE take, so that a ghost
 * lands where the kernel reads it and nothing is packed or unpacked. */
typedef struct muster_ghosted {
  uint32_t size;
  muster_dtype dtype;
  int32_t dims; /* 1..8 */
  uint32_t reserved;
  int64_t own[MUSTER_TENSOR_DIMS_MAX];    /* rows of each dim that this rank owns; 0 is legal */
  int64_t before[MUSTER_TENSOR_DIMS_MAX]; /* ghosts in front of them                          */
  int64_t after[MUSTER_TENSOR_DIMS_MAX];  /* and behind                                       */
} muster_ghosted;
#define MUSTER_GHOSTED_INIT {sizeof(muster_ghosted), 0, 0, 0, {0}, {0}, {0}}
enum {
  MUSTER_GHOSTED_OWN = 0,          /* what this rank owns                                                    */
  MUSTER_GHOSTED_BEFORE = 1,       /* the `rows` ghosts of `dim` next to what it owns, in front: to receive   */
  MUSTER_GHOSTED_AFTER = 2,        /* the `rows` ghosts next to it, behind: to receive                       */
  MUSTER_GHOSTED_FIRST = 3,        /* the first `rows` of `dim` that it owns: to send to the neighbour in front */
  MUSTER_GHOSTED_LAST = 4          /* the last `rows` of `dim` that it owns: to send to the neighbour behind  */
};
/* Bytes of the whole, ghosts included. Local, no session. BAD_ARGUMENT naming the field. */
MUSTER_API muster_status_t muster_ghosted_bytes(const muster_ghosted* ghosted, uint64_t* bytes);
/* The view of one part; the array begins at `start`. dim and rows mean nothing for OWN; rows may be fewer than there are.
 * Bit d of `with_ghosts` adds the ghosts of another dim d to the view. To fill the corners too, exchange one dim after another,
 * each with the ghosts of the dims before it. OWN with all bits is the whole array. Local, no session. Errors: BAD_ARGUMENT
 * naming the field. */
MUSTER_API muster_status_t muster_ghosted_view(const muster_ghosted* ghosted, muster_range start, int32_t part, int32_t dim,
                                               int64_t rows, uint32_t with_ghosts, muster_tensor* view);

/* ---- lanes, timelines, points ----------------------------------------------------------------------------------- */

/* An ordered stream of the rank's device. A session begins with one lane of each class, whose number is the class;
 * muster_lane_create makes more. Urgent classes get a core first, in four levels: HALO and SMALL, then GATHER and REDUCE, then
 * ALLREDUCE and COMPUTE, then COPY. */
typedef uint32_t muster_lane;
enum {
  MUSTER_LANE_COMPUTE = 0,
  MUSTER_LANE_HALO = 1,
  MUSTER_LANE_SMALL = 2,
  MUSTER_LANE_GATHER = 3,
  MUSTER_LANE_REDUCE = 4,
  MUSTER_LANE_ALLREDUCE = 5,
  MUSTER_LANE_COPY = 6,
  MUSTER_LANE_CLASSES = 7
};
#define MUSTER_LANES_MAX 64
#define MUSTER_LANE_NONE UINT32_MAX /* in a muster_failure: no lane was stopped */

/* Make another lane of a class. Lanes of equal class and name meet: the starts of all members on them are one order of
 * operations, independent of all other lanes. So two process groups, or two halves of a program, each with lanes of its own, do
 * not stand in each other's order. name: at most 63 bytes; NULL or "": the lane carries this rank's kernels only. A session has
 * at most MUSTER_LANES_MAX lanes, the first seven included. Local: other ranks need not have made theirs yet. Errors:
 * BAD_ARGUMENT (class, name), DUPLICATE (this session has a lane of that class and name), NO_RESOURCE (the limit; or the job has
 * used 4096 names of lanes in its life). */
MUSTER_API muster_status_t muster_lane_create(muster_session* session, muster_lane lane_class, const char* name, muster_lane* lane);
/* Give up a lane that muster_lane_create made. Its points keep their outcome; its number may be that of a later lane. A failure
 * that stopped the lane counts as reset. Errors: BUSY (a start of the lane is not finished: wait for its latest point),
 * BAD_ARGUMENT (one of the first seven, or no lane). */
MUSTER_API muster_status_t muster_lane_destroy(muster_session* session, muster_lane lane);

/* Timeline in the top 16 bits (the lanes, from 1 on, then client timelines), value in the rest. 0: no point, always reached. */
typedef uint64_t muster_point;
#define MUSTER_POINT_NONE ((muster_point)0)

/* Block until the point is reached, its lane has failed, or timeout_ns has passed (0: test once; negative: the session's
 * timeout). MUSTER_OK promises that all memory the work wrote can be read. Errors: the error of the work, and muster_last_error()
 * names culprit and cause; WAIT_TIMEOUT; STATE (the session itself has yet to raise that timeline); STALE, BAD_ARGUMENT. */
MUSTER_API muster_status_t muster_point_wait(muster_session* session, muster_point point, int64_t timeout_ns);
/* Block until any of `count` points has its outcome, and return it; *index is that of the first such point. Entries that are
 * NONE are skipped, so points can be struck out one by one. If all are NONE, MUSTER_OK is returned and *index is `count`.
 * *index is also `count` if none of the points ended the wait. Else as muster_point_wait. */
MUSTER_API muster_status_t muster_point_wait_any(muster_session* session, const muster_point* points, size_t count,
                                                 int64_t timeout_ns, size_t* index);
/* Test one point without waiting: MUSTER_PENDING if it is not reached yet. No system call, except now and then once the daemon
 * has not moved for a second: then it looks whether the daemon is gone (DAEMON_LOST). Else as muster_point_wait. */
MUSTER_API muster_status_t muster_point_test(muster_session* session, muster_point point);

/* End the wait in which the session's thread is, or else its next wait. This is the only call that may come from any thread at
 * any time, and from a signal handler: it stores one flag, asks nobody and does not change muster_last_error().
 * A collective that the thread runs (muster_plan_run, muster_run, muster_barrier, muster_compare, the calls with objects)
 * returns INTERRUPTED. By then the thread has asked the daemon to end it for the whole group: the other members get ABORTED and
 * the name of the interrupted rank, as from muster_group_abort, and the group may run again. A run that waits for the engine
 * stops its whole lane, and earlier starts on that lane fail too. A wait for points (muster_point_wait, muster_point_wait_any)
 * returns WAIT_INTERRUPTED and the work goes on: wait again, or abort the group. Other calls, and calls that need not wait,
 * leave the interrupt for the next wait. A call that it ends uses it up. So does a call that a group's failure (-2xx) ends
 * first, so that the interrupt does not disturb the recovery. Two interrupts may count as one.
 * Seen within 100 ms if the thread gets a core; ending a collective takes the daemon's answer too. The session must stay open
 * until nobody is about to call this. Errors, without a text: BAD_ARGUMENT (NULL), STALE (closed, or a child of fork()). */
MUSTER_API muster_status_t muster_interrupt(muster_session* session);

/* Create a timeline of the client's own, for starts to wait for: a framework signals "gradients ready". At most 16 a session,
 * and none can be freed. Asks nobody. Errors: NO_RESOURCE. */
MUSTER_API muster_status_t muster_timeline_create(muster_session* session, uint32_t* timeline);
MUSTER_API muster_point muster_timeline_point(uint32_t timeline, uint64_t value);
/* Raise the timeline to `value`; the same value again changes nothing. One ring write. Errors: BAD_ARGUMENT (no such timeline, a
 * lower value than before, one of 2^48 or more), BUSY (the ring is full), and what ended the session if it has ended. */
MUSTER_API muster_status_t muster_timeline_signal(muster_session* session, uint32_t timeline, uint64_t value);

typedef struct muster_failure {
  uint32_t size;
  muster_status_t status;
  int32_t culprit_rank; /* world rank that died or is missing; -1 if none, or if it is not known (MISMATCH) */
  uint32_t lane;
  uint64_t failed_point; /* the first point of the lane that will never be reached */
  char text[256];
} muster_failure;
#define MUSTER_FAILURE_INIT {sizeof(muster_failure), 0, -1, 0, 0, {0}}
/* The failure that stopped the lane. PENDING: the daemon is changing that record at this moment; ask again. Errors: NOT_FOUND if
 * the lane runs or was reset since; BAD_ARGUMENT (lane, size). */
MUSTER_API muster_status_t muster_lane_failure(muster_session* session, muster_lane lane, muster_failure* failure);
/* The latest group failure (-2xx) that a call of this session returned, on any path: from a run, a barrier, a comparison, the
 * calls with objects, a wait for or a test of a point, muster_group_shrink. Later calls that succeed do not clear it.
 * lane and failed_point are as above; MUSTER_LANE_NONE and NONE if no lane was stopped, as by a run on the direct path.
 * culprit_rank is -1 also if no single rank is to blame (MISMATCH). The record is copied to `failure`, and its text cut to 255
 * bytes; muster_last_error() had all of it. Local, from the session's thread as all calls. Errors: NOT_FOUND (none yet). */
MUSTER_API muster_status_t muster_last_failure(muster_session* session, muster_failure* failure);
/* Let a failed lane run again. The reset also covers a failure after it and before the lane's next start. Points before the
 * reset keep their outcome for the lane's last 8 failures; older points return STALE. Errors: BUSY (the ring is full; or a start
 * that passed its deadline may still touch its memory, because a network or another device has not given it back). */
MUSTER_API muster_status_t muster_lane_reset(muster_session* session, muster_lane lane);

/* ---- plans ------------------------------------------------------------------------------------------------------ */

typedef uint64_t muster_plan; /* validated work, ready to start as often as wanted; 0 is never valid */

#define MUSTER_WAITS_MAX 4
/* In muster_submit.flags: this start begins the collective's vectors at other offsets in their buffers, so memory that moves
 * needs no other plan. The two offsets replace `offset_bytes` of the plan's source and target, for this start alone. Offsets are
 * each rank's own: members need not agree on them. One of a vector that this rank does not have is ignored. The checks are
 * those of muster_plan_collective. A start with pieces is in place exactly if its plan was made in place. Plans of a kernel, an
 * EXCHANGE, a BARRIER, or with a node-shared target take no offsets. */
#define MUSTER_SUBMIT_OFFSETS UINT32_C(1)
#define MUSTER_WAITS_WITH_OFFSETS_MAX 2 /* offsets travel in the room of two waits */
/* How to start: on which lane, after which points, with which deadline. The deadline runs only while the start is next on its
 * lane and nothing moves that it waits for, neither members nor the timelines of its waits. So earlier work of this rank takes
 * nothing from it. The shortest deadline of the members counts. */
typedef struct muster_submit {
  uint32_t size;
  muster_lane lane;
  uint32_t wait_count; /* 0..4; with MUSTER_SUBMIT_OFFSETS 0..2 */
  uint32_t flags;      /* 0 or MUSTER_SUBMIT_OFFSETS */
  muster_point waits[MUSTER_WAITS_MAX];
  int64_t deadline_ns;          /* 0: the group's default */
  uint64_t source_offset_bytes; /* with MUSTER_SUBMIT_OFFSETS: from the start of the buffer; else not looked at */
  uint64_t target_offset_bytes;
} muster_submit;
#define MUSTER_SUBMIT_INIT {sizeof(muster_submit), MUSTER_LANE_COMPUTE, 0, 0, {0, 0, 0, 0}, 0, 0, 0}

/* Put one start of the plan on a lane and write the point it will reach. Asynchronous: one ring write, no system call while
 * the daemon is awake. Leave memory that the plan names alone until the point is reached. point may be NULL. A start on a
 * failed lane returns OK, and its point fails as the lane did. Errors: BUSY (the ring is full, or limits.starts_per_lane_max
 * starts of this lane are not finished: wait for an earlier point), STALE (no such plan), BAD_ARGUMENT (lane, flags, deadline,
 * offsets, or a wait for a point that this session was never given), UNSUPPORTED (offsets for a plan that takes none),
 * PROTOCOL, and what ended the session if it has ended: DAEMON_LOST, JOB_ENDED, DEVICE. */
MUSTER_API muster_status_t muster_plan_start(muster_session* session, muster_plan plan, const muster_submit* submit,
                                             muster_point* point);
/* Errors: BUSY while a start is in flight, STALE. */
MUSTER_API muster_status_t muster_plan_destroy(muster_session* session, muster_plan plan);

typedef struct muster_batch_entry {
  muster_plan plan;
  muster_submit submit; /* its waits may name an earlier entry: MUSTER_POINT_OF_ENTRY                    */
  muster_point point;   /* result: the point that this start will reach                                  */
} muster_batch_entry;
/* For the waits of an entry: the point of entry i of the same batch, which must be an earlier one. */
#define MUSTER_POINT_OF_ENTRY(i) ((muster_point)((UINT64_C(0xFFFF) << 48) | (uint64_t)(i)))
#define MUSTER_BATCH_MAX 256
/* Put several starts on their lanes as one, at most MUSTER_BATCH_MAX: all of them or, on an error, none. The daemon sees all
 * at once and is woken once at most. Cost and errors are those of muster_plan_start; the text names the entry. */
MUSTER_API muster_status_t muster_plan_start_batch(muster_session* session, muster_batch_entry* entries, size_t count);

/* Collectives: muster_collective, and how to start or run it. */
#include <muster/collectives.h>

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

#define MUSTER_KERNEL_TENSORS_MAX 16
#define MUSTER_KERNEL_INTS_MAX 32
#define MUSTER_KERNEL_REALS_MAX 8

/* One kernel as data. Fill it with the builders of <muster/kernels.h>, which name each operand. Only the first `tensor_count`
 * tensors, `int_count` ints and `real_count` reals count; each kernel takes a fixed number of each. */
typedef struct muster_kernel {
  uint32_t size;
  int32_t op;
  uint32_t tensor_count;
  uint32_t int_count;
  uint32_t real_count;
  uint32_t flags; /* 0 */
  muster_tensor tensors[MUSTER_KERNEL_TENSORS_MAX];
  int64_t ints[MUSTER_KERNEL_INTS_MAX];
  double reals[MUSTER_KERNEL_REALS_MAX];
} muster_kernel;

/* Check shapes, dtypes and bounds, and register. Local; asks the daemon. Errors: BAD_ARGUMENT naming kernel, operand and value,
 * STALE (buffer), NO_RESOURCE (limits.plans_per_rank_max), UNSUPPORTED (this device has no such kernel). */
MUSTER_API muster_status_t muster_plan_kernel(muster_session* session, const muster_kernel* kernel, muster_plan* plan);
/* One-shot through the plan cache, as muster_collect. Errors: those of muster_plan_kernel and of muster_plan_start. */
MUSTER_API muster_status_t muster_launch(muster_session* session, const muster_kernel* kernel, const muster_submit* submit,
                                         muster_point* point);

/* ---- introspection ---------------------------------------------------------------------------------------------- */

/* A counter of this session's page, by name: "steps_completed", "bytes_moved", "compute_busy_ns", "comm_busy_ns",
 * "exposed_ns", "halo_exposed_ns", "commands", "steps_failed", "refusals", "buffer_bytes", "buffer_bytes_peak"; and of what this process
 * ran itself: "runs_completed", "run_bytes_moved", "run_sleeps". Read from shared memory, so it works while the daemon is stuck.
 * "exposed_ns" is the time in which the compute lane had work but waited for a collective; "halo_exposed_ns" is the part of it in which
 * it waited for a lane of class HALO, perhaps among others. Errors: NOT_FOUND with the names. */
MUSTER_API muster_status_t muster_counter(muster_session* session, const char* name, uint64_t* value);
/* Record every step of all ranks of the job on this node from now on. A job has one recording a node at a time. It belongs to this
 * rank until muster_trace_end; if the session ends first it is lost. Errors: BUSY (this rank, another rank or a program such as
 * `muster trace` is recording; the text says which). A collective that was started has its `site`, which is the unit's name if units
 * (units.h) have started it. `step` says which muster_step_begin of its set came last before the start: 1 is the first. */
MUSTER_API muster_status_t muster_trace_begin(muster_session* session);
/* Stop this rank's recording and write Chrome/Perfetto JSON to `path` (this process's file system); a file there is replaced.
 * Errors: STATE (this rank has begun none), NO_RESOURCE (the file cannot be written; the recording is lost). */
MUSTER_API muster_status_t muster_trace_end(muster_session* session, const char* path);

#ifdef __cplusplus
}
#endif
#endif /* MUSTER_MUSTER_H */
