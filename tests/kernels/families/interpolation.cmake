muster_test(kernel_interpolation_test
  SOURCES interpolation_test.cpp
  ON muster::kernels_interpolation muster::halo kernel_fixture HOT)
