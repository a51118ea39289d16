muster_test(kernel_norm_test
  SOURCES norm_test.cpp twin/norm.cpp
  ON muster::kernels_norm kernel_fixture
  LABELS tsan HOT)
