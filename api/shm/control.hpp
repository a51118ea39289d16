// Control messages between a client and the daemon: one SOCK_SEQPACKET datagram each, plain data, every byte
// untrusted.
//
// A client sends Hello to the supervisor. The supervisor checks version, identity and claim and passes the
// socket on to the job's engine, which answers Welcome with the session's descriptors. From then on the
// socket carries requests of the client. Each gets one answer, in order; a Failure message may replace it.
#pragma once

#include "api/base/collective/node_costs.hpp"
#include "api/shm/layout.hpp"

#include <cstddef>
#include <cstdint>

namespace muster::shm {

constexpr std::uint32_t kMagicMessage = 0x4d535452;  // "RTSM"
constexpr std::size_t kMessageBytesMax = 128 << 10;
constexpr std::size_t kDescriptorsMax = 8;  // per message

enum class MessageKind : std::uint16_t {
  kNone = 0,
  kFailure = 1,
  kHello = 2,  // → Welcome with 5 descriptors: submission segment, completion segment, doorbell eventfd, the
               // rank's direct segment, the job's group page
  kWelcome = 3,
  kBufferAlloc = 4,  // with 1 descriptor if it imports one → BufferGrant, with 1 descriptor when the segment
                     // is new to the client
  kBufferGrant = 5,
  kBufferFree = 6,      // → Done
  kPlanKernel = 7,      // → PlanGrant
  kPlanCollective = 8,  // → PlanGrant
  kPlanGrant = 9,
  kPlanDestroy = 10,  // → Done
  kMeshQuery = 11,    // → MeshAnswer
  kMeshAnswer = 12,
  kGroupQuery = 13,  // → GroupAnswer followed by ranks[]
  kGroupAnswer = 14,
  kGroupAbort = 15,  // → Done
  kTraceBegin = 16,  // → Done
  kTraceEnd = 17,    // → MemoryGrant with 1 descriptor: a memfd of JSON
  kTraceGrant = 18,
  kDone = 19,
  kCommand = 20,  // command line to supervisor, CBOR body: see daemon/control
  kReply = 21,
  kEventOpen = 22,    // → Done with 1 descriptor: a socket that becomes readable at each completion
  kGoodbye = 23,      // → Done: the client leaves in order; a socket that ends without it is a death
  kDirectGroup = 24,  // → DirectGroupAnswer followed by DirectMember[]
  kDirectGroupAnswer = 25,
  kPeerDirect = 26,  // → MemoryGrant with 1 descriptor: the direct segment of a peer, read-only
  kPeerArena = 27,   // → MemoryGrant with 1 descriptor: a segment of a peer's arena, read-only
  kPeerGrant = 28,
  kDirectEnd = 29,       // → DirectEndAnswer: how the member's epoch ended
  kDirectOverdue = 30,   // → Done: the epoch has ended, or no member is missing any more
  kDirectDisagree = 31,  // → Failure: says in what the members of an operation differ
  kGroupMake = 32,       // followed by ranks[] → GroupGrant
  kGroupShrink = 33,     // → GroupGrant, or Failure BUSY: some have not called yet, ask again
  kGroupFree = 34,       // → Done
  kGroupGrant = 35,
  kMeshMake = 36,  // → MeshGrant
  kMeshFree = 37,  // → Done
  kMeshGrant = 38,
  kInterrupted = 39,  // → Done: the rank's operation has ended for all its members
  kDirectEndAnswer = 40,
  kLaneOpen = 41,   // → LaneGrant
  kLaneClose = 42,  // LaneGrant → Done
  kLaneGrant = 43,
  kMeshFlatten = 44,   // MeshNames followed by DimName[] → MeshAnswer
  kMeshSlice = 45,     // MeshNames followed by DimName[] → MeshGrant
  kMeshDeadline = 46,  // → MeshGroups followed by the handles of the rank's groups, of std::uint64_t
  kMeshGroups = 47,
};

struct MessageHeader {
  std::uint32_t magic = kMagicMessage;
  std::uint16_t version = kAbiVersion;
  MessageKind kind = MessageKind::kNone;
  std::uint32_t bytes = 0;   // of the whole datagram, this header included
  std::uint32_t serial = 0;  // of the request; the answer repeats it
};
static_assert(sizeof(MessageHeader) == 16);

constexpr std::size_t kNameBytes = 64;
constexpr std::size_t kMeshTextBytes = 256;
constexpr std::size_t kTokenBytes = 80;
constexpr std::size_t kJobKeyBytes = 256;
constexpr std::size_t kErrorTextBytes = 1024;
constexpr std::size_t kSiteBytes = 48;
constexpr std::size_t kReasonBytes = 160;

struct Failure {
  MessageHeader header;
  std::int32_t status = MUSTER_ERR_INTERNAL;
  std::uint32_t length = 0;        // of text
  std::int32_t culprit_rank = -1;  // world rank; -1: none
  std::uint32_t reserved = 0;
  char text[kErrorTextBytes] = {};
};

struct Hello {
  MessageHeader header;
  std::uint32_t abi_version = kAbiVersion;
  std::uint32_t library_version = MUSTER_VERSION;
  std::uint32_t submission_bytes =
      kSubmissionBytes;  // of this library's build; a difference is refused with kVersion
  std::uint32_t completion_bytes = kCompletionBytes;
  std::int32_t rank = -1;
  std::int32_t world_size = -1;
  std::int32_t local_rank = -1;
  std::int32_t local_size = -1;
  std::int64_t timeout_ns = 0;     // how long the client will wait for its Welcome
  char job[kNameBytes] = {};       // zero-terminated
  char mesh[kMeshTextBytes] = {};  // used only if this Hello creates the job
  char token[kTokenBytes] = {};    // empty: the rank is claimed by user id, if the job allows it
  char key[kJobKeyBytes] = {};     // of the job; empty: it has none
  char slurm[kNameBytes] = {};     // Slurm job and step, "1234.0", as it says
  char host[kNameBytes] = {};      // the name of its machine, or container, as it says
};

struct Welcome {
  MessageHeader header;
  std::uint32_t session = 0;
  std::int32_t rank = 0, world_size = 0, local_rank = 0, local_size = 0;
  std::uint32_t attachments = 0;
  std::uint64_t epoch = 0;
  std::int64_t deadline_ns = 0;    // the job's default
  std::uint64_t direct_bytes = 0;  // of the direct segment; 0: the job's device has no direct path
  std::uint64_t group_bytes = 0;   // of the group page
  std::uint32_t cores = 0;         // granted to the job on this node
  std::uint32_t lane_depth = 0;    // limit of starts in flight on one lane
  std::uint32_t digests = 0;       // members compare every digests-th shared result; 0: never
  std::uint32_t reserved = 0;
  NodeCosts costs;
  char job[kNameBytes] = {};
  char mesh[kMeshTextBytes] = {};
};

struct BufferAlloc {
  MessageHeader header;
  std::uint64_t bytes = 0;
  std::uint64_t shared_by = 0;      // group; 0: this rank alone
  std::uint64_t memory_offset = 0;  // of an imported buffer in its memory
  std::uint32_t imported = 0;       // 1: the memory comes with this message
  std::uint32_t reserved = 0;
  char name[kNameBytes] = {};  // zero-terminated; empty: none
};
struct BufferGrant {
  MessageHeader header;
  std::uint64_t buffer = 0;          // Handle bits
  std::uint32_t segment = 0;         // which memory segment of this rank
  std::uint32_t segment_is_new = 0;  // 1: the descriptor comes with this message
  std::uint64_t segment_bytes = 0;
  std::uint64_t offset = 0;         // of the buffer in its segment
  std::uint64_t shared_memory = 0;  // which node-shared memory it is; 0: none
  std::uint32_t found = 0;          // 1: the buffer existed before, with its contents
  std::uint32_t reserved = 0;
};
// kBufferFree, kPlanDestroy, kGroupQuery, kGroupFree, kMeshFree; kPlanGrant,
// kGroupGrant, kMeshGrant
struct HandleMessage {
  MessageHeader header;
  std::uint64_t handle = 0;
};
struct GroupAbort {
  MessageHeader header;
  std::uint64_t group = 0;
  char reason[kReasonBytes] = {};  // zero-terminated, for the other members; empty: none
};
// A tensor in a message. Its sizes, then its strides follow, one for each dim (tail.hpp).
struct TensorHeader {
  std::uint64_t buffer = 0;
  std::uint64_t offset_bytes = 0;
  std::int32_t dtype = 0, dims = 0;
};
// A face in a message. The sizes and strides of its view follow.
struct FaceHeader {
  std::int32_t peer = 0;
  std::uint32_t tag = 0;
  TensorHeader view;
};
// Three lists follow: tensors, ints (std::int64_t), reals (double). Each is as long as its field says, or as
// the kernel's maximum if the field says more.
struct PlanKernel {
  MessageHeader header;
  std::int32_t op = 0;
  std::uint32_t tensors = 0, ints = 0, reals = 0;
  std::uint32_t flags = 0, reserved = 0;
};
// Lists follow, each as long as its field says, in this order: source counts, source offsets, target counts,
// target offsets (std::uint64_t), piece counts (std::uint32_t), pieces (muster_piece), sends, receives
// (faces). Fields and lists that the rank does not use in the operation are 0 or empty, so that equal work
// has equal bytes.
struct PlanCollective {
  MessageHeader header;
  std::int32_t op = 0, dtype = 0, redop = 0, peer = 0;
  std::uint64_t group = 0;
  muster_range source{}, target{};
  std::uint64_t count = 0;
  double scale = 0.0;
  std::uint32_t source_counts = 0, source_offsets = 0, target_counts = 0, target_offsets = 0;
  std::uint32_t sends = 0, receives = 0;
  std::uint32_t tag = 0, piece_counts = 0, pieces = 0, reserved = 0;
  char site[kSiteBytes] = {};  // zero-terminated; empty: nowhere
};
static_assert(sizeof(PlanCollective) == 176 && sizeof(FaceHeader) == 32,
              "no padding: equal work, equal bytes");
constexpr std::size_t kListBytesMax = kMessageBytesMax - sizeof(PlanCollective);  // all together
constexpr std::size_t kFacesMax = 680;  // of one PlanCollective, sends and receives; collectives.h says so

struct MeshQuery {
  MessageHeader header;
  std::uint64_t mesh = 0;  // 0: the job's
  char dim[kNameBytes] = {};
};
struct MeshAnswer {
  MessageHeader header;
  std::uint64_t group = 0;
  std::int32_t coordinate = 0, size = 0;
};
struct GroupAnswer {  // followed by ranks[ranks] of std::int32_t
  MessageHeader header;
  std::int32_t rank = 0, ranks = 0;
  std::int64_t deadline_ns = 0;  // the group's default; 0: the job's
  std::uint32_t spans = 0;       // 1: members are on several nodes
  std::uint32_t reserved = 0;
  char name[kNameBytes] = {};
};
struct GroupMake {  // followed by ranks[ranks] of std::int32_t
  MessageHeader header;
  std::uint32_t ranks = 0;
  std::uint32_t reserved = 0;
  char name[kNameBytes] = {};
};
struct GroupShrink {
  MessageHeader header;
  std::uint64_t group = 0;
  std::uint32_t gives_up = 0;  // 1: the rank will not ask again
  std::uint32_t reserved = 0;
};
struct MeshMake {
  MessageHeader header;
  std::uint64_t group = 0;  // the mesh spans its members
  char mesh[kMeshTextBytes] = {};
};
struct DimName {
  char text[kNameBytes] = {};
};
struct MeshNames {  // kMeshFlatten, kMeshSlice: followed by dims[dims] of DimName
  MessageHeader header;
  std::uint64_t mesh = 0;
  std::uint32_t dims = 0;
  std::uint32_t reserved = 0;
  char name[kNameBytes] = {};  // of the flatten; empty for a slice
};
struct MeshDeadline {
  MessageHeader header;
  std::uint64_t mesh = 0;
  std::int64_t deadline_ns = 0;  // 0: the job's
};
struct DirectGroupAnswer {
  MessageHeader header;
  std::uint32_t line = 0;     // index on the group page
  std::uint32_t index = 0;    // this rank's, in the group
  std::uint32_t members = 0;  // entries that follow
  std::uint32_t reserved = 0;
  std::uint64_t epoch = 0;  // in which this member stands
  std::uint64_t base = 0;   // positions of that epoch begin above it; 0 if it has ended
};
struct DirectMember {
  std::int32_t rank = 0;  // world rank
  std::uint32_t reserved = 0;
  std::uint64_t region = 0;  // offset of its member region for the group in its direct segment
};
struct PeerMessage {  // kPeerDirect, kPeerArena
  MessageHeader header;
  std::int32_t rank = 0;
  std::uint32_t segment = 0;
};
struct MemoryGrant {  // kPeerGrant, kTraceGrant
  MessageHeader header;
  std::uint64_t bytes = 0;
};
struct DirectMessage {  // kDirectEnd, kDirectOverdue, kDirectDisagree: an operation of a group
  MessageHeader header;
  std::uint64_t group = 0;
  std::uint64_t epoch = 0;
  std::uint64_t position = 0;  // of the operation, or of the message if `kind` is about a pair
  std::uint64_t phase = 0;
  std::uint64_t plan = 0;        // this rank's
  std::uint32_t kind = 0;        // what is waited for: DirectWait
  std::uint32_t peer = 0;        // index of the other side of a pair
  std::int64_t deadline_ns = 0;  // kDirectOverdue: the one that has passed
};
struct DirectEndAnswer {  // followed by the cause in words
  MessageHeader header;
  std::int32_t code = 0;  // of the cause
  std::int32_t culprit = -1;
  std::uint64_t epoch = 0;  // in which the member stands from now on
  std::uint64_t base = 0;   // of that epoch; 0 if it has ended too
};
struct InterruptMessage {
  MessageHeader header;
  std::uint64_t group = 0;
  std::uint64_t epoch = 0;                // of the direct path; the rank's wait is in it
  std::uint32_t lane = MUSTER_LANE_NONE;  // the rank's wait is on this lane
  std::uint32_t reserved = 0;
};
struct LaneOpen {
  MessageHeader header;
  std::uint32_t lane_class = 0;
  std::uint32_t reserved = 0;
  char name[kNameBytes] = {};  // zero-terminated; empty: the lane carries kernels only
};
struct LaneGrant {  // kLaneGrant, kLaneClose
  MessageHeader header;
  std::uint32_t lane = 0;
  std::uint32_t reserved = 0;
};
struct Plain {  // kTraceBegin, kTraceEnd, kEventOpen, kGoodbye, kDone, kMeshGroups
  MessageHeader header;
};

}  // namespace muster::shm
