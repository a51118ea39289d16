muster_test(kernel_activation_test
  SOURCES activation_test.cpp twin/activation.cpp
  ON muster::kernels_activation kernel_fixture
  LABELS tsan HOT)
