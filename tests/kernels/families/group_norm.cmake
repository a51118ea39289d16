muster_test(kernel_group_norm_test
  SOURCES group_norm_test.cpp twin/group_norm.cpp
  ON muster::kernels_group_norm kernel_fixture
  LABELS tsan HOT)
