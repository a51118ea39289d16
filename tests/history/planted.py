#!/usr/bin/env python3
"""Plants a bug into a copy of one of the product's sources, which the random histories must find.

  planted.py SOURCE TARGET BUG

The text must be there once: when the source has moved on, this stops instead of planting nothing.
`planted.py --list` prints one line a bug: name, source.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

GROUP_EPOCHS = "daemon/engine/direct/group_epochs.cpp"
EPOCHS = "scheduler/run/epochs.cpp"
GRAPH = "scheduler/run/graph.cpp"
GROUP_PLACES = "scheduler/run/group_places.cpp"


@dataclass
class Bug:
    source: str
    before: str
    after: str


BUGS = {
    # A loss ends no place: those who wait for the lost rank go on waiting, and newcomers join them.
    "loss_raises_no_epoch": Bug(EPOCHS, "  if (ended_by(cause->fault)) return false;\n",
                                "  if (ended_by(cause->fault) || why == Why::kLoss) return false;\n"),
    # Who asks hears how the latest epoch ended, and not the one in which it stood.
    "cause_of_another_epoch": Bug(EPOCHS, "  return end_of(epoch).cause;\n",
                                  "  return epoch > 0 ? ends_.back().cause : end_of(epoch).cause;\n"),
    # A member that hears of one fault is past losses of which it has not heard.
    "skips_a_loss": Bug(EPOCHS,
                        "    if (end.why == Why::kLoss && end.cause->fault != fault) break;\n",
                        "    if (end.why == Why::kLoss && fault == 0) break;\n"),
    # Positions of the new epoch begin below those that somebody has used.
    "base_too_low": Bug(GROUP_EPOCHS, "  state.base = highest + 1;\n", "  state.base = state.base + 1;\n"),
    # A reset of one lane takes the rank past failures of its other lanes.
    "reset_moves_every_lane": Bug(GRAPH, "  matches_.heard(rank, fault);\n  actions_.resumed",
                                  "  matches_.attached(rank, false);\n  actions_.resumed"),
    # Who leaves because of a failure is told as its cause.
    "departure_without_cause": Bug(GRAPH, "  if (root == nullptr) root = heard;\n",
                                   "  root = heard != nullptr ? nullptr : heard;\n"),
    # Who opens a lane that nobody has meets newcomers there, and never hears of those before them.
    "lane_without_a_past": Bug(GROUP_PLACES,
                               " members.push_back(pairs_.members[i]);\n"
                               "    here = std::make_unique<LanePlace>(group_, pairs_.epochs, members);\n",
                               " members.emplace_back();\n"
                               "    here = std::make_unique<LanePlace>(group_, Epochs(), members);\n"),
}


def main(arguments):
    if arguments[1:] == ["--list"]:
        for name, bug in BUGS.items():
            print(name, bug.source)
        return 0
    source, target, bug = Path(arguments[1]), Path(arguments[2]), BUGS[arguments[3]]
    text = source.read_text()
    if text.count(bug.before) != 1:
        print(f"{source}: the text of {arguments[3]} is there {text.count(bug.before)} times, not once")
        return 1
    target.write_text(text.replace(bug.before, bug.after))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
