"""The planted bugs: for each fuzz target one that it must find, as a change of one place in the product.

No bug is in the tree: planted_test.py makes the change in a copy.
"""

from dataclasses import dataclass


@dataclass
class Planted:
    name: str
    target: str
    file: str
    before: str  # stands in the file once
    after: str


PLANTED = [
    # A second look at a word that was checked: the answer differs from the one that was judged.
    Planted("double_fetch", "ring", "api/shm/ring.hpp",
            "    *out = std::bit_cast<Record>(values);\n",
            "    values[0] = sequence.load();\n    *out = std::bit_cast<Record>(values);\n"),
    # A sum that wraps: a view at the end of all numbers ends before the buffer's end.
    Planted("wrapping_sum", "descriptor", "daemon/engine/session/resolve.cpp",
            "  if (static_cast<Wide>(tensor.offset_bytes) + extent > buffer->bytes)\n",
            "  if (tensor.offset_bytes + static_cast<std::uint64_t>(extent) > buffer->bytes)\n"),
    # Elements that lie on each other: a small buffer stands for work without end.
    Planted("repeated_elements", "descriptor", "daemon/engine/session/resolve.cpp",
            "  if (!empty && elements > last + 1)\n", "  if (!empty && elements > kElementsMax)\n"),
    # A tensor's dims say how long it is, and nobody asks whether its message is that long.
    Planted("longer_than_its_message", "descriptor", "api/shm/tail.cpp",
            "  if (left_.size() < tensor_bytes(head.dims)) return false;\n", ""),
    # Lists in lists deeper than there is room to count them.
    Planted("unbounded_depth", "handshake", "daemon/control/packet.cpp",
            "      if (level == kBodyDepthMax || argument > bytes.size()) return false;\n",
            "      if (argument > bytes.size()) return false;\n"),
    # A number that is multiplied by its unit whatever its size.
    Planted("unchecked_product", "config", "daemon/config/quantity.cpp",
            "  const Wide product = Wide{number->mantissa} * static_cast<std::uint64_t>(unit->scale);\n",
            "  const Wide product =\n"
            "      static_cast<Wide>(static_cast<std::int64_t>(number->mantissa) * unit->scale);\n"),
    # A sum that wraps: a box at the end of all numbers ends before the end of its file.
    Planted("box_behind_its_file", "checkpoint", "api/base/checkpoint/encoding.cpp",
            "  if (saved.file >= files.size() || saved.at > files[saved.file].bytes ||\n"
            "      bytes > files[saved.file].bytes - saved.at)\n",
            "  if (saved.file >= files.size() || saved.at + bytes > files[saved.file].bytes)\n"),
    # 9 and 010 are neighbours only if padding means nothing.
    Planted("lost_padding", "hostlist", "daemon/config/hostlist.cpp",
            "    if ((padded || high_padded) && low.size() != high.size()) {\n",
            "    if ((padded || high_padded) && low.empty()) {\n"),
    # A buffer may be freed while a plan still names it.
    Planted("freed_under_a_plan", "session", "daemon/engine/session/session_buffers.cpp",
            "  if (buffer->plans > 0)\n", "  if (buffer->plans > 1)\n"),
    # A start says where its vectors begin, and nobody asks whether they end in their buffers.
    Planted("offset_behind_its_buffer", "session", "api/base/collective/rooms.hpp",
            "      return need == 0 || (need <= room.bytes && offset <= room.bytes - need);\n",
            "      return need == 0 || need <= room.bytes || offset == 0;\n"),
    # A stage's number out of a peer's memory is an index that nobody checks.
    Planted("unchecked_index", "direct", "api/client/direct/payloads.cpp",
            "      if (location.index >= shm::kStages) return nullptr;\n", ""),
    # A stranger's frame may be as large as a member's: its length alone makes this node wait for it.
    Planted("strangers_limit", "peers", "daemon/control/link/frame.cpp",
            "  if (length > bytes_max_) {\n", "  if (length > kFrameBytesMax) {\n"),
    # A node that has proved one name passes for another.
    Planted("name_not_proved", "peers", "daemon/supervisor/peers/membership.cpp",
            "  if (!proved.empty() && proved != name)\n", "  if (proved.empty() && proved != name)\n"),
    # A heartbeat that somebody repeats keeps its sender alive.
    Planted("repeated_heartbeat", "heartbeat", "daemon/control/link/heartbeat.cpp",
            "heartbeat.sequence <= last_", "heartbeat.sequence < last_"),
    # A token that was used while no supervisor looked opens its rank once more.
    Planted("token_twice", "state", "daemon/supervisor/jobs/job_table.cpp",
            "    if (claim.token_at != claim.attachments) claim.token.clear();\n",
            "    if (claim.token_at > claim.attachments) claim.token.clear();\n"),
    # A list says how many bits it has, and nobody asks whether its message is that long.
    Planted("list_behind_its_message", "agreement", "daemon/engine/nodes/agreement_wire.cpp",
            "  if (bytes.size() != sizeof head + bytes_for(head.first) + bytes_for(head.second)) return "
            "std::nullopt;\n", ""),
    # A contribution that comes with its request is taken whatever its length.
    Planted("contribution_of_any_length", "span", "transport/span/row_operation.cpp",
            "    if (came.size() == bytes)\n      std::memcpy(into, came.data(), bytes);\n",
            "    if (!came.empty())\n      std::memcpy(into, came.data(), came.size());\n"),
    # Nodes whose blocks differ take each other's bytes.
    Planted("difference_overlooked", "span", "transport/span/operation.cpp",
            "    common = common && peer.request->head.common == mine.common;\n", ""),
]
