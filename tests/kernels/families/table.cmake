muster_test(kernel_table_test SOURCES table_test.cpp launch_test.cpp
  ON muster::kernels muster::device kernel_fixture HOT)
