// The tail of a message: lists of numbers, tensors and faces, end to end.
//
// A tensor is a TensorHeader, then its sizes, then its strides (std::int64_t). So it has the length that its
// dims need. The heads are in control.hpp.
#pragma once

#include "api/base/result.hpp"
#include "api/shm/control.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster::shm {

// The number of entries of size[] and stride[] in a message. If the dims of a tensor are out of range, it is
// the nearest possible number; the engine refuses such a tensor by its name.
constexpr std::size_t dims_sent(std::int32_t dims) {
  return static_cast<std::size_t>(dims < 0                        ? 0
                                  : dims > MUSTER_TENSOR_DIMS_MAX ? MUSTER_TENSOR_DIMS_MAX
                                                                  : dims);
}
constexpr std::size_t tensor_bytes(std::int32_t dims) {
  return sizeof(TensorHeader) + 2 * dims_sent(dims) * sizeof(std::int64_t);
}
constexpr std::size_t face_bytes(std::int32_t dims) {
  return sizeof(FaceHeader) - sizeof(TensorHeader) + tensor_bytes(dims);
}
static_assert(sizeof(PlanCollective) + kFacesMax * face_bytes(MUSTER_TENSOR_DIMS_MAX) <= kMessageBytesMax);

void append(std::vector<std::byte>& to, std::span<const std::uint64_t> numbers);
void append(std::vector<std::byte>& to, std::span<const std::int64_t> numbers);
void append(std::vector<std::byte>& to, std::span<const std::uint32_t> numbers);
void append(std::vector<std::byte>& to, std::span<const muster_piece> pieces);
void append(std::vector<std::byte>& to, std::span<const double> numbers);
void append(std::vector<std::byte>& to, const muster_tensor& tensor);
void append(std::vector<std::byte>& to, const muster_face& face);

// The message of a kernel without its header, and the lists behind it.
PlanKernel message_of(const muster_kernel& kernel);
std::vector<std::byte> tail_for(const muster_kernel& kernel);
// The kernel of a message and its tail. A count beyond the room stays as it was sent: the engine refuses it
// by its name. Errors: kProtocol.
Result<muster_kernel> kernel_in(const PlanKernel& message, std::span<const std::byte> tail);

// Takes a tail apart, from its front to its end. It copies each entry out and checks the copy.
//
// Owns    nothing; the bytes outlive it.
// Thread  a value; one at a time.
// Bound   a list gets memory only if its shortest entries would fit into the bytes that are left.
// Fails   kProtocol naming the list: it is longer than the bytes that are left.
class TailReader {
 public:
  explicit TailReader(std::span<const std::byte> bytes) : left_(bytes) {}

  // Takes `entries` entries; `name` is for the error.
  Status take(std::uint32_t entries, const char* name, std::vector<std::uint64_t>* list);
  Status take(std::uint32_t entries, const char* name, std::vector<std::uint32_t>* list);
  Status take(std::uint32_t entries, const char* name, std::vector<muster_piece>* list);
  Status take(std::uint32_t entries, const char* name, std::vector<muster_face>* list);
  Status take(const char* name, std::span<muster_tensor> list);
  Status take(const char* name, std::span<std::int64_t> list);
  Status take(const char* name, std::span<double> list);
  // kProtocol if bytes are left.
  Status end() const;

 private:
  Status check_room(std::size_t entries, std::size_t entry_bytes, const char* name) const;
  template<class T>
  Status copy_out(const char* name, std::span<T> list);
  template<class T>
  Status copy_out(std::uint32_t entries, const char* name, std::vector<T>* list);
  // False: the entry is longer than the bytes that are left.
  bool copy_out(muster_tensor* tensor);

  std::span<const std::byte> left_;
};

}  // namespace muster::shm
