#!/usr/bin/env python3
"""Fields over ranks: convolutions beside oneDNN, a rank that is late, and one that is killed.

Convolutions run on one thread. A ring of ranks says how late one late rank makes the others, and when they
hear that one was killed.

  domain.py [--quick] [--json FILE] [--plots FOLDER]

Of the turns the best counts: what else runs on the machine only makes it slower.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

sys.dont_write_bytecode = True  # the tree stays as it was

BENCH = pathlib.Path(sys.argv[0]).absolute().parent  # build/PRESET/bench, by a link
PEERS, BIN = BENCH / "peers", BENCH.parent / "bin"
RANKS = 8


def lines(*words, fails=False):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, timeout=600)
    if (done.returncode != 0) != fails:
        sys.exit(f"domain: {words[0]} ended with status {done.returncode}: {done.stderr[-800:]}")
    return [json.loads(line[line.index("{"):]) for line in done.stdout.splitlines() if "{" in line]


def kernels(quick):
    rows = lines(PEERS / "domain_kernels", *(["quick"] if quick else []))
    print("GFLOP/s on one thread: oneDNN on a dense array, a rank's rows with their ghosts, a rank's columns")
    print(f"{'shape':28}{'':12}{'oneDNN':>8}{'rows':>8}{'':>6}{'columns':>9}{'':>6}{'in three launches':>20}")
    for row in rows:
        row["rows_ratio"], row["columns_ratio"] = (row[cut] / row["onednn"] for cut in ("rows", "columns"))
        print(f"{row['shape']:28}{row['direction']:12}{row['onednn']:8.1f}{row['rows']:8.1f}"
              f"{row['rows_ratio']:6.2f}{row['columns']:9.1f}{row['columns_ratio']:6.2f}"
              f"{100 * (row['split'] - 1):+18.1f} %")
    for direction in dict.fromkeys(row["direction"] for row in rows):
        of = [row for row in rows if row["direction"] == direction]
        rest = [row["split"] for row in of]
        print(f"{direction}: rows {statistics.median(row['rows_ratio'] for row in of):.2f} of oneDNN in the "
              f"median (least {min(row['rows_ratio'] for row in of):.2f}), columns "
              f"{statistics.median(row['columns_ratio'] for row in of):.2f} "
              f"({min(row['columns_ratio'] for row in of):.2f}), interior and boundaries "
              f"{100 * (statistics.median(rest) - 1):+.1f} % (most {100 * (max(rest) - 1):+.1f} %)")
    return rows


def late(quick):
    ranks = lines(BIN / "muster", "run", "--private", "-n", RANKS, "--", PEERS / "domain_late",
                  *(["20"] if quick else []))
    print(f"\nOne of {RANKS} ranks in a ring is 5 ms late in every tenth step. How late steps end, in ms:")
    rows = []
    for distance in sorted({rank["distance"] for rank in ranks}):
        of = [rank for rank in ranks if rank["distance"] == distance]
        rows.append({"distance": distance, **{key: statistics.mean(rank[key] for rank in of)
                                              for key in ("late_ms", "usual_ms")}})
        print(f"  {distance} hops away: {rows[-1]['late_ms']:.2f}, in other steps {rows[-1]['usual_ms']:.2f}")
    return rows


def killed():
    ranks = lines(BIN / "muster", "run", "--private", "-n", RANKS, "--", PEERS / "domain_late", "0",
                  fails=True)
    if len(ranks) != RANKS - 1:
        sys.exit(f"domain: {len(ranks)} ranks of {RANKS - 1} said when they heard of the killed one")
    heard = [rank["heard_ms"] for rank in ranks]
    print(f"\nOne of {RANKS} ranks is killed while its neighbours wait for its halo. "
          f"The others hear after {min(heard):.0f} to {max(heard):.0f} ms.")
    return ranks


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one shape, few turns")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows into this file")
    parser.add_argument("--plots", type=pathlib.Path, help="taken, and not used: there are tables alone")
    options = parser.parse_args()
    result = {"kernels": kernels(options.quick), "late": late(options.quick), "killed": killed()}
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
