#include "api/base/checkpoint/write_plan.hpp"

#include "api/base/checkpoint/encoding.hpp"
#include "api/base/checkpoint/names.hpp"
#include "api/base/dtype.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace muster::checkpoint {
namespace {

struct Offered {
  // A box, and a member that has it.
  struct Offer {
    Box box;
    std::int64_t member = 0;
  };

  const OwnTensor* first = nullptr;  // as the first member says it
  std::int64_t first_member = 0;
  std::int64_t latest_member = -1;
  std::vector<Offer> offers;
};

bool is_empty(const Box& box) {
  return std::find(box.length.begin(), box.length.begin() + static_cast<std::ptrdiff_t>(box.dims), 0) !=
         box.length.begin() + static_cast<std::ptrdiff_t>(box.dims);
}

auto order_of(const Offered::Offer& offer) {
  return std::tie(offer.box.offset, offer.box.length, offer.member);
}

Status check_same(const Offered& known, const OwnTensor& tensor, std::int64_t member) {
  if (known.latest_member == member)
    return failure(Code::kBadArgument, "member {} saves {} twice", member, tensor_text(tensor.name));
  const OwnTensor& first = *known.first;
  if (first.dtype == tensor.dtype && first.dims == tensor.dims && first.shape == tensor.shape) return {};
  const auto text = [](const OwnTensor& t) {
    return fmt::format("{} {}", dtype_name(t.dtype), to_text(std::span(t.shape).first(t.dims)));
  };
  return failure(Code::kBadArgument, "{} is {} at member {}, but {} at member {}", tensor_text(tensor.name),
                 text(first), known.first_member, text(tensor), member);
}

Result<std::map<std::string_view, Offered>> collect(std::span<const std::vector<OwnTensor>> members) {
  std::map<std::string_view, Offered> tensors;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto member = static_cast<std::int64_t>(i);
    for (const OwnTensor& tensor : members[i]) {
      Offered& offered = tensors[tensor.name];
      if (offered.first == nullptr) {
        offered.first = &tensor;
        offered.first_member = member;
      } else {
        MUSTER_RETURN_IF_ERROR(check_same(offered, tensor, member));
      }
      offered.latest_member = member;
      for (const Box& box : tensor.boxes)
        if (!is_empty(box)) offered.offers.push_back({box, member});
    }
  }
  return tensors;
}

// The member that writes a box, among those that have it.
std::int64_t writer_of(std::span<const Offered::Offer> equal, const std::vector<std::uint64_t>& bytes) {
  return std::ranges::min_element(equal, {},
                                  [&](const Offered::Offer& offer) {
                                    return std::pair(bytes[static_cast<std::size_t>(offer.member)],
                                                     offer.member);
                                  })
      ->member;
}

// Equal boxes made one, and the members that have each of them.
struct Distinct {
  SavedTensor tensor;
  std::vector<std::span<const Offered::Offer>> holders;  // of each box
};

Result<Distinct> distinct(std::string_view name, Offered& offered) {
  Distinct made{{std::string(name), offered.first->dtype, offered.first->dims, offered.first->shape}, {}};
  if (const auto bytes = bytes_of(made.tensor); !bytes) return fail(bytes.error());
  std::vector<Offered::Offer>& offers = offered.offers;
  std::ranges::sort(
      offers, [](const Offered::Offer& a, const Offered::Offer& b) { return order_of(a) < order_of(b); });
  for (std::size_t i = 0, end = 0; i < offers.size(); i = end) {
    while (end < offers.size() && offers[end].box == offers[i].box) ++end;
    made.tensor.boxes.push_back({offers[i].box, 0, 0, {}});
    made.holders.push_back(std::span(offers).subspan(i, end - i));
  }
  MUSTER_RETURN_IF_ERROR(check_boxes(made.tensor));
  return made;
}

}  // namespace

Result<WritePlan> plan_write(std::span<const std::vector<OwnTensor>> members, std::uint64_t step) {
  MUSTER_ASSIGN_OR_RETURN(auto tensors, collect(members));
  WritePlan plan;
  plan.record.step = step;
  std::vector<std::uint64_t> bytes(members.size());  // that each member writes
  for (auto& [name, offered] : tensors) {
    MUSTER_ASSIGN_OR_RETURN(Distinct made, distinct(name, offered));
    for (std::size_t i = 0; i < made.holders.size(); ++i) {
      SavedBox& saved = made.tensor.boxes[i];
      saved.file = static_cast<std::size_t>(writer_of(made.holders[i], bytes));
      saved.at = bytes[saved.file];
      bytes[saved.file] += bytes_of(saved.box, made.tensor.dtype);
      if (made.holders[i].size() < 2) continue;
      WritePlan::Replicas replicas{{plan.record.tensors.size(), i}, {}};
      for (const Offered::Offer& offer : made.holders[i]) replicas.members.push_back(offer.member);
      plan.replicas.push_back(std::move(replicas));
    }
    plan.record.tensors.push_back(std::move(made.tensor));
  }
  std::vector<std::size_t> file_of(members.size());  // a member without bytes to write has no file
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (bytes[i] == 0) continue;
    file_of[i] = plan.writers.size();
    plan.writers.push_back(static_cast<std::int64_t>(i));
    plan.record.files.push_back({rank_file_name(static_cast<std::int64_t>(i)), bytes[i]});
  }
  for (SavedTensor& tensor : plan.record.tensors)
    for (SavedBox& saved : tensor.boxes) saved.file = file_of[saved.file];
  MUSTER_RETURN_IF_ERROR(check_size(plan.record));
  return plan;
}

std::vector<WritePlan::BoxIndex> boxes_of(const WritePlan& plan, std::int64_t member) {
  std::vector<WritePlan::BoxIndex> places;
  const auto file = std::ranges::find(plan.writers, member);
  if (file == plan.writers.end()) return places;
  const auto index = static_cast<std::size_t>(file - plan.writers.begin());
  for (std::size_t t = 0; t < plan.record.tensors.size(); ++t)
    for (std::size_t b = 0; b < plan.record.tensors[t].boxes.size(); ++b)
      if (plan.record.tensors[t].boxes[b].file == index) places.push_back({t, b});
  return places;
}

}  // namespace muster::checkpoint
