muster_test(kernel_loss_test
  SOURCES loss_test.cpp twin/loss.cpp
  ON muster::kernels_loss kernel_fixture
  LABELS tsan HOT)
