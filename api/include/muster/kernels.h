/* muster/kernels.h - the sharded kernels, one builder each. C11, header-only: a builder fills a muster_kernel.
 *
 * Conventions. Shapes are outermost first. T tokens, D features, V vocabulary rows, H heads, E head features. An operand
 * marked (opt) may be muster_none(). Unless a comment says otherwise operands of one kernel share one dtype (F32 or BF16),
 * statistics (rstd, lse, loss, …) are F32, ids are I32. An output must not overlap another operand. It must not interleave
 * with an operand of another element size, nor in a way that takes too long to tell apart: both are refused. Where a comment
 * lets an output be an input, it is the very same view. Any strides >= 1 are allowed, for inputs too. A view must not visit an
 * element twice, so stride 0 is refused (except in a dim of size 0 or 1, where no stride counts).
 * Rows that a norm, a loss or RoPE takes as one (D, V, E) have 2^20 elements at most, E of attention 1 to 4096. BF16 kernels
 * compute and accumulate in f32 and round once, to nearest, ties to even; what overflows becomes infinity. Results do not depend
 * on how many cores the daemon has.
 * `accumulate` 1 adds to the output instead of overwriting it.
 *
 * Global offsets: a kernel that sees a shard gets the global position of its first element (`position`, `vocab_offset`), so
 * the union of the shards equals the unsharded kernel.
 */
#ifndef MUSTER_KERNELS_H
#define MUSTER_KERNELS_H

#include <muster/muster.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers are part of the ABI: append only. */
enum {
  MUSTER_KERNEL_COPY = 1,
  MUSTER_KERNEL_FILL = 2,
  MUSTER_KERNEL_AXPBY = 3,
  MUSTER_KERNEL_SUM = 4,
  MUSTER_KERNEL_SUM_SQUARES = 5,
  MUSTER_KERNEL_CLIP_COEFFICIENT = 6,
  MUSTER_KERNEL_COUNT_ZEROS = 7,
  MUSTER_KERNEL_LINEAR_FORWARD = 10,
  MUSTER_KERNEL_LINEAR_DGRAD = 11,
  MUSTER_KERNEL_LINEAR_WGRAD = 12,
  MUSTER_KERNEL_EMBEDDING_FORWARD = 20,
  MUSTER_KERNEL_EMBEDDING_BACKWARD = 21,
  MUSTER_KERNEL_RMS_NORM_FORWARD = 30,
  MUSTER_KERNEL_RMS_NORM_BACKWARD = 31,
  MUSTER_KERNEL_LAYER_NORM_FORWARD = 32,
  MUSTER_KERNEL_LAYER_NORM_BACKWARD = 33,
  MUSTER_KERNEL_ROPE = 40,
  MUSTER_KERNEL_ATTENTION_FORWARD = 50,
  MUSTER_KERNEL_ATTENTION_BACKWARD = 51,
  MUSTER_KERNEL_GELU_FORWARD = 60,
  MUSTER_KERNEL_GELU_BACKWARD = 61,
  MUSTER_KERNEL_SWIGLU_FORWARD = 62,
  MUSTER_KERNEL_SWIGLU_BACKWARD = 63,
  MUSTER_KERNEL_CROSS_ENTROPY_FORWARD = 70,
  MUSTER_KERNEL_CROSS_ENTROPY_BACKWARD = 71,
  MUSTER_KERNEL_VOCAB_MAX = 72,
  MUSTER_KERNEL_VOCAB_SUM_EXP = 73,
  MUSTER_KERNEL_VOCAB_LOSS = 74,
  MUSTER_KERNEL_VOCAB_BACKWARD = 75,
  MUSTER_KERNEL_ADAMW = 80,
  MUSTER_KERNEL_DROPOUT_FORWARD = 90,
  MUSTER_KERNEL_DROPOUT_BACKWARD = 91
  /* 100 on: field_kernels.h */
};

/* An absent optional operand. */
static inline muster_tensor muster_none(void) {
  muster_tensor t = {0, 0, 0, 0, {0}, {0}};
  return t;
}

/* Row-major contiguous view of `dims` sizes (1..8) starting offset_bytes into the buffer. A view with other dims has no sizes:
 * the plan is refused. */
static inline muster_tensor muster_view(muster_buffer buffer, uint64_t offset_bytes, muster_dtype dtype, int32_t dims,
                                        const int64_t* size) {
  muster_tensor t = muster_none();
  int64_t stride = 1;
  int32_t i;
  t.buffer = buffer;
  t.offset_bytes = offset_bytes;
  t.dtype = dtype;
  t.dims = dims;
  if (dims > MUSTER_TENSOR_DIMS_MAX) return t;
  for (i = dims - 1; i >= 0; --i) {
    t.size[i] = size[i];
    t.stride[i] = stride;
    stride *= size[i] > 0 ? size[i] : 1;
  }
  return t;
}
static inline muster_tensor muster_view1(muster_buffer buffer, uint64_t offset_bytes, muster_dtype dtype, int64_t a) {
  return muster_view(buffer, offset_bytes, dtype, 1, &a);
}
static inline muster_tensor muster_view2(muster_buffer buffer, uint64_t offset_bytes, muster_dtype dtype, int64_t a, int64_t b) {
  int64_t size[2];
  size[0] = a;
  size[1] = b;
  return muster_view(buffer, offset_bytes, dtype, 2, size);
}
static inline muster_tensor muster_view3(muster_buffer buffer, uint64_t offset_bytes, muster_dtype dtype, int64_t a, int64_t b,
                                         int64_t c) {
  int64_t size[3];
  size[0] = a;
  size[1] = b;
  size[2] = c;
  return muster_view(buffer, offset_bytes, dtype, 3, size);
}
static inline muster_tensor muster_view4(muster_buffer buffer, uint64_t offset_bytes, muster_dtype dtype, int64_t a, int64_t b,
                                         int64_t c, int64_t d) {
  int64_t size[4];
  size[0] = a;
  size[1] = b;
  size[2] = c;
  size[3] = d;
  return muster_view(buffer, offset_bytes, dtype, 4, size);
}

/* A kernel without operands: MUSTER_KERNEL_*. Builders append to it. */
static inline muster_kernel muster_kernel_of(int32_t op) {
  muster_kernel k;
  uint32_t i;
  k.size = (uint32_t)sizeof(muster_kernel);
  k.op = op;
  k.tensor_count = 0;
  k.int_count = 0;
  k.real_count = 0;
  k.flags = 0;
  for (i = 0; i < MUSTER_KERNEL_TENSORS_MAX; ++i) k.tensors[i] = muster_none();
  for (i = 0; i < MUSTER_KERNEL_INTS_MAX; ++i) k.ints[i] = 0;
  for (i = 0; i < MUSTER_KERNEL_REALS_MAX; ++i) k.reals[i] = 0.0;
  return k;
}
/* Appends t to the operands of k. One beyond MUSTER_KERNEL_TENSORS_MAX is counted and not kept: the plan is refused. */
static inline void muster_kernel_operand(muster_kernel* k, muster_tensor t) {
  if (k->tensor_count < MUSTER_KERNEL_TENSORS_MAX) k->tensors[k->tensor_count] = t;
  ++k->tensor_count;
}
/* Likewise a number to the ints, and to the reals, of k. */
static inline void muster_kernel_int(muster_kernel* k, int64_t value) {
  if (k->int_count < MUSTER_KERNEL_INTS_MAX) k->ints[k->int_count] = value;
  ++k->int_count;
}
static inline void muster_kernel_real(muster_kernel* k, double value) {
  if (k->real_count < MUSTER_KERNEL_REALS_MAX) k->reals[k->real_count] = value;
  ++k->real_count;
}

/* ---- elementwise and reductions to a scalar ------------------------------------------------------------------------ */

/* target = source, elementwise, same shape, any strides; dtypes may differ (F32, BF16, F16, F64 among each other; equal
 * integers). Cast, copy, pack and unpack are this kernel. target may be source. */
static inline muster_kernel muster_copy(muster_tensor source, muster_tensor target) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_COPY);
  muster_kernel_operand(&k, source);
  muster_kernel_operand(&k, target);
  return k;
}
/* target = value. Any dtype. */
static inline muster_kernel muster_fill(muster_tensor target, double value) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_FILL);
  muster_kernel_operand(&k, target);
  muster_kernel_real(&k, value);
  return k;
}
/* y = a·x + b·y, same shape. x and y F32, BF16 or F16, also mixed. b = 0 does not read y. y may be x. */
static inline muster_kernel muster_axpby(double a, muster_tensor x, double b, muster_tensor y) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_AXPBY);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, y);
  muster_kernel_real(&k, a);
  muster_kernel_real(&k, b);
  return k;
}
/* out[1] (F32 or F64) = scale · sum of all elements of x, accumulated in f64. */
static inline muster_kernel muster_sum(muster_tensor x, muster_tensor out, double scale, int accumulate) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_SUM);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, out);
  muster_kernel_real(&k, scale);
  muster_kernel_int(&k, accumulate);
  return k;
}
/* out[1] (F32 or F64) = scale · sum of squares, accumulated in f64. */
static inline muster_kernel muster_sum_squares(muster_tensor x, muster_tensor out, double scale, int accumulate) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_SUM_SQUARES);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, out);
  muster_kernel_real(&k, scale);
  muster_kernel_int(&k, accumulate);
  return k;
}
/* out[1] (F32 or F64) = scale · number of elements of x that are zero (-0.0 is, a NaN is not), counted in f64. */
static inline muster_kernel muster_count_zeros(muster_tensor x, muster_tensor out, double scale, int accumulate) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_COUNT_ZEROS);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, out);
  muster_kernel_real(&k, scale);
  muster_kernel_int(&k, accumulate);
  return k;
}
/* norm = sqrt(square_sum[1]) ; out[0] = min(1, max_norm / (norm + 1e-6)), out[1] = norm. max_norm <= 0: out[0] = 1.
 * square_sum F32 or F64 [1]; out F32 [2]. A norm that is not finite gives out[0] = NaN. */
static inline muster_kernel muster_clip_coefficient(muster_tensor square_sum, muster_tensor out, double max_norm) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_CLIP_COEFFICIENT);
  muster_kernel_operand(&k, square_sum);
  muster_kernel_operand(&k, out);
  muster_kernel_real(&k, max_norm);
  return k;
}

/* ---- linear: weight is [out, in] as in y = x·wᵀ + b ----------------------------------------------------------------- */

/* y[T,N] = x[T,K] · w[N,K]ᵀ + bias[N] (opt). */
static inline muster_kernel muster_linear_forward(muster_tensor x, muster_tensor w, muster_tensor bias, muster_tensor y) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_LINEAR_FORWARD);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, w);
  muster_kernel_operand(&k, bias);
  muster_kernel_operand(&k, y);
  return k;
}
/* dx[T,K] = dy[T,N] · w[N,K]. */
static inline muster_kernel muster_linear_dgrad(muster_tensor dy, muster_tensor w, muster_tensor dx, int accumulate) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_LINEAR_DGRAD);
  muster_kernel_operand(&k, dy);
  muster_kernel_operand(&k, w);
  muster_kernel_operand(&k, dx);
  muster_kernel_int(&k, accumulate);
  return k;
}
/* dw[N,K] = dy[T,N]ᵀ · x[T,K]; dbias[N] (opt) = column sums of dy. dw and dbias may be F32 while dy and x are BF16. */
static inline muster_kernel muster_linear_wgrad(muster_tensor dy, muster_tensor x, muster_tensor dw, muster_tensor dbias,
                                                int accumulate) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_LINEAR_WGRAD);
  muster_kernel_operand(&k, dy);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, dw);
  muster_kernel_operand(&k, dbias);
  muster_kernel_int(&k, accumulate);
  return k;
}

/* ---- embedding: rows [vocab_offset, vocab_offset + V) of the whole table -------------------------------------------- */

/* out[T,D] = table[V,D] at ids[T] - vocab_offset. An id outside the shard gives a row of zeros, so an all-reduce SUM completes
 * the result. An id that is in no shard (negative or too large) is no error: its row is zeros everywhere. */
static inline muster_kernel muster_embedding_forward(muster_tensor ids, muster_tensor table, muster_tensor out,
                                                     int64_t vocab_offset) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_EMBEDDING_FORWARD);
  muster_kernel_operand(&k, ids);
  muster_kernel_operand(&k, table);
  muster_kernel_operand(&k, out);
  muster_kernel_int(&k, vocab_offset);
  return k;
}
/* dtable[V,D] (F32, or dout's dtype) gets dout[T,D] added at owned ids, in token order; other ids add nothing. */
static inline muster_kernel muster_embedding_backward(muster_tensor ids, muster_tensor dout, muster_tensor dtable,
                                                      int64_t vocab_offset, int accumulate) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_EMBEDDING_BACKWARD);
  muster_kernel_operand(&k, ids);
  muster_kernel_operand(&k, dout);
  muster_kernel_operand(&k, dtable);
  muster_kernel_int(&k, vocab_offset);
  muster_kernel_int(&k, accumulate);
  return k;
}

/* ---- norms over the last dim ------------------------------------------------------------------------------------------ */

/* y[T,D] = x[T,D] · rstd · weight[D], rstd[T] = 1/sqrt(mean(x²) + epsilon). */
static inline muster_kernel muster_rms_norm_forward(muster_tensor x, muster_tensor weight, muster_tensor y, muster_tensor rstd,
                                                    double epsilon) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_RMS_NORM_FORWARD);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, weight);
  muster_kernel_operand(&k, y);
  muster_kernel_operand(&k, rstd);
  muster_kernel_real(&k, epsilon);
  return k;
}
/* dx[T,D] and dweight[D] (F32, or weight's dtype), each overwritten, or added to where its accumulate_ is 1. */
static inline muster_kernel muster_rms_norm_backward(muster_tensor dy, muster_tensor x, muster_tensor weight, muster_tensor rstd,
                                                     muster_tensor dx, muster_tensor dweight, int accumulate_dx,
                                                     int accumulate_dweight) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_RMS_NORM_BACKWARD);
  muster_kernel_operand(&k, dy);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, weight);
  muster_kernel_operand(&k, rstd);
  muster_kernel_operand(&k, dx);
  muster_kernel_operand(&k, dweight);
  muster_kernel_int(&k, accumulate_dx);
  muster_kernel_int(&k, accumulate_dweight);
  return k;
}
/* y = (x - mean)·rstd·weight + bias (bias opt); mean[T], rstd[T]. */
static inline muster_kernel muster_layer_norm_forward(muster_tensor x, muster_tensor weight, muster_tensor bias, muster_tensor y,
                                                      muster_tensor mean, muster_tensor rstd, double epsilon) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_LAYER_NORM_FORWARD);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, weight);
  muster_kernel_operand(&k, bias);
  muster_kernel_operand(&k, y);
  muster_kernel_operand(&k, mean);
  muster_kernel_operand(&k, rstd);
  muster_kernel_real(&k, epsilon);
  return k;
}
/* dx[T,D], dweight[D], dbias[D] (opt). accumulate_dx is for dx, accumulate_dweight for both others. */
static inline muster_kernel muster_layer_norm_backward(muster_tensor dy, muster_tensor x, muster_tensor weight, muster_tensor mean,
                                                       muster_tensor rstd, muster_tensor dx, muster_tensor dweight,
                                                       muster_tensor dbias, int accumulate_dx, int accumulate_dweight) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_LAYER_NORM_BACKWARD);
  muster_kernel_operand(&k, dy);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, weight);
  muster_kernel_operand(&k, mean);
  muster_kernel_operand(&k, rstd);
  muster_kernel_operand(&k, dx);
  muster_kernel_operand(&k, dweight);
  muster_kernel_operand(&k, dbias);
  muster_kernel_int(&k, accumulate_dx);
  muster_kernel_int(&k, accumulate_dweight);
  return k;
}

/* ---- rotary position: rotates pairs (i, i + E/2) of the last dim, x[B,S,H,E] → y, E even -------------------------------- */

/* Angle of pair i at global position p = position + s: p · theta^(-2i/E). direction +1 forward, -1 backward (the transpose).
 * y may be x. */
static inline muster_kernel muster_rope(muster_tensor x, muster_tensor y, int64_t position, double theta, int direction) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_ROPE);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, y);
  muster_kernel_int(&k, position);
  muster_kernel_int(&k, direction);
  muster_kernel_real(&k, theta);
  return k;
}

/* ---- attention: q[B,S,H,E], k and v[B,L,G,E], H a multiple of G (grouped queries), out[B,S,H,E], lse[B,H,S] --------------- */

/* Softmax over keys with global key index <= global query index when causal. q_position and k_position are the global
 * indices of the first query and key. A query with no key gives zeros and lse = -inf. */
static inline muster_kernel muster_attention_forward(muster_tensor q, muster_tensor key, muster_tensor v, muster_tensor out,
                                                     muster_tensor lse, double scale, int causal, int64_t q_position,
                                                     int64_t k_position) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_ATTENTION_FORWARD);
  muster_kernel_operand(&k, q);
  muster_kernel_operand(&k, key);
  muster_kernel_operand(&k, v);
  muster_kernel_operand(&k, out);
  muster_kernel_operand(&k, lse);
  muster_kernel_int(&k, causal);
  muster_kernel_int(&k, q_position);
  muster_kernel_int(&k, k_position);
  muster_kernel_real(&k, scale);
  return k;
}
static inline muster_kernel muster_attention_backward(muster_tensor dout, muster_tensor q, muster_tensor key, muster_tensor v,
                                                      muster_tensor out, muster_tensor lse, muster_tensor dq, muster_tensor dkey,
                                                      muster_tensor dv, double scale, int causal, int64_t q_position,
                                                      int64_t k_position) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_ATTENTION_BACKWARD);
  muster_kernel_operand(&k, dout);
  muster_kernel_operand(&k, q);
  muster_kernel_operand(&k, key);
  muster_kernel_operand(&k, v);
  muster_kernel_operand(&k, out);
  muster_kernel_operand(&k, lse);
  muster_kernel_operand(&k, dq);
  muster_kernel_operand(&k, dkey);
  muster_kernel_operand(&k, dv);
  muster_kernel_int(&k, causal);
  muster_kernel_int(&k, q_position);
  muster_kernel_int(&k, k_position);
  muster_kernel_real(&k, scale);
  return k;
}

/* ---- activations, same shape everywhere ---------------------------------------------------------------------------------- */

/* y = x·Φ(x), the exact form with erf. */
static inline muster_kernel muster_gelu_forward(muster_tensor x, muster_tensor y) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_GELU_FORWARD);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, y);
  return k;
}
static inline muster_kernel muster_gelu_backward(muster_tensor dy, muster_tensor x, muster_tensor dx) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_GELU_BACKWARD);
  muster_kernel_operand(&k, dy);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, dx);
  return k;
}
/* y = gate·sigmoid(gate)·up. */
static inline muster_kernel muster_swiglu_forward(muster_tensor gate, muster_tensor up, muster_tensor y) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_SWIGLU_FORWARD);
  muster_kernel_operand(&k, gate);
  muster_kernel_operand(&k, up);
  muster_kernel_operand(&k, y);
  return k;
}
static inline muster_kernel muster_swiglu_backward(muster_tensor dy, muster_tensor gate, muster_tensor up, muster_tensor dgate,
                                                   muster_tensor dup) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_SWIGLU_BACKWARD);
  muster_kernel_operand(&k, dy);
  muster_kernel_operand(&k, gate);
  muster_kernel_operand(&k, up);
  muster_kernel_operand(&k, dgate);
  muster_kernel_operand(&k, dup);
  return k;
}

/* ---- cross-entropy: targets I32 [T]; a target of -1 is ignored (loss 0, gradient 0) ---------------------------------------- */

/* Any other target that is no column (negative or too large) makes its row's loss and gradient NaN; other rows stay right. */

/* loss[T] = logsumexp(logits[T,V]) - logits[target]; lse[T] is kept for backward. */
static inline muster_kernel muster_cross_entropy_forward(muster_tensor logits, muster_tensor targets, muster_tensor loss,
                                                         muster_tensor lse) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_CROSS_ENTROPY_FORWARD);
  muster_kernel_operand(&k, logits);
  muster_kernel_operand(&k, targets);
  muster_kernel_operand(&k, loss);
  muster_kernel_operand(&k, lse);
  return k;
}
/* dlogits = scale · (softmax - onehot). dlogits may be logits. */
static inline muster_kernel muster_cross_entropy_backward(muster_tensor logits, muster_tensor targets, muster_tensor lse,
                                                          muster_tensor dlogits, double scale) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_CROSS_ENTROPY_BACKWARD);
  muster_kernel_operand(&k, logits);
  muster_kernel_operand(&k, targets);
  muster_kernel_operand(&k, lse);
  muster_kernel_operand(&k, dlogits);
  muster_kernel_real(&k, scale);
  return k;
}

/* Vocabulary-parallel: logits[T,V] are columns [vocab_offset, vocab_offset + V). Run VOCAB_MAX, all-reduce MAX the maxima,
 * VOCAB_SUM_EXP, all-reduce SUM the stats, then VOCAB_LOSS and VOCAB_BACKWARD. Logits are never gathered. A target below -1 gives
 * NaN here too. A target that is too large goes unnoticed, since no rank knows the whole vocabulary. No rank owns it: its loss
 * is that of a target whose logit is the row's maximum, and its gradient is the softmax alone. */

/* row_max[T] = max over the local columns (-inf if V is 0). */
static inline muster_kernel muster_vocab_max(muster_tensor logits, muster_tensor row_max) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_VOCAB_MAX);
  muster_kernel_operand(&k, logits);
  muster_kernel_operand(&k, row_max);
  return k;
}
/* stats[T,2] = {sum of exp(logit - row_max), logit of the target - row_max if owned else 0}. */
static inline muster_kernel muster_vocab_sum_exp(muster_tensor logits, muster_tensor targets, muster_tensor row_max,
                                                 muster_tensor stats, int64_t vocab_offset) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_VOCAB_SUM_EXP);
  muster_kernel_operand(&k, logits);
  muster_kernel_operand(&k, targets);
  muster_kernel_operand(&k, row_max);
  muster_kernel_operand(&k, stats);
  muster_kernel_int(&k, vocab_offset);
  return k;
}
/* loss[T] = log(stats[t,0]) - stats[t,1], 0 for ignored targets. */
static inline muster_kernel muster_vocab_loss(muster_tensor stats, muster_tensor targets, muster_tensor loss) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_VOCAB_LOSS);
  muster_kernel_operand(&k, stats);
  muster_kernel_operand(&k, targets);
  muster_kernel_operand(&k, loss);
  return k;
}
/* dlogits[T,V] = scale · (exp(logit - row_max)/stats[t,0] - onehot). dlogits may be logits. */
static inline muster_kernel muster_vocab_backward(muster_tensor logits, muster_tensor targets, muster_tensor row_max,
                                                  muster_tensor stats, muster_tensor dlogits, int64_t vocab_offset, double scale) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_VOCAB_BACKWARD);
  muster_kernel_operand(&k, logits);
  muster_kernel_operand(&k, targets);
  muster_kernel_operand(&k, row_max);
  muster_kernel_operand(&k, stats);
  muster_kernel_operand(&k, dlogits);
  muster_kernel_int(&k, vocab_offset);
  muster_kernel_real(&k, scale);
  return k;
}

/* ---- optimiser ---------------------------------------------------------------------------------------------------------- */

typedef struct muster_adamw_options {
  double learning_rate, beta1, beta2, epsilon, weight_decay;
} muster_adamw_options;

/* AdamW (Loshchilov & Hutter 2019) on a shard: m and v are F32; param and grad F32; all of one shape. `state` F32 [3] holds
 * {learning_rate multiplier, step (1-based, as a float), gradient multiplier such as the clip coefficient}: it is read when the
 * kernel runs, so one plan serves all steps.
 *   g = grad·state[2]; m = b1·m + (1-b1)·g; v = b2·v + (1-b2)·g²;
 *   param -= lr·state[0]·( (m/(1-b1^t)) / (sqrt(v/(1-b2^t)) + epsilon) + weight_decay·param ) */
static inline muster_kernel muster_adamw(muster_tensor param, muster_tensor grad, muster_tensor m, muster_tensor v,
                                         muster_tensor state, muster_adamw_options options) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_ADAMW);
  muster_kernel_operand(&k, param);
  muster_kernel_operand(&k, grad);
  muster_kernel_operand(&k, m);
  muster_kernel_operand(&k, v);
  muster_kernel_operand(&k, state);
  muster_kernel_real(&k, options.learning_rate);
  muster_kernel_real(&k, options.beta1);
  muster_kernel_real(&k, options.beta2);
  muster_kernel_real(&k, options.epsilon);
  muster_kernel_real(&k, options.weight_decay);
  return k;
}

/* ---- dropout, same shape everywhere -------------------------------------------------------------------------------------- */

/* y = x/(1-p) where an element is kept, 0 where not, whatever x holds. 0 <= p < 1. Element i of x, in row-major order, has index
 * offset + i < 2^63 in the whole tensor, so a shard of consecutive elements drops what the whole drops. It is kept if word
 * index % 4 of a block is at least round(p·2^32). The block is Philox4x32-10 (Salmon et al. 2011, as in Random123) of counter
 * {n low, n high, 0, 0}, n = index / 4, and key {seed low, seed high}, each of 32 bits. The word is also what cuRAND's curand()
 * returns after curand_init(seed, 0, index). The factor 1/(1-p) is rounded to f32. y may be x. */
static inline muster_kernel muster_dropout_forward(muster_tensor x, muster_tensor y, double p, uint64_t seed, int64_t offset) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_DROPOUT_FORWARD);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, y);
  muster_kernel_int(&k, (int64_t)seed);
  muster_kernel_int(&k, offset);
  muster_kernel_real(&k, p);
  return k;
}
/* dx = dy/(1-p) where the forward of the same p, seed and offset kept the element, 0 elsewhere. dx may be dy. */
static inline muster_kernel muster_dropout_backward(muster_tensor dy, muster_tensor dx, double p, uint64_t seed, int64_t offset) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_DROPOUT_BACKWARD);
  muster_kernel_operand(&k, dy);
  muster_kernel_operand(&k, dx);
  muster_kernel_int(&k, (int64_t)seed);
  muster_kernel_int(&k, offset);
  muster_kernel_real(&k, p);
  return k;
}

#ifdef __cplusplus
}
#endif
#endif /* MUSTER_KERNELS_H */
