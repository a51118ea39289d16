#!/usr/bin/env python3
"""A broken run of `mlp` ends with the loss of an unbroken one: `mlp_test.py MUSTER MLP`.

Goal:   what a checkpoint of one number of ranks holds, another number of ranks goes on from.
Method: train on 4 ranks without a break; then in parts, on 4 and 3 ranks, and on 2, 6 and 1. Ranks add up
        other samples each, so sums of gradients differ in their last bits: one unit of the last digit that is
        shown is allowed. A run that begins anew in the middle has to end with another loss.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = 40
LAST_DIGIT = 1e-5
BROKEN = (((4, 20), (3, 20)), ((2, 10), (6, 10), (1, 20)))


def train(muster, mlp, folder, ranks, steps):
    """(step, loss) that rank 0 prints at the end."""
    command = [muster, "run", "--private", "-n", str(ranks), "--", mlp, folder, str(steps)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=120, check=False)
    said = re.search(rf"step (\d+), with {ranks} ranks: loss (\S+)", done.stdout)
    if done.returncode != 0 or said is None:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return int(said.group(1)), float(said.group(2))


def is_as(loss, whole):
    return abs(loss - whole) < 1.5 * LAST_DIGIT


def main(arguments):
    muster, mlp = arguments[1:3]
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        _, whole = train(muster, mlp, Path(work, "whole"), 4, STEPS)
        for at, parts in enumerate(BROKEN):
            ends = [train(muster, mlp, Path(work, f"broken-{at}"), *part) for part in parts]
            if ends[-1][0] != STEPS or not is_as(ends[-1][1], whole):
                failed += 1
                print(f"{parts} ended with {ends}, but an unbroken run with the loss {whole}")
        _, anew = train(muster, mlp, Path(work, "anew"), *BROKEN[0][1])
        if is_as(anew, whole):
            failed += 1
            print(f"a run from the first step ends with {anew} too: the losses tell nothing")
    print(f"mlp: the loss is {whole} after {STEPS} steps, {failed} broken runs differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
