# The checks that families share, and the written-out table of all kernels.
muster_floor(kernels_check
  FOLDER kernels
  SOURCES check.cpp
  ON muster::base)

muster_floor(kernels
  FOLDER kernels/table.*
  SOURCES table.cpp
  ON muster::base muster::device muster::kernels_check
     muster::kernels_activation muster::kernels_attention muster::kernels_elementwise
     muster::kernels_embedding
     muster::kernels_linear muster::kernels_loss muster::kernels_norm muster::kernels_optimiser
     muster::kernels_rope)
