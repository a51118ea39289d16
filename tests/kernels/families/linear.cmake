muster_test(kernel_linear_test
  SOURCES linear_test.cpp twin/linear.cpp
  ON muster::kernels_linear kernel_fixture
  LABELS tsan HOT)
muster_test(kernel_product_test
  SOURCES product_test.cpp twin/linear.cpp
  ON muster::kernels_linear kernel_fixture HOT)
