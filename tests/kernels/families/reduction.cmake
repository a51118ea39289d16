muster_test(kernel_reduction_test
  SOURCES reduction_test.cpp
  ON muster::kernels_reduction kernel_fixture HOT)
