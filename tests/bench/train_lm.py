#!/usr/bin/env python3
"""Trains the example in several ways, in turns: by Muster on the demo mesh, by Muster on one rank, with one
core for the engine, and as a plain program of one process without Muster. Prints tokens/s, the exposed
communication, and the last loss, which is the same for all.

  train_lm.py [--steps N] [--turns N] [--json FILE] [--plots FOLDER]

Of the turns the median counts: the host of a virtual machine has fast and slow minutes.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

BENCH = pathlib.Path(__file__).absolute().parent  # build/PRESET/bench, by a link
BIN = BENCH.parent / "bin"
MESH = "dp_replicate=2,dp_shard=2,tp=2"


def muster(ranks, *mesh):
    return [BIN / "muster", "run", "--private", "-n", str(ranks), *mesh, "--", BIN / "train_lm"]


WAYS = {  # name: command, environment
    "plain, 1 process": ([BENCH / "peers" / "train_lm_plain"], {}),
    "muster, 1 rank": (muster(1), {}),
    "muster, 2 x 2 x 2": (muster(8, "--mesh", MESH), {}),
    "plain, 1 process, 1 core": ([BENCH / "peers" / "train_lm_plain"], {"PLAIN_THREADS": "1"}),
    "muster, 2 x 2 x 2, engine on 1 core": (muster(8, "--mesh", MESH), {"MUSTER_SET_node__workers": "1"}),
}


def train(way, dtype, steps):
    command, environment = WAYS[way]
    words = [str(word) for word in command]
    words += ["--steps", str(steps), "--seed", "7", "--dtype", dtype, "--json"]
    done = subprocess.run(words, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"train_lm.py: {' '.join(words)} ended with status {done.returncode}: {done.stderr[-500:]}")
    last = done.stdout.splitlines()[-1]
    return json.loads(last[last.index("{"):])  # muster run puts the rank before it


def differing(rows):
    """Figures of programs that do not learn the same say nothing."""
    for row in rows:
        first = next(other for other in rows if other["dtype"] == row["dtype"])
        if abs(row["last_loss"] - first["last_loss"]) > 0.01 * first["last_loss"]:
            return (f"{row['way']} ends with loss {row['last_loss']}, "
                    f"{first['way']} with {first['last_loss']}")
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--plots", help="accepted beside other benchmarks; there is nothing to draw")
    arguments = parser.parse_args()
    programs = (BENCH / "peers" / "train_lm_plain", BIN / "muster", BIN / "train_lm")
    missing = [str(path) for path in programs if not path.exists()]
    if missing:
        sys.exit(f"train_lm.py: {missing[0]} is not built; run deploy/bench.sh")
    runs = {}
    for turn in range(arguments.turns):
        for dtype in ("f32", "bf16"):
            for way in WAYS:
                print(f"turn {turn + 1}: {way}, {dtype}", file=sys.stderr)
                runs.setdefault((way, dtype), []).append(train(way, dtype, arguments.steps))
    rows = []
    print(f"{'way':<36} {'dtype':<5} {'tokens/s':>9} {'least':>8} {'most':>8} {'exposed %':>9} "
          f"{'last loss':>9}")
    for (way, dtype), figures in runs.items():
        speeds = [run["tokens_per_second"] for run in figures]
        row = {
            "way": way,
            "dtype": dtype,
            "tokens_per_second": statistics.median(speeds),
            "least": min(speeds),
            "most": max(speeds),
            "exposed_percent": 100 * statistics.median(run["exposed_fraction"] for run in figures),
            "last_loss": figures[-1]["final_loss"],
        }
        rows.append(row)
        print(f"{way:<36} {dtype:<5} {row['tokens_per_second']:9.0f} {row['least']:8.0f} {row['most']:8.0f} "
              f"{row['exposed_percent']:9.2f} {row['last_loss']:9.4f}")
    wrong = differing(rows)
    if arguments.json:
        report = {"steps": arguments.steps, "turns": arguments.turns, "rows": rows}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if wrong:
        sys.exit(f"train_lm.py: {wrong}")


if __name__ == "__main__":
    main()
