/* muster/tensor_parallel.h - which parameters tensor parallelism cuts, how, and which collectives belong to it. C11.
 *
 * The model. A linear layer y = x·wᵀ + b has a weight [out, in]. The ranks along `tp` share it in one of two ways:
 *
 *   COLUMN   each has some outputs: rows of w, and of b. It reads all of x and makes its part of y.
 *   ROW      each has some inputs: columns of w. It reads its part of x, and the sum over ranks is y. b is added once, after the sum.
 *
 * A column layer followed by a row layer needs one sum forward and one backward. With sequence parallelism the activations between
 * such pairs lie in parts of the sequence, so a sum becomes a reduce-scatter and a copy an all-gather. Then what is replicated sees
 * only its part of the sequence, and its gradient is a sum over tp (MUSTER_PARAMETER_SUMMED_OVER_TP in units.h).
 *
 * Data. Ranks along tp compute the same batch. Each may read it by itself: then compare it in the first step (muster_compare over
 * "tp"). Or tp coordinate 0 reads it, and a BROADCAST over "tp" gives it to the others.
 *
 * Samples. A step consumes micro-batch x accumulation x size of "dp" samples (muster_mesh_coords), since ranks along tp, cp and pp work
 * on the same samples. A mesh of tp and pp alone has a "dp" of size 1. A schedule in samples counts with this number.
 *
 * Everything here computes; nothing is started. Rules choose by name, so that a model need not say each parameter.
 */
#ifndef MUSTER_TENSOR_PARALLEL_H
#define MUSTER_TENSOR_PARALLEL_H

#include <muster/layouts.h>
#include <muster/muster.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t muster_tp_style;
enum {
  MUSTER_TP_REPLICATE = 0,  /* every rank has all of it: norms                                  */
  MUSTER_TP_COLUMN = 1,     /* cut along out: wq, wk, wv, w1, w3, an output layer whose loss is vocabulary-parallel */
  MUSTER_TP_ROW = 2,        /* cut along in: wo, w2. A bias (one dim) is replicated                             */
  MUSTER_TP_VOCABULARY = 3  /* an embedding table [vocabulary, features], cut along the vocabulary: a sum follows, as after ROW */
};

/* A rule. Fields that it does not use are 0 or NULL. */
typedef struct muster_tp_rule {
  const char* pattern; /* of names: '*' stands for any bytes, '?' for one. "layers.*.attention.wq.*" */
  muster_tp_style style;
  muster_split split;   /* CEIL; BALANCED as AutoTP; ALIGNED to `grain`: whole attention heads. Not GIVEN */
  int64_t grain;
  const int64_t* fused; /* the cut dim is several tensors end to end, as fused QKV is                     */
  uint32_t fused_count;
  uint32_t reserved;    /* 0 */
} muster_tp_rule;

/* The first rule that fits the name; *rule is its index, or SIZE_MAX if none does: then the parameter is replicated, and its owner
 * should say so. rules NULL: those of a Llama, by the names of Meta, Hugging Face and torchtitan. Errors: BAD_ARGUMENT. */
MUSTER_API muster_status_t muster_tp_style_of(const muster_tp_rule* rules, size_t count, const char* name, muster_tp_style* style,
                                              size_t* rule);

/* The layout of a parameter: `tp` cuts it as its rule says, and then `shard` cuts dim 0 of what is left. shard, tp: dims of the
 * session's mesh; NULL: none. rules as above. shape: of the whole parameter, `dims` lengths. Errors: those of muster_layout_create;
 * BAD_ARGUMENT (a style that cuts a parameter of more than 2 dims, a rule that makes no sense). */
MUSTER_API muster_status_t muster_tp_layout(muster_session* session, const muster_tp_rule* rules, size_t count, const char* name,
                                            const int64_t* shape, int32_t dims, const char* shard, const char* tp,
                                            muster_layout** layout);

/* Where in a layer: what is about to be read, or was just written. */
typedef int32_t muster_tp_moment;
enum {
  MUSTER_TP_INPUT = 0,           /* x, before forward reads it                        */
  MUSTER_TP_OUTPUT = 1,          /* y, after forward has written it                   */
  MUSTER_TP_OUTPUT_GRADIENT = 2, /* dy, before backward reads it                      */
  MUSTER_TP_INPUT_GRADIENT = 3   /* dx, after backward has written it                 */
};
/* The collective over tp at that moment: MUSTER_ALL_REDUCE (SUM), MUSTER_ALL_GATHER or MUSTER_REDUCE_SCATTER (SUM) along the sequence,
 * or 0 for none. Errors: BAD_ARGUMENT (no such style or moment). */
MUSTER_API muster_status_t muster_tp_collective(muster_tp_style style, muster_tp_moment moment, int32_t sequence_parallel,
                                                muster_op* op);

#ifdef __cplusplus
}
#endif
#endif /* MUSTER_TENSOR_PARALLEL_H */
