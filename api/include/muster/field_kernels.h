/* muster/field_kernels.h - kernels on boxes of fields that are cut over ranks, one builder each. C11, header-only. The conventions are
 * those of kernels.h; which part of a field a rank has, and what it needs of others, says halo.h. */
#ifndef MUSTER_FIELD_KERNELS_H
#define MUSTER_FIELD_KERNELS_H

#include <muster/kernels.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers are part of the ABI: append only. */
enum {
  MUSTER_KERNEL_CONVOLUTION_FORWARD = 100,
  MUSTER_KERNEL_CONVOLUTION_DGRAD = 101,
  MUSTER_KERNEL_CONVOLUTION_WGRAD = 102,
  MUSTER_KERNEL_GROUP_NORM_STATISTICS = 110,
  MUSTER_KERNEL_GROUP_NORM_MERGE = 111,
  MUSTER_KERNEL_GROUP_NORM_FORWARD = 112,
  MUSTER_KERNEL_GROUP_NORM_BACKWARD_SUMS = 113,
  MUSTER_KERNEL_GROUP_NORM_BACKWARD = 114,
  MUSTER_KERNEL_INTERPOLATE_FORWARD = 120,
  MUSTER_KERNEL_INTERPOLATE_BACKWARD = 121,
  MUSTER_KERNEL_SUM_OVER = 130,
  MUSTER_KERNEL_SPREAD = 131,
  MUSTER_KERNEL_PRODUCT = 132
};

/* ---- convolutions ------------------------------------------------------------------------------------------------- */

/* Which part of a field a convolution kernel computes, in 1 to 3 spatial dims. All numbers are of the whole field. So the interior and
 * the boundaries of a rank's part (halo.h) are launches of one kernel, and give the bits that one rank would give. Items outside of x
 * are zeros: a rank holds all that its results read, but pads of zeros. Entries from the number of spatial dims on stay as in INIT,
 * but for length, which is 0 there. */
typedef struct muster_convolution {
  int64_t groups;
  int64_t stride[3];
  int64_t dilation[3];
  int64_t before[3];   /* the pad before the field: result o reads the items from o·stride-before on      */
  int64_t x_offset[3]; /* the item with which x, or dx, begins: muster_halo_info.held.offset              */
  int64_t y_offset[3]; /* the result with which y, or dy, begins: muster_halo_info.results.offset         */
  int64_t offset[3];   /* the box that is computed: of results; DGRAD: of items                           */
  int64_t length[3];
} muster_convolution;
#define MUSTER_CONVOLUTION_INIT {1, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}}

/* Appends the numbers of c to the ints of k; for the builders below. */
static inline void muster_kernel_convolution(muster_kernel* k, const muster_convolution* c, int accumulate) {
  const int64_t* const lists[7] = {c->stride, c->dilation, c->before, c->x_offset, c->y_offset, c->offset, c->length};
  int i, d;
  muster_kernel_int(k, c->groups);
  muster_kernel_int(k, accumulate);
  for (i = 0; i < 7; ++i)
    for (d = 0; d < 3; ++d) muster_kernel_int(k, lists[i][d]);
}
/* In the box, y[n, o..., k] = bias[k] + sum over taps and channels of w[k, tap..., c] · x[n, o·stride-before+dilation·tap..., c]. The
 * rest of y stays. x [N, items..., C], w [K, kernel..., C/groups], bias (opt) [K], y [N, results..., K]: channels last. Fastest where C
 * and K lie end to end in memory, and the box has whole rows of x and y along all spatial dims but the outermost. */
static inline muster_kernel muster_convolution_forward(const muster_convolution* c, muster_tensor x, muster_tensor w, muster_tensor bias,
                                                       muster_tensor y) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_CONVOLUTION_FORWARD);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, w);
  muster_kernel_operand(&k, bias);
  muster_kernel_operand(&k, y);
  muster_kernel_convolution(&k, c, 0);
  return k;
}
/* In the box, dx = what the results of dy give to these items. Results outside of dy give nothing. */
static inline muster_kernel muster_convolution_dgrad(const muster_convolution* c, muster_tensor dy, muster_tensor w, muster_tensor dx,
                                                     int accumulate) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_CONVOLUTION_DGRAD);
  muster_kernel_operand(&k, dy);
  muster_kernel_operand(&k, w);
  muster_kernel_operand(&k, dx);
  muster_kernel_convolution(&k, c, accumulate);
  return k;
}
/* dw [K, kernel..., C/groups] and dbias (opt) [K], F32 or as dy: what the results of the box give. Ranks' gradients add up to the whole
 * field's, because each result belongs to one of them. Sums are in double, tile by tile in one order. */
static inline muster_kernel muster_convolution_wgrad(const muster_convolution* c, muster_tensor dy, muster_tensor x, muster_tensor dw,
                                                     muster_tensor dbias, int accumulate) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_CONVOLUTION_WGRAD);
  muster_kernel_operand(&k, dy);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, dw);
  muster_kernel_operand(&k, dbias);
  muster_kernel_convolution(&k, c, accumulate);
  return k;
}

/* ---- group norm ---------------------------------------------------------------------------------------------------- */

/* Group norm of a field whose items are cut over ranks; channels come last. Three steps, forward and backward: each rank's own numbers,
 * their exchange, and a pass over own items.
 *
 *   group_norm_statistics, an all-gather of `statistics` over the ranks that cut the items, group_norm_merge, group_norm_forward
 *   group_norm_backward_sums, an all-reduce (SUM) of `sums` over them, group_norm_backward
 *
 * Nothing is lost where values are large beside what they differ by: statistics are the count, the mean and the squared deviations from
 * it, in F64, and are merged in the order of ranks. An empty shard counts nothing. */

/* statistics [N, G, 3] (F64) = of each sample and group: how many elements, their mean, the sum of squared deviations from it.
 * x [N, items..., C], C a multiple of G. */
static inline muster_kernel muster_group_norm_statistics(muster_tensor x, muster_tensor statistics) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_GROUP_NORM_STATISTICS);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, statistics);
  return k;
}
/* merged [N, G, 3] (F64) = of the whole field: mean, 1/sqrt(variance + epsilon), and how many elements. all [ranks, N, G, 3]. */
static inline muster_kernel muster_group_norm_merge(muster_tensor all, muster_tensor merged, double epsilon) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_GROUP_NORM_MERGE);
  muster_kernel_operand(&k, all);
  muster_kernel_operand(&k, merged);
  muster_kernel_real(&k, epsilon);
  return k;
}
/* y = (x - mean)·rstd·weight + bias. weight and bias (opt) [C], as x. y may be x. */
static inline muster_kernel muster_group_norm_forward(muster_tensor x, muster_tensor merged, muster_tensor weight, muster_tensor bias,
                                                      muster_tensor y) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_GROUP_NORM_FORWARD);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, merged);
  muster_kernel_operand(&k, weight);
  muster_kernel_operand(&k, bias);
  muster_kernel_operand(&k, y);
  return k;
}
/* sums [N, G, 2] (F64) = over own items: dy·weight, and dy·weight·(x - mean)·rstd. dweight and dbias (opt) [C], F32 or as x: over own
 * items, so ranks' add up to the whole field's. */
static inline muster_kernel muster_group_norm_backward_sums(muster_tensor dy, muster_tensor x, muster_tensor merged, muster_tensor weight,
                                                            muster_tensor sums, muster_tensor dweight, muster_tensor dbias,
                                                            int accumulate) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_GROUP_NORM_BACKWARD_SUMS);
  muster_kernel_operand(&k, dy);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, merged);
  muster_kernel_operand(&k, weight);
  muster_kernel_operand(&k, sums);
  muster_kernel_operand(&k, dweight);
  muster_kernel_operand(&k, dbias);
  muster_kernel_int(&k, accumulate);
  return k;
}
/* dx, from the sums of all ranks. dx may be dy. */
static inline muster_kernel muster_group_norm_backward(muster_tensor dy, muster_tensor x, muster_tensor merged, muster_tensor weight,
                                                       muster_tensor sums, muster_tensor dx) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_GROUP_NORM_BACKWARD);
  muster_kernel_operand(&k, dy);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, merged);
  muster_kernel_operand(&k, weight);
  muster_kernel_operand(&k, sums);
  muster_kernel_operand(&k, dx);
  return k;
}

/* ---- interpolation -------------------------------------------------------------------------------------------------- */

/* Which part of an interpolated field a kernel computes, in 1 to 3 spatial dims. All numbers are of the whole field, so a rank takes the
 * same items with the same weights as one rank would. Entries from the number of spatial dims on stay as in INIT. */
typedef struct muster_interpolation {
  int32_t mode;        /* MUSTER_WINDOW_NEAREST (5), NEAREST_EXACT (6), LINEAR (7) or LINEAR_ALIGNED (8) of halo.h, in all dims */
  int64_t items[3];    /* of the field                                                                                      */
  int64_t results[3];  /* of its interpolation; 0: as scale says                                                           */
  double scale[3];     /* results for each item, rounded down; 0: as results says                                          */
  int64_t x_offset[3]; /* the item with which x, or dx, begins                                                             */
  int64_t y_offset[3]; /* the result with which y, or dy, begins                                                           */
  int64_t offset[3];   /* the box that is computed: of results; BACKWARD: of items                                         */
  int64_t length[3];
} muster_interpolation;
#define MUSTER_INTERPOLATION_INIT {5, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}}

/* Appends the numbers of n to the ints and the reals of k; for the builders below. */
static inline void muster_kernel_interpolation(muster_kernel* k, const muster_interpolation* n, int accumulate) {
  const int64_t* const lists[6] = {n->items, n->results, n->x_offset, n->y_offset, n->offset, n->length};
  int i, d;
  muster_kernel_int(k, n->mode);
  muster_kernel_int(k, accumulate);
  for (i = 0; i < 6; ++i)
    for (d = 0; d < 3; ++d) muster_kernel_int(k, lists[i][d]);
  for (d = 0; d < 3; ++d) muster_kernel_real(k, n->scale[d]);
}
/* In the box, y = the interpolation of x; the rest of y stays. x [N, items..., C], y [N, results..., C]. */
static inline muster_kernel muster_interpolate_forward(const muster_interpolation* n, muster_tensor x, muster_tensor y) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_INTERPOLATE_FORWARD);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, y);
  muster_kernel_interpolation(&k, n, 0);
  return k;
}
/* In the box, dx = what the results of dy give to these items. */
static inline muster_kernel muster_interpolate_backward(const muster_interpolation* n, muster_tensor dy, muster_tensor dx,
                                                        int accumulate) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_INTERPOLATE_BACKWARD);
  muster_kernel_operand(&k, dy);
  muster_kernel_operand(&k, dx);
  muster_kernel_interpolation(&k, n, accumulate);
  return k;
}

/* ---- sums over dims, and products with a weight that is spread over dims ------------------------------------------------- */

/* sums = scale · sum of x over the dims in which sums has size 1; other sizes are equal. x F32, BF16 or F64, sums F32 or F64; added in
 * F64. A mean over items that are cut over ranks is this with scale 1, an all-reduce, and a division by the number of items of the whole
 * field: an empty shard counts nothing. */
static inline muster_kernel muster_sum_over(muster_tensor x, muster_tensor sums, double scale, int accumulate) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_SUM_OVER);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, sums);
  muster_kernel_real(&k, scale);
  muster_kernel_int(&k, accumulate);
  return k;
}
/* y = scale · x, where x has size 1 in the dims over which it is spread; its gradient is muster_sum_over, and the other way. x F32, BF16
 * or F64, y F32 or BF16. */
static inline muster_kernel muster_spread(muster_tensor x, muster_tensor y, double scale, int accumulate) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_SPREAD);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, y);
  muster_kernel_real(&k, scale);
  muster_kernel_int(&k, accumulate);
  return k;
}
/* y = scale · x · w, element by element, where w has size 1 in the dims over which it is spread: a weight for each row of a field, or a
 * mask. The gradient by x is this kernel with dy; that by w is muster_sum_over of the product with dy. y may be x. x and w F32, BF16 or
 * F64, y F32 or BF16. */
static inline muster_kernel muster_product(muster_tensor x, muster_tensor w, muster_tensor y, double scale, int accumulate) {
  muster_kernel k = muster_kernel_of(MUSTER_KERNEL_PRODUCT);
  muster_kernel_operand(&k, x);
  muster_kernel_operand(&k, w);
  muster_kernel_operand(&k, y);
  muster_kernel_real(&k, scale);
  muster_kernel_int(&k, accumulate);
  return k;
}

#ifdef __cplusplus
}
#endif
#endif /* MUSTER_FIELD_KERNELS_H */
