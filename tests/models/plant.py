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

GROUP_EPOCHS = "daemon/engine/direct/group_epochs.cpp"
ARRIVALS = "api/client/direct/arrivals.cpp"
CHANNEL = "api/client/direct/channel.cpp"
EPOCH_VIEW = "api/client/direct/epoch_view.cpp"
MEMORY = "api/client/direct/memory.cpp"
MESSAGES = "api/client/direct/messages.cpp"
PAYLOADS = "api/client/direct/payloads.cpp"
PHASES = "api/client/direct/phases.cpp"
SLICES = "api/client/direct/slices.cpp"
WAITER = "api/client/direct/waiter.cpp"

# Fewer looks before a nap: (source, text, replacement).
SHORTER = [
    (WAITER, "constexpr int kYields = 1000;", "constexpr int kYields = 1;"),
]


@dataclass
class Bug:
    source: str
    stories: list
    edits: list  # (text, replacement), each of which occurs once


PUBLISH = "  Published<std::uint64_t>(word).store_release(value);\n  shm::light_fence(enrolled_);\n"

BUGS = {
    # An arrival is published without an order: its payload can be seen later than it.
    "publish_relaxed": Bug(WAITER, ["inline", "pairs"], [
        ("Published<std::uint64_t>(word).store_release(value);",
         "Published<std::uint64_t>(word).store(value);")]),
    # Release and acquire are enough for the payload, and not for the sleep handshake.
    "publish_without_fence": Bug(WAITER, ["inline"], [
        ("  shm::light_fence(enrolled_);\n", "")]),
    # Whether a peer sleeps is asked before the word is there.
    "asleep_before_publish": Bug(WAITER, ["inline"], [
        (PUBLISH, ""), ("  if (asleep == 0) return;\n", PUBLISH + "  if (asleep == 0) return;\n")]),
    # No second look at the word once the flag is up.
    "nap_without_second_look": Bug(WAITER, ["inline", "pairs"], [
        ("if (!condition.reached(seen) && left.count() > 0)", "if (left.count() > 0)")]),
    # One slot for all operations: the next one is written while a peer may still read this one.
    "slot_too_early": Bug(ARRIVALS, ["inline"], [
        ("offset_ = (position & 1) * shm::kSlotBytes;", "offset_ = 0;")]),
    # The engine reads who has arrived before members can know of the end.
    "counted_without_fence": Bug(GROUP_EPOCHS, ["departure_exact"], [
        ("  shm::heavy_fence();\n", "")]),
    # A member that finds the epoch ended takes what it has not read yet for what the engine has not seen.
    "count_not_awaited": Bug(EPOCH_VIEW, ["departure_exact"], [
        ("if (met == shm::kMetUncounted) return Fate::kUnknown;",
         "if (met == shm::kMetUncounted) return Fate::kEnded;")]),
    # What all had arrived at goes on, whether the engine has counted it or not.
    "count_not_asked": Bug(CHANNEL, ["abort_inline_anytime", "departure_soon"], [
        ("return view_.ended() ? await_count(policy) : Waited::kMet;", "return Waited::kMet;")]),
    # The new epoch begins with the position after the highest: a member may just come to that in the old one.
    "base_without_gap": Bug(GROUP_EPOCHS, ["stale"], [
        ("  state.base = highest + 1;\n", "  state.base = highest - 1;\n")]),
    # The first arrival of the new epoch overwrites what all had met for, while a member still reads it.
    "base_of_any_parity": Bug(GROUP_EPOCHS, ["departure_soon_slot"], [
        ("  if ((state.base & 1) != (state.met & 1)) ++state.base;\n",
         "  if ((state.base & 1) == (state.met & 1)) ++state.base;\n")]),
    # What is read in place counts although another client of the rank may write there.
    "source_of_the_told": Bug(PAYLOADS, ["departure_giver"], [
        ("return channel_.awaits_readers(i);", "return true;")]),
    # The same, but a giver that is gone is seen: one that is back in a later epoch is not.
    "moved_on_is_not_seen": Bug(EPOCH_VIEW, ["departure_giver"], [
        ("return look(peers_[i].life) % 2 == 0 || look(&peers_[i].region->epoch) > epoch;",
         "return look(peers_[i].life) % 2 == 0;")]),
    # Whoever reads in place gives up as soon as anybody leaves, though its giver waits for it.
    "anybody_lets_go": Bug(PAYLOADS, ["leaving_arena"], [
        ("return channel_.awaits_readers(i);", "return !channel_.view().ended();")]),
    # A giver whose reader is lost fails what the others complete.
    "lost_reader_is_awaited": Bug(PHASES, ["departure_exact_arena"], [
        ("    if (waited == Waited::kEnded && view_.let_go(i, at)) continue;\n", "")]),
    # A member that has heard of an end stays in the epoch that it ended.
    "epoch_not_taken": Bug(EPOCH_VIEW, ["abort_inline"], [
        ("  epoch_ = epoch;\n", "  if (epoch_ == 0) epoch_ = epoch;\n")]),
    # A stage is filled again without asking whether the other group's members are done with it.
    "stage_too_early": Bug(MEMORY, ["two_groups"], [
        ("if (use.channel == nullptr) return Waited::kMet;",
         "if (use.channel == nullptr || use.at.epoch != 0) return Waited::kMet;")]),
    # Whose memory is read in place does not wait for its readers.
    "source_too_early": Bug(PAYLOADS, ["arena"], [
        ("if (given_.kind != Kind::kArena) return Outcome::kDone;", "return Outcome::kDone;")]),
    # A slice is collected one chunk before its owner has said that it is there.
    "slice_too_early": Bug(SLICES, ["sliced"], [
        ("await(channel_.at(), c + 1, policy_)", "await(channel_.at(), c, policy_)")]),
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
