#!/usr/bin/env python3
"""Plants a bug into a copy of one of the product's sources.

  plant.py SOURCE TARGET [BUG]

Without BUG the copy differs only in how long a wait looks before it sleeps, which is a matter of time and not
of the protocol. Each replacement must fit as often as it says: when the source has moved on, this stops
instead of planting nothing. `plant.py --list` prints one line a bug: name, source, stories that must find it.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

CHANNEL = "api/client/direct/channel.cpp"
MEMORY = "api/client/direct/memory.cpp"
OPERATION = "api/client/direct/operation.cpp"
PAYLOADS = "api/client/direct/payloads.cpp"
SLICES = "api/client/direct/slices.cpp"

# Fewer looks before a nap: (source, text, replacement).
SHORTER = [
    (CHANNEL, "constexpr int kCrowdedLooks = 2;", "constexpr int kCrowdedLooks = 1;"),
    (CHANNEL, "constexpr int kYields = 1000;", "constexpr int kYields = 1;"),
]


@dataclass
class Bug:
    source: str
    stories: list
    edits: list  # (text, replacement), each of which occurs once


PUBLISH = "  Published<std::uint64_t>(word).store_release(value);\n  shm::light_fence(enrolled_);\n"
BACK = "went with a member that has come back.\n    const auto hopeless = [this] { return "

BUGS = {
    # An arrival is published without an order: its payload can be seen later than it.
    "publish_relaxed": Bug(CHANNEL, ["inline", "pairs"], [
        ("Published<std::uint64_t>(word).store_release(value);",
         "Published<std::uint64_t>(word).store(value);")]),
    # Release and acquire are enough for the payload, and not for the sleep handshake.
    "publish_without_fence": Bug(CHANNEL, ["inline"], [
        ("  shm::light_fence(enrolled_);\n", "")]),
    # Whether a peer sleeps is asked before the word is there.
    "asleep_before_publish": Bug(CHANNEL, ["inline"], [
        (PUBLISH, ""), ("  if (!asleep) return;\n", PUBLISH + "  if (!asleep) return;\n")]),
    # No second look at the word once the flag is up.
    "nap_without_second_look": Bug(CHANNEL, ["inline", "pairs"], [
        ("if (!reached(seen) && left.count() > 0)", "if (left.count() > 0)")]),
    # One slot for all operations: the next one is written while a peer may still read this one.
    "slot_too_early": Bug(CHANNEL, ["inline"], [
        ("auto* slot = reinterpret_cast<shm::DirectSlot*>(slot_bytes(number_));\n  Published",
         "auto* slot = reinterpret_cast<shm::DirectSlot*>(slot_bytes(0));\n  Published"),
        ("(peers_[i].slots + (number_ & 1) * shm::kSlotBytes)", "(peers_[i].slots + 0 * shm::kSlotBytes)")]),
    # A slot is taken for this operation's by its number alone.
    "generation_not_compared": Bug(CHANNEL, ["stale"], [
        ("return sequence == number_ && stands(&slot->sequence, number_, &slot->generation);",
         "return sequence == number_;"),
        ("return stands(&slot->sequence, number, &slot->generation);",
         "return look(&slot->sequence) == number;")]),
    # The same number of an older generation stands in the slot while the new generation is written there.
    "number_not_taken_away": Bug(CHANNEL, ["abort_inline_anytime"], [
        ("    renew(&slot->sequence, &slot->generation);\n", "    static_cast<void>(slot);\n")]),
    # An arrival that its sender's return has wiped is waited for.
    "wiped_is_awaited": Bug(CHANNEL, ["departure_anytime"], [(BACK + "broken()", BACK + "late()")]),
    # What is read in place counts although its owner may have been told of the end, and write there.
    "source_of_the_told": Bug(PAYLOADS, ["abort_arena"], [
        ("return !channel_.let_go(i) && channel_.unchanged(i);", "return channel_.unchanged(i);")]),
    # The same, but an end for all is seen: a giver that was told of a departure is not.
    "told_of_a_departure": Bug(CHANNEL, ["departure_arena"], [
        ("const bool told = revoked() || look(&peers_[i].seat->generation) > words_.generation;",
         "const bool told = revoked();")]),
    # Whoever reads in place gives up as soon as anybody leaves, though its giver waits for it.
    "anybody_lets_go": Bug(PAYLOADS, ["leaving_arena"], [
        ("return !channel_.let_go(i) && channel_.unchanged(i);",
         "return !channel_.broken() && channel_.unchanged(i);")]),
    # What stands against the group ends what all had arrived at.
    "standing_revokes": Bug(CHANNEL, ["leaving_arena"], [
        ("  return look(&words_.line->revoked) >= words_.generation;",
         "  return Untrusted<std::int32_t>(&words_.line->standing).load_acquire() != 0 ||\n"
         "         look(&words_.line->revoked) >= words_.generation;")]),
    # Who was told of a verdict stays in the generation that it ended.
    "generation_not_taken": Bug(CHANNEL, ["abort_inline"], [
        ("words_.generation = all_here ? present : std::min(due + 1, present);",
         "words_.generation = due;")]),
    # A stage is filled again without asking whether the other group's members are done with it.
    "stage_too_early": Bug(MEMORY, ["two_groups"], [
        ("if (use.channel == nullptr || use.channel->generation() != use.generation) return Meeting::kMet;",
         "if (use.channel == nullptr || use.generation != 0) return Meeting::kMet;")]),
    # Whose memory is read in place does not wait for its readers.
    "source_too_early": Bug(OPERATION, ["arena"], [
        ("if (!(exchange ? faces.must_await_done() : payloads.must_await_done())) return done;",
         "if (say_done) return done;")]),
    # A slice is collected one chunk before its owner has said that it is there.
    "slice_too_early": Bug(SLICES, ["sliced"], [
        ("channel_.await_phase(c + 1, patience_)", "channel_.await_phase(c, patience_)")]),
}


def planted(source, name):
    text = Path(source).read_text(encoding="utf-8")
    edits = [(old, new) for path, old, new in SHORTER if source.endswith(path)]
    if name is not None:
        if not source.endswith(BUGS[name].source):
            raise SystemExit(f"plant: {name} belongs into {BUGS[name].source}, not into {source}")
        edits += BUGS[name].edits
    for old, new in edits:
        found = text.count(old)
        if found != 1:
            raise SystemExit(f"plant: {source} has {found} times, not once:\n{old}\n"
                             "Follow the source: the bug has to be planted where it would be one today.")
        text = text.replace(old, new)
    return text


def main(arguments):
    if arguments == ["--list"]:
        for name, bug in BUGS.items():
            print(name, bug.source, *bug.stories)
        return 0
    if len(arguments) not in (2, 3) or (len(arguments) == 3 and arguments[2] not in BUGS):
        print(__doc__, file=sys.stderr)
        return 2
    source, target = arguments[:2]
    name = arguments[2] if len(arguments) == 3 else None
    text = planted(source, name)
    # Messages and traces name the source, not the copy.
    Path(target).write_text(f'#line 1 "{source}"\n{text}', encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
