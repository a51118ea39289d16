#include "api/base/mesh/mesh.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <bit>

namespace muster::mesh {
namespace {

// Indices of the fixed dims in dims_. Flattens follow.
constexpr std::uint32_t kFirstDerived = kBasicDimCount;
constexpr std::uint32_t kEfsdp = kFirstDerived + kDerivedDimCount;
constexpr std::uint32_t kEp = kEfsdp + 1;
constexpr std::uint32_t kWorld = kEp + 1;
constexpr std::uint32_t kFirstFlatten = kWorld + 1;

// The basic dims that the expert view leaves as they are.
constexpr DimMask kOutsideExperts = bit(BasicDim::kPp) | bit(BasicDim::kDpReplicate) | bit(BasicDim::kDomain);
constexpr DimMask kExpertMembers = bit(BasicDim::kDpShard) | bit(BasicDim::kCp) | bit(BasicDim::kTp);

unsigned first_member(DimMask members) {
  return static_cast<unsigned>(std::countr_zero(members));
}
unsigned last_member(DimMask members) {
  return static_cast<unsigned>(std::bit_width(members)) - 1;
}

bool is_name(std::string_view name) {
  const auto word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !name.empty() && name.size() < kDimNameBytesMax && name.front() >= 'a' && name.front() <= 'z' &&
         std::all_of(name.begin(), name.end(), word);
}

}  // namespace

std::string_view dim_kind_name(Mesh::Dim::Kind kind) {
  switch (kind) {
    case Mesh::Dim::Kind::kBasic:
      return "basic";
    case Mesh::Dim::Kind::kDerived:
      return "derived";
    case Mesh::Dim::Kind::kFlatten:
      return "flatten";
    case Mesh::Dim::Kind::kExpert:
      return "expert";
    case Mesh::Dim::Kind::kWorld:
      return "world";
  }
  MUSTER_ASSERT(false);
}

Mesh::Mesh(const Degrees& degrees, std::uint32_t world) : degrees_(degrees), world_(world) {
  std::uint32_t stride = 1;
  for (std::size_t i = kBasicDimCount; i-- > 0;) {
    sizes_[i] = static_cast<std::uint32_t>(*degrees_.find(kBasicDimNames[i]));
    strides_[i] = stride;
    stride *= sizes_[i];
  }
  MUSTER_ASSERT(stride == world_);
  for (std::size_t i = 0; i < kBasicDimCount; ++i)
    add_dim(kBasicDimNames[i], "", Dim::Kind::kBasic, static_cast<DimMask>(1u << i));
  for (const DerivedDim& derived : kDerivedDims)
    add_dim(derived.name, derived.alias, Dim::Kind::kDerived, derived.members);
  // The shard dim is in use even at size 1, because mixed precision casts there.
  const auto shard = std::find_if(dims_.begin(), dims_.end(), [](const Dim& d) { return d.alias == "fsdp"; });
  MUSTER_ASSERT(shard != dims_.end());
  shard->enabled = world_ > 1;
  add_expert_dims();
  add_dim(kWorldName, "", Dim::Kind::kWorld, kAllBasicDims);
  MUSTER_ASSERT(dims_.size() == kFirstFlatten);
}

Result<Mesh> Mesh::build(const Degrees& degrees, std::int64_t world, std::span<const Flatten> flattens) {
  MUSTER_ASSIGN_OR_RETURN(const Degrees resolved, degrees.resolve(world));
  Mesh mesh(resolved, static_cast<std::uint32_t>(world));
  for (const Flatten& flatten : flattens) {
    if (auto id = mesh.flatten(flatten.name, flatten.members); !id)
      return fail(Code::kConfig, "{}", id.error().message());
  }
  return mesh;
}

void Mesh::add_dim(std::string_view name, std::string_view alias, Dim::Kind kind, DimMask members) {
  Dim dim;
  dim.name = name;
  dim.alias = alias;
  dim.kind = kind;
  dim.members = members;
  for (std::size_t i = 0; i < kBasicDimCount; ++i) {
    if ((members >> i & 1u) == 0 || sizes_[i] == 1) continue;
    dim.size *= sizes_[i];
    MUSTER_ASSERT(dim.factors.push_back({sizes_[i], strides_[i]}));
  }
  dim.enabled = dim.size > 1;
  dims_.push_back(std::move(dim));
}

void Mesh::add_expert_dims() {
  const auto ep = static_cast<std::uint32_t>(degrees_.ep);
  add_dim(kEfsdpName, "", Dim::Kind::kExpert, kExpertMembers);
  Dim& efsdp = dims_.back();
  efsdp.size /= ep;
  efsdp.inner = ep;
  efsdp.enabled = efsdp.size > 1 || degrees_.expert_view();
  add_dim(kEpName, "", Dim::Kind::kExpert, kExpertMembers);
  dims_.back().size = ep;
  dims_.back().enabled = degrees_.expert_view();
}

// ---- names to handles

std::optional<Mesh::DimId> Mesh::lookup(std::string_view name) const {
  for (std::uint32_t i = 0; i < dims_.size(); ++i)
    if (!name.empty() && (dims_[i].name == name || dims_[i].alias == name)) return DimId(i);
  return std::nullopt;
}

Status Mesh::not_found(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const Dim& dim : dims_) {
    names.push_back(dim.name);
    if (!dim.alias.empty()) names.push_back(dim.alias);
  }
  const std::string_view nearest = nearest_name(name, names);
  const std::string hint = nearest.empty() ? "; valid" : fmt::format("; did you mean \"{}\"? Valid", nearest);
  return failure(Code::kNotFound, "mesh {} has no dim \"{}\"{} names: {}", degrees_.canonical(), name, hint,
                 fmt::join(names, ", "));
}

Result<Mesh::DimId> Mesh::find(std::string_view name) const {
  const std::optional<DimId> id = lookup(name);
  if (!id) return fail(not_found(name));
  return *id;
}

// Members of size 1 count too, so that a name means the same whatever the degrees. The expert view cuts its
// members anew, so no product of it has a name there.
bool Mesh::spans(const View& slice, DimId id) const {
  const Dim& wanted = dim(id);
  DimMask spanned = 0;
  for (const DimId part : slice.dims) {
    if (part == id) return true;
    const Dim& here = dim(part);
    if (here.kind != Dim::Kind::kExpert && (here.members & ~wanted.members) == 0) spanned |= here.members;
  }
  return wanted.kind != Dim::Kind::kExpert && spanned == wanted.members;
}

Result<Mesh::DimId> Mesh::find(ViewId id, std::string_view name) const {
  const View& slice = view(id);
  const std::optional<DimId> found = lookup(name);
  if (found && spans(slice, *found)) return *found;
  std::vector<std::string_view> dims;
  for (const DimId part : slice.dims) dims.push_back(dim(part).name);
  std::vector<std::string_view> valid;
  for (std::uint32_t i = 0; i < dims_.size(); ++i) {
    if (!spans(slice, DimId(i))) continue;
    valid.push_back(dims_[i].name);
    if (!dims_[i].alias.empty()) valid.push_back(dims_[i].alias);
  }
  return fail(Code::kNotFound, "slice [{}] of mesh {} has no dim \"{}\"; valid names: {}",
              fmt::join(dims, ", "), degrees_.canonical(), name, fmt::join(valid, ", "));
}

const Mesh::Dim& Mesh::dim(DimId id) const {
  MUSTER_ASSERT(id.value < dims_.size());
  return dims_[id.value];
}

std::vector<Mesh::DimId> Mesh::canonical_order() const {
  std::vector<DimId> order;
  order.reserve(dims_.size());
  for (std::uint32_t i = 0; i < kEfsdp; ++i) order.emplace_back(i);
  for (std::uint32_t i = kFirstFlatten; i < dims_.size(); ++i) order.emplace_back(i);
  order.emplace_back(kEfsdp);
  if (degrees_.expert_view()) order.emplace_back(kEp);
  order.emplace_back(kWorld);
  return order;
}

// ---- flatten

Result<Mesh::DimId> Mesh::flatten(std::string_view name, std::span<const std::string> members) {
  if (!is_name(name))
    return fail(Code::kBadArgument,
                "a flatten of {} dims is named \"{}\"; give it a name of 1 to {} lower-case letters, digits "
                "and '_' that "
                "starts with a letter",
                members.size(), name, kDimNameBytesMax - 1);
  MUSTER_ASSIGN_OR_RETURN(const DimMask mask, flatten_members(name, members));
  if (const std::optional<DimId> taken = lookup(name)) return check_taken(name, *taken, mask);
  if (Status status = check_contiguous(name, mask); !status.ok()) return fail(std::move(status));
  if (dims_.size() - kFirstFlatten == kFlattenCountMax)
    return fail(Code::kNoResource, "flatten \"{}\": the mesh has {} flattens already, the most it can have",
                name, kFlattenCountMax);
  add_dim(name, "", Dim::Kind::kFlatten, mask);
  return DimId(static_cast<std::uint32_t>(dims_.size() - 1));
}

Result<DimMask> Mesh::flatten_members(std::string_view name, std::span<const std::string> members) const {
  if (members.empty())
    return fail(Code::kBadArgument, "flatten \"{}\" has no members; name at least one dim", name);
  DimMask mask = 0;
  std::string_view before;
  for (const std::string& member : members) {
    const std::optional<DimId> id = lookup(member);
    if (!id) return fail(Code::kNotFound, "flatten \"{}\": {}", name, not_found(member).message());
    const Dim& added = dim(*id);
    if (added.kind == Dim::Kind::kExpert)
      return fail(Code::kBadArgument,
                  "flatten \"{}\": \"{}\" belongs to the expert view, which cannot be flattened", name,
                  member);
    if (mask != 0 && first_member(added.members) <= last_member(mask))
      return fail(Code::kBadArgument,
                  "flatten \"{}\": \"{}\" may not follow \"{}\"; members ascend in the order {}", name,
                  member, before, member_names(kAllBasicDims));
    mask |= added.members;
    before = member;
  }
  return mask;
}

Result<Mesh::DimId> Mesh::check_taken(std::string_view name, DimId taken, DimMask members) const {
  const Dim& existing = dim(taken);
  if (existing.kind != Dim::Kind::kExpert && existing.members == members) return taken;
  if (existing.kind == Dim::Kind::kBasic)
    return fail(Code::kBadArgument,
                "flatten \"{}\" of {}: that is the name of a basic dim; choose another name", name,
                member_names(members));
  if (existing.kind == Dim::Kind::kExpert)
    return fail(Code::kBadArgument,
                "flatten \"{}\" of {}: that name belongs to the expert view; choose another name", name,
                member_names(members));
  return fail(Code::kBadArgument, "flatten \"{}\" of {}: the name stands for {} already; choose another name",
              name, member_names(members), member_names(existing.members));
}

Status Mesh::check_contiguous(std::string_view name, DimMask members) const {
  for (unsigned i = first_member(members); i < last_member(members); ++i) {
    if ((members >> i & 1u) != 0 || sizes_[i] == 1) continue;
    return failure(Code::kBadArgument,
                   "flatten \"{}\" of {}: {} (size {}) lies between them; members must be neighbours", name,
                   member_names(members), kBasicDimNames[i], sizes_[i]);
  }
  return {};
}

// ---- slice

Result<Mesh::ViewId> Mesh::slice(std::span<const std::string_view> names) {
  if (names.empty())
    return fail(Code::kBadArgument, "a slice of mesh {} needs at least one dim", degrees_.canonical());
  // A slice with more dims than there are basic ones repeats one, so its names need not be checked.
  if (names.size() > kBasicDimCount)
    return fail(Code::kBadArgument, "a slice of {} dims was asked for; mesh {} has {} basic dims",
                names.size(), degrees_.canonical(), kBasicDimCount);
  View view;
  for (const std::string_view name : names) {
    MUSTER_ASSIGN_OR_RETURN(const DimId id, find(name));
    view.dims.push_back(id);
    view.shape.push_back(dim(id).size);
  }
  if (Status status = check_slice_order(view.dims); !status.ok()) return fail(std::move(status));
  for (std::uint32_t i = 0; i < views_.size(); ++i)
    if (views_[i].dims == view.dims) return ViewId(i);
  if (views_.size() == kViewCountMax)
    return fail(Code::kNoResource, "mesh {} has {} slices already, the most it can have",
                degrees_.canonical(), kViewCountMax);
  views_.push_back(std::move(view));
  return ViewId(static_cast<std::uint32_t>(views_.size() - 1));
}

Status Mesh::check_slice_order(std::span<const DimId> ids) const {
  const auto expert =
      std::find_if(ids.begin(), ids.end(), [this](DimId id) { return dim(id).kind == Dim::Kind::kExpert; });
  const bool in_expert_view = expert != ids.end();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Dim& here = dim(ids[i]);
    const bool is_expert = here.kind == Dim::Kind::kExpert;
    if (in_expert_view && !is_expert && (here.members & ~kOutsideExperts) != 0)
      return failure(Code::kBadArgument,
                     "a slice may not combine \"{}\" with \"{}\": {} is cut anew as efsdp x ep", here.name,
                     dim(*expert).name, member_names(kExpertMembers));
    if (i == 0) continue;
    const Dim& before = dim(ids[i - 1]);
    const bool before_is_expert = before.kind == Dim::Kind::kExpert;
    const bool ascends = is_expert          ? !before_is_expert || ids[i - 1] < ids[i]
                         : before_is_expert ? false
                                            : last_member(before.members) < first_member(here.members);
    if (!ascends)
      return failure(Code::kBadArgument,
                     "a slice of mesh {} may not name \"{}\" after \"{}\"; dims ascend in the order {}",
                     degrees_.canonical(), here.name, before.name,
                     in_expert_view ? "pp, dp_replicate, domain, efsdp, ep" : member_names(kAllBasicDims));
  }
  return {};
}

const Mesh::View& Mesh::view(ViewId id) const {
  MUSTER_ASSERT(id.value < views_.size());
  return views_[id.value];
}

// ---- ranks

std::uint32_t Mesh::index_along(Rank rank, const Dim& dim) const {
  MUSTER_ASSERT(rank.value < world_);
  std::uint32_t index = 0;
  for (const Dim::Factor& factor : dim.factors)
    index = index * factor.size + rank.value / factor.stride % factor.size;
  return index;
}

std::uint32_t Mesh::coordinate(Rank rank, DimId id) const {
  const Dim& along = dim(id);
  return index_along(rank, along) / along.inner % along.size;
}

Rank Mesh::moved(Rank rank, DimId id, std::uint32_t coordinate) const {
  const Dim& along = dim(id);
  MUSTER_ASSERT(coordinate < along.size);
  const std::uint32_t from = index_along(rank, along);
  std::uint32_t to = from - from / along.inner % along.size * along.inner + coordinate * along.inner;
  // Split both indices into the members' coordinates; each coordinate that differs moves the rank.
  std::uint32_t result = rank.value;
  std::uint32_t old = from;
  for (std::size_t i = along.factors.size(); i-- > 0;) {
    const Dim::Factor& factor = along.factors[i];
    result += (to % factor.size - old % factor.size) * factor.stride;  // modulo 2^32: the sum is exact
    to /= factor.size;
    old /= factor.size;
  }
  return Rank(result);
}

}  // namespace muster::mesh
