muster_test(kernel_elementwise_test
  SOURCES elementwise_test.cpp twin/elementwise.cpp
  ON muster::kernels_elementwise kernel_fixture
  LABELS tsan HOT)
