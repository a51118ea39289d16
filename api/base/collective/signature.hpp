// Signature: 128-bit words from which members notice that they do not mean the same operation (decision D7).
//
// `common` is a hash over every field that all members must share. They agree if it is equal at all of them.
//
// `balance` is for what agrees pair by pair (GATHER, SCATTER, ALL_TO_ALL, EXCHANGE). Each member adds the
// hash of every edge on which it sends and subtracts the hash of every edge on which it receives, modulo
// 2^128. An edge is (from, to, tag, elements), so both ends hash it alike. The sum over all members is zero
// when each sent edge is expected and each expected edge is sent. So every member notices a difference
// between any two from one word of each, without a table of n² counts. (The idea is multiset hashing by
// addition: Clarke et al., ASIACRYPT 2003.) An empty block is no edge; an empty face is one.
//
// Hashes are 128-bit XXH3 without a key. They find mistakes; they do not stop an attacker inside the job.
#pragma once

#include "api/base/collective/collective.hpp"
#include "api/base/hash.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

struct Signature {
  Hash128 common;
  Hash128 balance;  // zero where nothing is agreed pair by pair
  friend bool operator==(const Signature&, const Signature&) = default;
};

// SEND at one side and RECV at the other have one signature.
Signature signature_of(const Collective& collective, const Share& share, std::int32_t ranks);

// Adds the edges of the member's faces to the balance of the node on which the other end is. `node_of`: the
// node of each member. Faces agree where both nodes' balances of one another add up to zero.
void add_face_balances(const Share& share, std::span<const std::uint32_t> node_of,
                       std::span<Hash128> by_node);

// The balance of a member's faces with one peer. The faces of two members agree where the balances of both
// ends add up to zero.
struct FaceBalance {
  std::int32_t peer = 0;
  Hash128 balance;
};
// One for each peer with which the member has faces, in order of index; the member itself may be one.
std::vector<FaceBalance> face_balances(const Share& share);

// One member's half, for difference().
struct Party {
  std::int32_t rank = 0;  // world rank, for the text
  const Collective* collective = nullptr;
  const Share* share = nullptr;
  std::string_view site;  // call site; may be empty
};

// The first field in which the members differ, with values and ranks: "count: 4096 at ranks 0, 1, 3 and 4097
// at rank 2 (model.py:311)". Empty if they agree. `parties` are all members in group order (for SEND and RECV
// both ends); missing ones have null pointers and are skipped. The text blames no rank: nobody knows which
// value is right.
std::string difference(std::span<const Party> parties);
// Where a target lies (Collective): "byte 64 of node-shared memory 5f3a9c", or "its own memory".
std::string target_text(std::uint64_t shared_memory, std::uint64_t shared_offset);

}  // namespace muster
