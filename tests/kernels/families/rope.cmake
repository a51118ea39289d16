muster_test(kernel_rope_test
  SOURCES rope_test.cpp twin/rope.cpp
  ON muster::kernels_rope kernel_fixture
  LABELS tsan HOT)
