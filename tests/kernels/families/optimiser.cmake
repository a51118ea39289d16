muster_test(kernel_optimiser_test
  SOURCES optimiser_test.cpp twin/optimiser.cpp
  ON muster::kernels_optimiser kernel_fixture
  LABELS tsan HOT)
