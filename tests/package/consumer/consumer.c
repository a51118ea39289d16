/* Uses the installed library as a stranger would: header and library agree, and calls reach it. */
#include <muster/kernels.h>
#include <muster/muster.h>

#include <stdio.h>
#include <string.h>

int main(void) {
  muster_kernel fill = muster_fill(muster_none(), 1.0);
  if (muster_version() != MUSTER_VERSION) {
    printf("header %06x, library %06x\n", (unsigned)MUSTER_VERSION, (unsigned)muster_version());
    return 1;
  }
  if (strcmp(muster_status_name(MUSTER_ERR_PEER_LOST), "MUSTER_ERR_PEER_LOST") != 0) return 2;
  if (muster_dtype_bytes(MUSTER_BF16) != 2) return 3;
  if (fill.op != MUSTER_KERNEL_FILL) return 4;
  printf("%s\n", muster_status_name(MUSTER_OK));
  return 0;
}
