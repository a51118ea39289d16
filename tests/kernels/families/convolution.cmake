muster_test(kernel_convolution_test
  SOURCES convolution_test.cpp twin/convolution.cpp
  ON muster::kernels_convolution kernel_fixture
  VENDOR DNNL::dnnl
  LABELS tsan HOT)
