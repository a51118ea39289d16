# Every package the build uses, in one place. deploy/setup.sh installs them on Debian 12.
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)                 # text formatting: its headers, compiled once in api/base
find_package(tl-expected REQUIRED)           # Result<T>
find_package(yaml-cpp 0.7 REQUIRED)          # daemon/config only
find_package(nlohmann_json 3.11 REQUIRED)    # daemon: JSON output and CBOR control messages
find_package(CLI11 2.1 REQUIRED)             # daemon/cli and the programs
find_package(dnnl 2.6 CONFIG REQUIRED)       # kernels/onednn: matrix products
find_package(OpenMP REQUIRED COMPONENTS CXX) # kernels/onednn: keeps oneDNN on the calling thread
find_package(hwy CONFIG REQUIRED)            # kernels/math: SIMD with run-time dispatch
find_package(PkgConfig REQUIRED)
pkg_check_modules(SYSTEMD REQUIRED IMPORTED_TARGET libsystemd>=252)   # daemon/supervisor: sd_notify
pkg_check_modules(OPENSSL REQUIRED IMPORTED_TARGET libcrypto>=3.0)    # tokens
pkg_check_modules(OPENSSL_TLS REQUIRED IMPORTED_TARGET libssl>=3.0)   # daemon/control: TLS
pkg_check_modules(OFI REQUIRED IMPORTED_TARGET libfabric>=1.17)      # transport/ofi: the same
pkg_check_modules(UCX REQUIRED IMPORTED_TARGET ucx>=1.13)            # transport/ucx: bytes between nodes
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash>=0.8)     # 128-bit signatures and manifests

add_library(muster_fmt INTERFACE)
add_library(muster::fmt ALIAS muster_fmt)
target_include_directories(muster_fmt SYSTEM INTERFACE
  $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>)

find_path(MUSTER_ASIO_INCLUDE asio.hpp REQUIRED)                      # daemon/control, daemon/supervisor
add_library(muster_asio INTERFACE)
add_library(muster::asio ALIAS muster_asio)
target_include_directories(muster_asio SYSTEM INTERFACE ${MUSTER_ASIO_INCLUDE})
target_compile_definitions(muster_asio INTERFACE ASIO_STANDALONE ASIO_NO_DEPRECATED)
if(MUSTER_SANITIZE MATCHES "thread")
  # ThreadSanitizer knows no fences; an event loop of one thread needs none.
  target_compile_definitions(muster_asio INTERFACE ASIO_DISABLE_FENCED_BLOCK)
endif()
target_link_libraries(muster_asio INTERFACE Threads::Threads)

if(MUSTER_BUILD_TESTS)
  find_package(GTest 1.12 REQUIRED)
endif()

set(MUSTER_HAVE_CUDA OFF)
if(NOT MUSTER_CUDA STREQUAL "OFF")
  find_program(MUSTER_NVCC nvcc HINTS ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES bin)
  if(MUSTER_NVCC)
    set(CMAKE_CUDA_COMPILER ${MUSTER_NVCC})
    set(CMAKE_CUDA_STANDARD 20)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(MUSTER_HAVE_CUDA ON)
  elseif(MUSTER_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MUSTER_CUDA=ON but nvcc was not found; put it on PATH or set CUDA_HOME")
  endif()
endif()
message(STATUS "cuda backend: ${MUSTER_HAVE_CUDA}")
