#include "api/shm/tail.hpp"

#include <algorithm>
#include <cstring>

namespace muster::shm {
namespace {

void append_bytes(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// The entries of a kernel's list that stand in a message.
template<class List>
auto sent(List& list, std::uint32_t count) {
  return std::span(list).first(std::min<std::size_t>(count, std::size(list)));
}

}  // namespace

// ---- writing -----------------------------------------------------------------------------------

void append(std::vector<std::byte>& to, std::span<const std::uint64_t> numbers) {
  append_bytes(to, std::as_bytes(numbers));
}

void append(std::vector<std::byte>& to, std::span<const std::int64_t> numbers) {
  append_bytes(to, std::as_bytes(numbers));
}

void append(std::vector<std::byte>& to, std::span<const std::uint32_t> numbers) {
  append_bytes(to, std::as_bytes(numbers));
}

void append(std::vector<std::byte>& to, std::span<const muster_piece> pieces) {
  append_bytes(to, std::as_bytes(pieces));
}

void append(std::vector<std::byte>& to, std::span<const double> numbers) {
  append_bytes(to, std::as_bytes(numbers));
}

void append(std::vector<std::byte>& to, const muster_tensor& tensor) {
  const TensorHeader head{tensor.buffer, tensor.offset_bytes, tensor.dtype, tensor.dims};
  const std::size_t dims = dims_sent(tensor.dims);
  append_bytes(to, std::as_bytes(std::span(&head, 1)));
  append_bytes(to, std::as_bytes(std::span(tensor.size, dims)));
  append_bytes(to, std::as_bytes(std::span(tensor.stride, dims)));
}

void append(std::vector<std::byte>& to, const muster_face& face) {
  append_bytes(to, std::as_bytes(std::span(&face.peer, 1)));
  append_bytes(to, std::as_bytes(std::span(&face.tag, 1)));
  append(to, face.view);
}

PlanKernel message_of(const muster_kernel& kernel) {
  PlanKernel message;
  message.op = kernel.op;
  message.tensors = kernel.tensor_count;
  message.ints = kernel.int_count;
  message.reals = kernel.real_count;
  message.flags = kernel.flags;
  return message;
}

std::vector<std::byte> tail_for(const muster_kernel& kernel) {
  std::vector<std::byte> tail;
  for (const muster_tensor& tensor : sent(kernel.tensors, kernel.tensor_count)) append(tail, tensor);
  append(tail, sent(kernel.ints, kernel.int_count));
  append(tail, sent(kernel.reals, kernel.real_count));
  return tail;
}

// ---- reading -----------------------------------------------------------------------------------

Status TailReader::check_room(std::size_t entries, std::size_t entry_bytes, const char* name) const {
  if (entries <= left_.size() / entry_bytes) return {};
  return failure(Code::kProtocol, "a message says {} entries of {}, but only {} bytes follow", entries, name,
                 left_.size());
}

template<class T>
Status TailReader::copy_out(const char* name, std::span<T> list) {
  MUSTER_RETURN_IF_ERROR(check_room(list.size(), sizeof(T), name));
  if (list.empty()) return {};
  std::memcpy(list.data(), left_.data(), list.size_bytes());
  left_ = left_.subspan(list.size_bytes());
  return {};
}

bool TailReader::copy_out(muster_tensor* tensor) {
  TensorHeader head;
  if (left_.size() < sizeof head) return false;
  std::memcpy(&head, left_.data(), sizeof head);
  if (left_.size() < tensor_bytes(head.dims)) return false;
  *tensor = muster_tensor{head.buffer, head.offset_bytes, head.dtype, head.dims, {0}, {0}};
  const std::size_t list_bytes = dims_sent(head.dims) * sizeof(std::int64_t);
  std::memcpy(tensor->size, left_.data() + sizeof head, list_bytes);
  std::memcpy(tensor->stride, left_.data() + sizeof head + list_bytes, list_bytes);
  left_ = left_.subspan(tensor_bytes(head.dims));
  return true;
}

template<class T>
Status TailReader::copy_out(std::uint32_t entries, const char* name, std::vector<T>* list) {
  MUSTER_RETURN_IF_ERROR(check_room(entries, sizeof(T), name));
  list->resize(entries);
  return copy_out(name, std::span(*list));
}

Status TailReader::take(std::uint32_t entries, const char* name, std::vector<std::uint64_t>* list) {
  return copy_out(entries, name, list);
}

Status TailReader::take(std::uint32_t entries, const char* name, std::vector<std::uint32_t>* list) {
  return copy_out(entries, name, list);
}

Status TailReader::take(std::uint32_t entries, const char* name, std::vector<muster_piece>* list) {
  return copy_out(entries, name, list);
}

Status TailReader::take(const char* name, std::span<std::int64_t> list) {
  return copy_out(name, list);
}

Status TailReader::take(const char* name, std::span<double> list) {
  return copy_out(name, list);
}

Status TailReader::take(const char* name, std::span<muster_tensor> list) {
  MUSTER_RETURN_IF_ERROR(check_room(list.size(), tensor_bytes(0), name));
  for (std::size_t i = 0; i < list.size(); ++i)
    if (!copy_out(&list[i]))
      return failure(Code::kProtocol, "{}[{}] is longer than the {} bytes that are left of its message", name,
                     i, left_.size());
  return {};
}

Status TailReader::take(std::uint32_t entries, const char* name, std::vector<muster_face>* list) {
  MUSTER_RETURN_IF_ERROR(check_room(entries, face_bytes(0), name));
  list->resize(entries);
  for (std::size_t i = 0; i < entries; ++i) {
    muster_face& face = (*list)[i];
    constexpr std::size_t kBeforeView = sizeof face.peer + sizeof face.tag;
    const bool begun = left_.size() >= kBeforeView;
    if (begun) {
      std::memcpy(&face.peer, left_.data(), sizeof face.peer);
      std::memcpy(&face.tag, left_.data() + sizeof face.peer, sizeof face.tag);
      left_ = left_.subspan(kBeforeView);
    }
    if (!begun || !copy_out(&face.view))
      return failure(Code::kProtocol, "{}[{}] is longer than the {} bytes that are left of its message", name,
                     i, left_.size());
  }
  return {};
}

Status TailReader::end() const {
  if (left_.empty()) return {};
  return failure(Code::kProtocol, "{} bytes follow behind all that a message says", left_.size());
}

Result<muster_kernel> kernel_in(const PlanKernel& message, std::span<const std::byte> tail) {
  muster_kernel kernel{};
  kernel.size = sizeof kernel;
  kernel.op = message.op;
  kernel.tensor_count = message.tensors;
  kernel.int_count = message.ints;
  kernel.real_count = message.reals;
  kernel.flags = message.flags;
  TailReader reader(tail);
  MUSTER_RETURN_IF_ERROR(reader.take("tensors", sent(kernel.tensors, message.tensors)));
  MUSTER_RETURN_IF_ERROR(reader.take("ints", sent(kernel.ints, message.ints)));
  MUSTER_RETURN_IF_ERROR(reader.take("reals", sent(kernel.reals, message.reals)));
  MUSTER_RETURN_IF_ERROR(reader.end());
  return kernel;
}

}  // namespace muster::shm
