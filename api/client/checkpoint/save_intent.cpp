#include "api/client/checkpoint/save_intent.hpp"

#include <cstring>
#include <utility>

namespace muster::client {
namespace {

// Takes numbers and texts from bytes that may end too early: then all that follow are empty.
//
// Owns    nothing: the bytes outlive it.
// Thread  a value; one.
// Bound   the bytes.
// Fails   never; sound() says whether all was there.
class Unpacking {
 public:
  explicit Unpacking(std::string_view bytes) : bytes_(bytes) {}

  template<class Number>
  Number number() {
    Number value{};
    const std::string_view from = take(sizeof value);
    if (sound_) std::memcpy(&value, from.data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(number<std::uint64_t>())); }
  // How many entries follow, each of `least` bytes or more; one at most, where that is 0.
  std::uint64_t entries(std::size_t least) {
    const auto count = number<std::uint64_t>();
    if (count <= (least == 0 ? 1 : bytes_.size() / least)) return count;
    sound_ = false;
    return 0;
  }
  Index index(std::size_t dims) {
    Index values{};
    for (std::size_t dim = 0; dim < dims; ++dim) values[dim] = number<std::int64_t>();
    return values;
  }
  bool sound() const { return sound_; }
  bool ended() const { return sound_ && bytes_.empty(); }

 private:
  std::string_view take(std::uint64_t count) {
    sound_ = sound_ && count <= bytes_.size();
    if (!sound_) return {};
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  std::string_view bytes_;
  bool sound_ = true;
};

template<class Number>
void pack(std::string& bytes, Number value) {
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  bytes.append(raw, sizeof raw);
}

void pack_text(std::string& bytes, std::string_view text) {
  pack(bytes, std::uint64_t{text.size()});
  bytes += text;
}

void pack_index(std::string& bytes, const Index& index, std::size_t dims) {
  for (std::size_t dim = 0; dim < dims; ++dim) pack(bytes, index[dim]);
}

bool unpack_tensor(Unpacking& from, checkpoint::OwnTensor& tensor) {
  tensor.name = from.text();
  tensor.dtype = from.number<muster_dtype>();
  tensor.dims = from.number<std::uint64_t>();
  if (!from.sound() || tensor.dims > tensor.shape.size()) return false;
  tensor.shape = from.index(tensor.dims);
  for (auto left = from.entries(2 * tensor.dims * sizeof(std::int64_t)); left > 0 && from.sound(); --left) {
    Box box{tensor.dims, from.index(tensor.dims), {}};
    box.length = from.index(tensor.dims);
    tensor.boxes.push_back(box);
    if (tensor.boxes.size() > checkpoint::kBoxesMax) return false;
  }
  return from.sound();
}

}  // namespace

std::string packed(const SaveIntent& intent) {
  std::string bytes;
  pack_text(bytes, intent.folder);
  pack_text(bytes, intent.name);
  pack(bytes, intent.step);
  pack(bytes, intent.flags);
  pack(bytes, intent.nonce);
  pack(bytes, std::uint64_t{intent.tensors.size()});
  for (const checkpoint::OwnTensor& tensor : intent.tensors) {
    pack_text(bytes, tensor.name);
    pack(bytes, tensor.dtype);
    pack(bytes, std::uint64_t{tensor.dims});
    pack_index(bytes, tensor.shape, tensor.dims);
    pack(bytes, std::uint64_t{tensor.boxes.size()});
    for (const Box& box : tensor.boxes) {
      pack_index(bytes, box.offset, tensor.dims);
      pack_index(bytes, box.length, tensor.dims);
    }
  }
  return bytes;
}

Result<SaveIntent> unpacked(std::string_view bytes) {
  Unpacking from(bytes);
  SaveIntent intent;
  intent.folder = from.text();
  intent.name = from.text();
  intent.step = from.number<std::uint64_t>();
  intent.flags = from.number<std::uint32_t>();
  intent.nonce = from.number<std::uint64_t>();
  bool sound = true;
  for (auto left = from.entries(1); left > 0 && sound; --left) {
    checkpoint::OwnTensor tensor;
    sound = unpack_tensor(from, tensor);
    intent.tensors.push_back(std::move(tensor));
  }
  if (sound && from.ended()) return intent;
  return fail(Code::kProtocol, "a member has sent a list of tensors that cannot be read");
}

}  // namespace muster::client
