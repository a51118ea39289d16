muster_test(kernel_embedding_test
  SOURCES embedding_test.cpp twin/embedding.cpp
  ON muster::kernels_embedding kernel_fixture
  LABELS tsan HOT)
