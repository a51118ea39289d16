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
    # Lists in lists deeper than there is room to count them.
    Planted("unbounded_depth", "handshake", "daemon/control/packet.cpp",
            "      if (level == kBodyDepthMax || argument > bytes.size()) return false;\n",
            "      if (argument > bytes.size()) return false;\n"),
    # A number that is multiplied by its unit whatever its size.
    Planted("unchecked_product", "config", "daemon/config/quantity.cpp", 
            "  const Wide product = Wide{number->mantissa} * static_cast<std::uint64_t>(unit->scale);\n",
            "  const Wide product =\n"
            "      static_cast<Wide>(static_cast<std::int64_t>(number->mantissa) * unit->scale);\n"),
    # 9 and 010 are neighbours only if padding means nothing.
    Planted("lost_padding", "hostlist", "daemon/config/hostlist.cpp",
            "  return !padded || a.size() == b.size();\n", "  return !padded || !a.empty();\n"),
]
