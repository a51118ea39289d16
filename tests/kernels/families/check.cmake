muster_test(kernel_check_test SOURCES check_test.cpp ON muster::kernels_check kernel_fixture HOT)
muster_test(kernel_element_test SOURCES element_test.cpp ON muster::kernels_check kernel_fixture HOT)
