// Comparison of the C API: the views that a caller gives.
#include "api/base/dtype.hpp"
#include "api/base/empty_view.hpp"
#include "api/client/session/session.hpp"

#include <algorithm>
#include <limits>
#include <vector>

using muster::Code;
using muster::fail;
using muster::failure;
using muster::Nanos;
using muster::Result;
using muster::Status;
using muster::client::Buffers;
using View = muster::client::Held::View;

namespace {

__extension__ using Wide = unsigned __int128;
constexpr Wide kBytesMax = static_cast<Wide>(std::numeric_limits<std::int64_t>::max());

// Bytes from the view's first element to one past its last; each size and stride has been found possible.
Result<Wide> extent_of(const muster_tensor& t, std::size_t i, std::size_t element) {
  Wide count = 1;
  Wide last = 0;
  const bool empty = muster::has_no_elements(t);
  for (int d = 0; d < t.dims; ++d) {
    const std::int64_t size = t.size[d];
    const std::int64_t stride = t.stride[d];
    if (size < 0 || (!empty && (stride < 0 || (size > 1 && stride == 0))))
      return fail(Code::kBadArgument,
                  "views[{}]: size {} and stride {} of dim {}: a size is 0 or more, a stride 1 or more", i,
                  size, stride, d);
    if (empty || size <= 1) continue;
    count = std::min(count * static_cast<Wide>(size), kBytesMax);
    last = std::min(last + static_cast<Wide>(size - 1) * static_cast<Wide>(stride), kBytesMax);
  }
  if (empty) return Wide{0};
  if (count * element >= kBytesMax) return fail(Code::kBadArgument, "views[{}] has more than 2^63 bytes", i);
  return (last + 1) * element;
}

Result<View> checked_view(const Buffers& buffers, const muster_tensor& t, std::size_t i) {
  const std::size_t element = muster::dtype_bytes(t.dtype);
  if (element == 0) return fail(Code::kBadArgument, "views[{}]: dtype {} does not exist", i, t.dtype);
  if (t.dims < 0 || t.dims > MUSTER_TENSOR_DIMS_MAX)
    return fail(Code::kBadArgument, "views[{}]: {} dims; 0 to {} are possible", i, t.dims,
                MUSTER_TENSOR_DIMS_MAX);
  if (t.offset_bytes % element != 0)
    return fail(Code::kBadArgument, "views[{}]: offset {} is not a multiple of the element's {} bytes", i,
                t.offset_bytes, element);
  muster_buffer_info buffer = MUSTER_BUFFER_INFO_INIT;
  if (const Status known = buffers.query(t.buffer, &buffer); !known.ok())
    return fail(known.code(), "views[{}]: {}", i, known.message());
  if (buffer.address == nullptr)
    return fail(Code::kUnsupported, "views[{}]: this process does not see the memory of its device", i);
  MUSTER_ASSIGN_OR_RETURN(const Wide extent, extent_of(t, i, element));
  if (static_cast<Wide>(t.offset_bytes) + extent > buffer.bytes)
    return fail(Code::kBadArgument, "views[{}] ends behind the {} bytes of its buffer (offset {})", i,
                buffer.bytes, t.offset_bytes);
  View view;
  view.dtype = t.dtype;
  view.face = muster::make_face({0, 0, t}, static_cast<std::byte*>(buffer.address) + t.offset_bytes);
  return view;
}

}  // namespace

extern "C" {

muster_status_t muster_compare(muster_session* session, muster_group group, const muster_tensor* views,
                               size_t count, int64_t timeout_ns) {
  return muster::client::with_session(session, [&]() -> Status {
    if (views == nullptr && count > 0)
      return failure(Code::kBadArgument, "views is NULL but {} are to be compared", count);
    if (timeout_ns < 0)
      return failure(Code::kBadArgument, "timeout_ns {} is negative; 0 is the group's default", timeout_ns);
    std::vector<View> checked;
    checked.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      MUSTER_ASSIGN_OR_RETURN(auto view, checked_view(session->buffers(), views[i], i));
      checked.push_back(view);
    }
    // The refusals come first: the digest after them may take long.
    MUSTER_RETURN_IF_ERROR(session->comparison().prepare(group));
    return session->runs().compare(group, muster::client::held_of(checked), {}, Nanos(timeout_ns));
  });
}
}
