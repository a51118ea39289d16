/* muster/field_kernels.h - kernels on boxes of fields that are cut over ranks, one builder each. C11, header-only. The conventions are
 * those of kernels.h; which part of a field a rank has, and what it needs of others, says halo.h. */
#ifndef MUSTER_FIELD_KERNELS_H
#define MUSTER_FIELD_KERNELS_H

#include <muster/kernels.h>

#ifdef __cplusplus
extern "C" {
#endif

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

static inline void muster_kernel_convolution(muster_kernel* k, const muster_convolution* c, int accumulate) {
  const int64_t* const lists[7] = {c->stride, c->dilation, c->before, c->x_offset, c->y_offset, c->offset, c->length};
  int i, d;
  muster_kernel_int(k, c->groups);
  muster_kernel_int(k, accumulate);
  for (i = 0; i < 7; ++i)
    for (d = 0; d < 3; ++d) muster_kernel_int(k, lists[i][d]);
}
/* In the box, y[n, o..., k] = bias[k] + sum over taps and channels of w[k, tap..., c] · x[n, o·stride-before+dilation·tap..., c]. The rest
 * of y stays. x [N, items..., C], w [K, kernel..., C/groups], bias (opt) [K], y [N, results..., K]: channels last. Fastest where C and K
 * lie end to end in memory, and the box has whole rows of x and y along all spatial dims but the outermost. */
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

#ifdef __cplusplus
}
#endif
#endif /* MUSTER_FIELD_KERNELS_H */
