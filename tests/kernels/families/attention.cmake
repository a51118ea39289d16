muster_test(kernel_attention_test
  SOURCES attention_test.cpp twin/attention.cpp
  ON muster::kernels_attention kernel_fixture
  LABELS tsan HOT)
