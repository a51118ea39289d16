#!/usr/bin/env python3
"""Compares two builds of Muster in turns, beside the first one against itself. The two columns of the first
build differ by chance alone, so they show what of a ratio is noise.

  builds.py BEFORE AFTER [--turns N] [--where one-node two-nodes train_lm] [--ranks N] [--bytes N...]
            [--operations NAME...] [--json FILE]

BEFORE and AFTER are build folders, such as build/release of two checkouts. A cell's figure is the median of
its turns. A cell is slower if its ratio is above 1.03 and above that of every cell of the first build
against itself. Exits with 1 if there is one.
"""

import argparse
import collections
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

BOUND = 1.03
SIDES = ("before", "again", "after")  # `again` is `before` once more


def run(words):
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False)
    if done.returncode not in (0, 1):  # 1: a target of the report is missed
        sys.exit(f"builds.py: {' '.join(map(str, words))} ended with status {done.returncode}: "
                 f"{done.stderr[-500:]}")
    return done.stdout


def rows_of(words):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.json"
        run([*words, "--json", path])
        return json.loads(path.read_text())["rows"]


def one_node(build, options):
    words = [build / "bin" / "muster-bench", "--contenders", "muster", "--rounds", "1", "--ranks",
             options.ranks, "--bytes", ",".join(options.bytes)]
    words += ["--operations", ",".join(options.operations)] if options.operations else []
    for row in rows_of(words):
        if row["peer"] == "muster" and row["median_us"] > 0:
            yield (row["operation"], row["bytes"], row["path"]), row["median_us"]


def two_nodes(build, options):
    words = [build / "bench" / "cluster", "--nodes", "2", "--ranks-per-node", "1", "--contenders", "muster",
             "--turns", "1", "--bytes", *options.bytes]
    for row in rows_of(words):
        yield (row["operation"], row["bytes"], f"2 nodes, {row['path']}"), row["median_us"]


def train_lm(build, options):
    text = run([build / "bin" / "muster", "run", "--private", "-n", options.ranks, "--",
                build / "bin" / "train_lm", "--steps", "60", "--seed", "7", "--json"])
    last = text.splitlines()[-1]
    found = json.loads(last[last.index("{"):])  # muster run puts the rank before it
    yield ("train_lm", 0, "µs a token"), 1e6 / found["tokens_per_second"]


WHERE = {"one-node": one_node, "two-nodes": two_nodes, "train_lm": train_lm}


def measured(options):
    """Figures by place, cell and side. Each turn begins with another side."""
    found = {where: collections.defaultdict(lambda: collections.defaultdict(list)) for where in options.where}
    builds = {"before": options.before, "again": options.before, "after": options.after}
    for turn in range(options.turns):
        for where in options.where:
            for place in range(len(SIDES)):
                side = SIDES[(turn + place) % len(SIDES)]
                print(f"turn {turn + 1}: {where}, {side}", file=sys.stderr, flush=True)
                for cell, figure in WHERE[where](builds[side], options):
                    found[where][cell][side].append(figure)
    return found


def compared(found):
    """Rows with the median of each side, and their ratios to the first."""
    for where, cells in found.items():
        for cell, sides in cells.items():
            if all(sides[side] for side in SIDES):
                medians = [statistics.median(sides[side]) for side in SIDES]
                yield {"where": where, "operation": cell[0], "bytes": cell[1], "path": cell[2],
                       **dict(zip(SIDES, medians)), "noise": medians[1] / medians[0],
                       "ratio": medians[2] / statistics.median(sides["before"] + sides["again"]),
                       "turns": {side: sides[side] for side in SIDES}}


def slower(rows):
    worst = {}
    for row in rows:
        noise = max(row["noise"], 1 / row["noise"])
        worst[row["where"]] = max(worst.get(row["where"], 1.0), noise)
    return [row for row in rows if row["ratio"] > max(BOUND, worst[row["where"]])], worst


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("after", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--where", nargs="+", choices=WHERE, default=list(WHERE))
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--bytes", nargs="+", default=["8", "64KiB", "1MiB"])
    parser.add_argument("--operations", nargs="+")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    rows = list(compared(measured(options)))
    print(f"{'operation':<20}{'bytes':>9}  {'by':<14}" + "".join(f"{side:>11}" for side in SIDES) +
          f"{'noise':>8}{'ratio':>8}")
    for row in rows:
        print(f"{row['operation']:<20}{row['bytes']:>9}  {row['path']:<14}" +
              "".join(f"{row[side]:>11.3f}" for side in SIDES) + f"{row['noise']:>8.3f}{row['ratio']:>8.3f}")
    found, worst = slower(rows)
    for where, noise in worst.items():
        ratios = [row["ratio"] for row in rows if row["where"] == where]
        print(f"{where}: {len(ratios)} cells, ratio {statistics.median(ratios):.3f} in the median, "
              f"{max(ratios):.3f} at most; the first build against itself at most {noise:.3f}")
    for row in found:
        print(f"slower: {row['operation']}, {row['bytes']} bytes, {row['path']}: {row['ratio']:.3f}")
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
