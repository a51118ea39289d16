/* muster/checkpoint.h - save tensors in their layouts, and load them on any mesh. C11.
 *
 * The model. A checkpoint is a folder in the folder of a run. It holds whole tensors by name, cut into the boxes that the ranks of
 * some mesh had. Replicas share the writing: each box is written once. A rank that loads reads the parts of those boxes that its own
 * layout needs. So a checkpoint may be loaded on another mesh than that which has saved it, and no collective carries its bytes.
 *
 *   FOLDER/step-000000000012/metadata.json   tensors, boxes, checksums; written last
 *   FOLDER/step-000000000012/rank-0.bin      the boxes that member 0 has written, end to end, row-major, without gaps
 *   FOLDER/step-000000000013.partial-...     one that is not complete, which nobody loads
 *
 * A checkpoint is complete or absent, also after a kill or an error at any moment. Until the new one is complete and on the disk the
 * former ones stay. All ranks must see the folder as one: a file system of the node, or one that nodes share.
 *
 * Contents. Parameters and the optimiser's moments are tensors: a moment has its parameter's layout and a name of its own. The
 * rest of a trainer's state (its step, its place in the data) is the user's state: bytes of member 0.
 *
 * Control. Saving and loading are calls that all members of a group make, at the same place in the order of their runs on it.
 * They exchange lists, results and checksums. If one member is refused, or cannot read or write, all members get the error, and
 * its text names rank, file and tensor.
 *
 * In the background. muster_checkpoint_save_async copies what this rank writes, and returns. A child process writes the copy. It
 * calls no code of the trainer, and ends if the trainer dies. The arrays may change as soon as the call has returned: call it
 * between the optimiser's step and the next one. One save is in flight at a time. The memory of the copy stays for the next save,
 * until muster_checkpoints_close.
 *
 * Damage. Each MiB of a box has a checksum (XXH3, 128 bits), and so have the metadata. Loaded bytes are verified, or the load fails.
 * `muster checkpoint` lists, verifies, exports (safetensors) and imports, without a job.
 */
#ifndef MUSTER_CHECKPOINT_H
#define MUSTER_CHECKPOINT_H

#include <muster/layouts.h>
#include <muster/muster.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The checkpoints of a run. Opaque; belongs to its session, and is used by the session's thread. */
typedef struct muster_checkpoints muster_checkpoints;

typedef struct muster_checkpoints_options {
  uint32_t size;
  uint32_t keep;      /* how many of the newest stay when one is complete; 0: all                                */
  const char* folder; /* of the run; made by the first save. Copied                                                */
  muster_group group; /* whose members save and load together; MUSTER_GROUP_SELF: this rank alone                  */
} muster_checkpoints_options;
#define MUSTER_CHECKPOINTS_OPTIONS_INIT {sizeof(muster_checkpoints_options), 0, NULL, 0}

/* Local; asks for the group's members. On failure *checkpoints is NULL. Errors: BAD_ARGUMENT (no folder, no member of the group),
 * STALE (group). */
MUSTER_API muster_status_t muster_checkpoints_open(muster_session* session, const muster_checkpoints_options* options,
                                                   muster_checkpoints** checkpoints);
/* Local. A save that is in flight is given up, and leaves nothing: wait for it first. Call it before muster_close. NULL is allowed. */
MUSTER_API muster_status_t muster_checkpoints_close(muster_checkpoints* checkpoints);

/* One tensor. The array is what this rank has in the layout: a view of the shape that muster_layout_local_shape says, any positive
 * strides, in memory that this process sees. No work in flight may use it while a save copies it, or a load fills it.
 *
 * If every axis is a dim of the session's mesh with its size, this rank's coordinates say which rank of the layout it is. So axes that
 * the layout leaves out replicate. Otherwise the layout has as many ranks as the group, in the group's order. A layout without axes is
 * one rank, which has all. */
typedef struct muster_checkpoint_tensor {
  const char* name; /* UTF-8, 1 to 1024 bytes, no control characters; unique in the list; not "__metadata__", which
                     * safetensors keeps for itself                                                              */
  const muster_layout* layout;
  muster_tensor array;
} muster_checkpoint_tensor;

enum {
  MUSTER_CHECKPOINT_REPLACE = 1, /* save: a checkpoint of this name gives way to the new one, at once. Else it is an error */
  MUSTER_CHECKPOINT_PARTIAL = 2, /* load: tensors that the checkpoint does not have stay as they are. Else they are an error */
  /* save: what several members have of a tensor may differ. Else that is a MISMATCH, with tensor and ranks; with this flag it is a
   * warning of member 0 on stderr, and the checkpoint has that of one of them. For ranks whose processors round differently, and for
   * MUSTER_PARAMETER_LOCAL. */
  MUSTER_CHECKPOINT_REPLICAS_MAY_DIFFER = 4
};

typedef struct muster_checkpoint_save_options {
  uint32_t size;
  uint32_t flags;   /* MUSTER_CHECKPOINT_REPLACE, _REPLICAS_MAY_DIFFER                                            */
  uint64_t step;    /* the newest checkpoint has the highest step; if two have it, the one whose name sorts last  */
  const char* name; /* at most 200 bytes, no '/', no file of a checkpoint; NULL: "step-" and the step in 12 digits */
  const muster_checkpoint_tensor* tensors; /* members may have other ones, as the stages of a pipeline do      */
  size_t tensor_count;
  const void* user; /* bytes of member 0; the others' are ignored                                                  */
  uint64_t user_bytes;
} muster_checkpoint_save_options;
#define MUSTER_CHECKPOINT_SAVE_OPTIONS_INIT {sizeof(muster_checkpoint_save_options), 0, 0, NULL, NULL, 0, NULL, 0}

/* Save, and return when the checkpoint is complete and on the disk: save_async and wait. Takes memory for a copy, as they do.
 * Errors: those of both. */
MUSTER_API muster_status_t muster_checkpoint_save(muster_checkpoints* checkpoints, const muster_checkpoint_save_options* options);
/* Agree on who writes what, copy what this rank writes, start the writer, return. A collective of the group, without bytes of tensors.
 * It waits for other members' lists, not for their copies. It forks, which takes the longer the more private memory the process has;
 * buffers and the copy are shared memory, and cost nothing there. If a rank has no memory for its copy, or cannot start a writer, all
 * members get this error from muster_checkpoint_wait. Errors, at all members: BUSY (a save is in flight), BAD_ARGUMENT (an array, a name;
 * boxes that overlap or leave a part of a tensor out; members that differ in dtype or shape: the text names the tensor; more than 128
 * MiB of metadata: count 35 bytes for each MiB saved, and about 70 for each box), MISMATCH (members that differ in folder, name, step
 * or flags), DUPLICATE (the name is taken), UNSUPPORTED (memory that this process does not see), NO_RESOURCE, DENIED (the folder),
 * those of muster_object_gather. */
MUSTER_API muster_status_t muster_checkpoint_save_async(muster_checkpoints* checkpoints,
                                                        const muster_checkpoint_save_options* options);
/* Wait until all members' writers are done, and complete the checkpoint. A collective of the group. It repeats short collectives until
 * all are done, so that the deadline does not bound the time of a write. Then member 0 removes the oldest beyond `keep`, and what
 * killed savers have left; what cannot be removed stays. A member that is lost during that is an error of the next call. After a
 * failure there is no such checkpoint, and no save in flight. There are two exceptions. If a member is lost while member 0 gives the
 * folder its name, the checkpoint may be complete. If the disk refuses the sync after that, the checkpoint is there, and the text says
 * so. With REPLACE, the former one takes its name back. Without a save in flight it does nothing. Errors: NO_RESOURCE (a full disk,
 * with the file's name; memory for the copy; a writer that was killed), DENIED and NOT_FOUND (the folder), BAD_ARGUMENT (too long
 * metadata), UNSUPPORTED (a file system that cannot exchange folders, with REPLACE), those of muster_object_gather. */
MUSTER_API muster_status_t muster_checkpoint_wait(muster_checkpoints* checkpoints);

typedef struct muster_checkpoint_info {
  uint32_t size;
  uint32_t damaged; /* where NULL meant the newest: checkpoints with damaged metadata, which were passed over */
  uint64_t step;
  uint64_t bytes;      /* of all tensors, and of the user's state       */
  uint64_t user_bytes; /* of the user's state                           */
  uint64_t tensors;    /* listed: that it has. Loaded: that were loaded */
  char name[208];
} muster_checkpoint_info;
#define MUSTER_CHECKPOINT_INFO_INIT {sizeof(muster_checkpoint_info), 0, 0, 0, 0, 0, {0}}

typedef struct muster_checkpoint_load_options {
  uint32_t size;
  uint32_t flags;   /* MUSTER_CHECKPOINT_PARTIAL                                                                  */
  const char* name; /* NULL: the newest with sound metadata, as member 0 sees it                                   */
  const muster_checkpoint_tensor* tensors; /* what else the checkpoint has is left alone                          */
  size_t tensor_count;
  const char* const* only; /* patterns of names; others stay as they are. '*' stands for any bytes, '?' for one. None: all */
  size_t only_count;
  const char* const* exclude; /* patterns of names that stay as they are, though they fit `only`                    */
  size_t exclude_count;
  void* user; /* NULL: the user's state is not read. Every member reads it                                       */
  uint64_t user_capacity;
} muster_checkpoint_load_options;
#define MUSTER_CHECKPOINT_LOAD_OPTIONS_INIT \
  {sizeof(muster_checkpoint_load_options), 0, NULL, NULL, 0, NULL, 0, NULL, 0, NULL, 0}

/* Fill the arrays. A collective of the group; each member reads for itself. Reads the MiBs of saved boxes that have something of
 * the arrays, and verifies them. info may be NULL; else it has its `size` set, and tells what was loaded.
 * With name NULL, a checkpoint whose metadata cannot be read for another reason than damage is an error: it may be the newest.
 * Errors, at all members. Before any array is touched: BUSY (a save is in flight), NOT_FOUND (no checkpoint; a tensor that it
 * does not have, by name), BAD_ARGUMENT (an array; info; other dtype or shape, with both; a user's state of more than user_capacity
 * bytes), VERSION, MISMATCH (members see other checkpoints), CORRUPT, NO_RESOURCE and DENIED (metadata). Then the arrays are
 * undefined: CORRUPT (a checksum: file and tensor; a file that is missing), NO_RESOURCE and DENIED (a file that cannot be read), those
 * of muster_object_gather. */
MUSTER_API muster_status_t muster_checkpoint_load(muster_checkpoints* checkpoints, const muster_checkpoint_load_options* options,
                                                  muster_checkpoint_info* info);

/* The complete checkpoints, oldest first. Local; reads their metadata. `infos` holds `capacity` entries, each with its `size` set;
 * *count gets the number of checkpoints, also where they are more. Damaged ones and those of another version are left out. Errors:
 * BAD_ARGUMENT, DENIED, NO_RESOURCE. */
MUSTER_API muster_status_t muster_checkpoint_list(muster_checkpoints* checkpoints, muster_checkpoint_info* infos, size_t capacity,
                                                  size_t* count);
/* One of them; NULL: the newest, as a load has it. `info` has its `size` set. Local. Errors: NOT_FOUND, CORRUPT, VERSION, BAD_ARGUMENT,
 * DENIED, NO_RESOURCE. */
MUSTER_API muster_status_t muster_checkpoint_query(muster_checkpoints* checkpoints, const char* name, muster_checkpoint_info* info);

#ifdef __cplusplus
}
#endif
#endif /* MUSTER_CHECKPOINT_H */
