muster_test(kernel_dropout_test
  SOURCES dropout_test.cpp twin/dropout.cpp
  ON muster::kernels_dropout kernel_fixture
  LABELS tsan HOT)
