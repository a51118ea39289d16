#include "api/client/set/agreement.hpp"

#include "api/client/set/resources.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace muster::client {
namespace {

// The head of each member's first message. The text of a refusal follows it.
struct Opening {
  muster_status_t code = MUSTER_OK;
  std::int32_t rank = 0;            // of the job
  std::uint64_t low = 0, high = 0;  // digest of the description
};

struct MemberTexts {
  const char* bytes = nullptr;
  std::vector<std::uint64_t> offsets;
  std::string_view of(std::size_t member) const {
    return {bytes + offsets[member], offsets[member + 1] - offsets[member]};
  }
};

Result<MemberTexts> gather(muster_session* session, muster_group group, std::size_t members,
                           const std::string& own) {
  MemberTexts gathered;
  gathered.offsets.resize(members + 1);
  const void* bytes = nullptr;
  MUSTER_RETURN_IF_ERROR(status_of(
      muster_object_gather(session, group, -1, own.data(), own.size(), &bytes, gathered.offsets.data())));
  gathered.bytes = static_cast<const char*>(bytes);
  return gathered;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return lines;
}

Status difference(const char* what, std::int32_t a_rank, std::string_view a, std::int32_t b_rank,
                  std::string_view b) {
  const std::vector<std::string_view> of_a = lines_of(a);
  const std::vector<std::string_view> of_b = lines_of(b);
  std::size_t at = 0;
  while (at < of_a.size() && at < of_b.size() && of_a[at] == of_b[at]) ++at;
  const auto line = [&](const std::vector<std::string_view>& lines) {
    return at < lines.size() ? lines[at] : std::string_view("nothing more");
  };
  return failure(Code::kMismatch, "ranks have made different {}. Rank {}: {}. Rank {}: {}", what, a_rank,
                 line(of_a), b_rank, line(of_b));
}

// The ranks of `others`, in a group of their own. A rank that has agreed may fail in its step and abort the
// step's groups before another rank has returned from here.
//
// Owns    the group.
// Thread  the session's.
// Bound   -
// Fails   make(): as muster_group_make.
class MatchPlace {
 public:
  static Result<MatchPlace> make(muster_session* session, muster_group others, const char* what) {
    MUSTER_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ranks, ranks_of(session, others));
    MatchPlace place(session, ranks.size());
    MUSTER_RETURN_IF_ERROR(status_of(muster_group_make(
        session, ranks.data(), ranks.size(), fmt::format("{} agree", what).c_str(), &place.group_)));
    return place;
  }
  MatchPlace(MatchPlace&& other) noexcept
      : session_(other.session_),
        members_(other.members_),
        group_(std::exchange(other.group_, MUSTER_GROUP_SELF)) {}
  MatchPlace& operator=(MatchPlace&&) = delete;
  ~MatchPlace() {
    if (group_ != MUSTER_GROUP_SELF) (void)muster_group_free(session_, group_);
  }
  std::size_t members() const { return members_; }
  muster_group group() const { return group_; }

 private:
  MatchPlace(muster_session* session, std::size_t members) : session_(session), members_(members) {}

  muster_session* session_;
  std::size_t members_;
  muster_group group_ = MUSTER_GROUP_SELF;
};

Status compare_all(muster_session* session, muster_group group, std::size_t members, const char* what,
                   const Status& own, const std::string& description) {
  muster_session_info info = MUSTER_SESSION_INFO_INIT;
  MUSTER_RETURN_IF_ERROR(status_of(muster_session_query(session, &info)));
  const XXH128_hash_t digest = XXH3_128bits(description.data(), description.size());
  const Opening opening{static_cast<muster_status_t>(own.code()), info.rank, digest.low64, digest.high64};
  std::string said(sizeof opening, '\0');
  std::memcpy(said.data(), &opening, sizeof opening);
  said += own.message();
  MUSTER_ASSIGN_OR_RETURN(const MemberTexts first, gather(session, group, members, said));

  // A refusal that all members report names no rank.
  const auto says = [&first](std::size_t i) {
    const std::string_view text = first.of(i);
    return text.size() < sizeof(Opening) ? std::string_view() : text.substr(sizeof(Opening));
  };
  bool alike = true;
  for (std::size_t i = 1; i < members; ++i) alike = alike && says(i) == says(0);

  std::vector<Opening> openings(members);
  for (std::size_t i = 0; i < members; ++i) {
    const std::string_view text = first.of(i);
    if (text.size() < sizeof(Opening))
      return failure(Code::kProtocol, "member {} has sent {} bytes where its {} are compared", i, text.size(),
                     what);
    std::memcpy(&openings[i], text.data(), sizeof(Opening));
    if (openings[i].code == MUSTER_OK) continue;
    const Code code = is_known(openings[i].code) ? static_cast<Code>(openings[i].code) : Code::kProtocol;
    return alike ? failure(code, "{}", says(i)) : failure(code, "rank {}: {}", openings[i].rank, says(i));
  }
  const auto other = std::ranges::find_if(openings, [&](const Opening& each) {
    return each.low != openings[0].low || each.high != openings[0].high;
  });
  if (other == openings.end()) return {};
  MUSTER_ASSIGN_OR_RETURN(const MemberTexts all, gather(session, group, members, description));
  return difference(what, openings[0].rank, all.of(0), other->rank,
                    all.of(static_cast<std::size_t>(other - openings.begin())));
}

}  // namespace

Status agree(muster_session* session, muster_group group, const char* what, const Status& own,
             const std::string& description) {
  if (group == MUSTER_GROUP_SELF) return own;
  MUSTER_ASSIGN_OR_RETURN(const MatchPlace place, MatchPlace::make(session, group, what));
  return compare_all(session, place.group(), place.members(), what, own, description);
}

}  // namespace muster::client
