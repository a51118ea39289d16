#!/usr/bin/env python3
"""Layers over a field that is cut by rows: by Muster, and by PhysicsNeMo's ShardTensor on torch and Gloo.

  physicsnemo.py [--quick] [--ranks N...] [--turns N] [--python FILE] [--json FILE] [--plots FOLDER]

The two sides take turns. Each computes the same convolutions, group norms and mean from the same numbers,
forward and backward. Both are held against the formulas in double precision. Then come operators that
PhysicsNeMo gets wrong or refuses. Of each side the median step of all turns counts; of ShardTensor that of
its better memory format. Without PhysicsNeMo its part is left out.
"""

import argparse
import array
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # the tree stays as it was

import sides
from resident import Peak

BENCH = pathlib.Path(__file__).absolute().parent  # build/PRESET/bench, by a link
SOURCES = pathlib.Path(__file__).resolve().parent
PROGRAM, MUSTER = BENCH / "peers" / "domain_layers", BENCH.parent / "bin" / "muster"
VERSION = "2.2.2"  # of PhysicsNeMo, to which the figures of README.md belong
LIMIT_SECONDS = 300
TOLERANCE = 1e-4  # of the largest value of an array
GOAL = 2.0
MIB = 2**20
FORMATS = ("contiguous", "channels last")


def convolution(out, kernel=3, stride=1, pad=1, circular=False):
    return {"op": "convolution", "out": out, "kernel": kernel, "stride": stride, "pad": pad,
            "circular": circular}


def norm(groups):
    return {"op": "norm", "groups": groups}


def stack(name, rows, columns, channels, lengths, layers, base=0.0, spread=1.0, weighted=True, steps=1):
    """What domain_layers and shard_tensor.py read. Values of the field lie within `spread` around `base`."""
    return {"name": name, "rows": rows, "columns": columns, "channels": channels, "lengths": lengths,
            "base": base, "spread": spread, "weighted": weighted, "steps": steps, "layers": layers}


def balanced(rows, ranks):
    return [rows // ranks + (rank < rows % ranks) for rank in range(ranks)]


def timed_stack(ranks, steps, quick):
    rows, columns, edge, inner = (48, 96, 8, 16) if quick else (240, 480, 16, 32)
    layers = [convolution(inner), norm(8), convolution(inner), norm(8), convolution(inner), norm(8),
              convolution(edge)]
    return stack("layers", rows, columns, edge, balanced(rows, ranks), layers, steps=steps)


FAULTS = {
    "3x3, stride 2, on 17 + 16 rows": stack("strided", 33, 40, 8, [17, 16], [convolution(16, stride=2)]),
    "group norm near 10,000": stack("norm", 24, 40, 8, [12, 12], [norm(4)], base=10_000.0, spread=32.0),
    "mean, one shard empty": stack("mean", 24, 40, 8, [24, 0], [], weighted=False),
    "4x4, an even kernel": stack("even", 24, 40, 8, [12, 12], [convolution(16, kernel=4)]),
    "3x3 with circular pads": stack("circular", 24, 40, 8, [12, 12], [convolution(16, circular=True)]),
}


class Outcome:
    """What a side has left in its folder, and its line of JSON."""

    def __init__(self, folder, line, code):
        self.folder, self.line, self.code = folder, line, code

    def said(self, name):
        return self.line["stacks"][name]

    def arrays(self, name):
        """y, dx and the gradients of parameters, of all ranks in their order."""
        return {kind: self.read(f"{name}.{kind}") for kind in ("y", "dx", "dw")}

    def read(self, stem):
        values = array.array(self.code)
        parts = sorted(self.folder.glob(stem + ".*"), key=lambda path: int(path.suffix[1:]))
        for path in parts or [self.folder / stem]:
            values.frombytes(path.read_bytes())
        return values


def largest(values):
    """A NaN among them is what comes out."""
    values = list(values)
    return math.nan if any(map(math.isnan, values)) else max(values, default=0.0)


def difference(mine, right):
    """The largest one of two arrays; infinite where they have not the same length."""
    return largest(abs(a - b) for a, b in zip(mine, right)) if len(mine) == len(right) else math.inf


class Differences:
    """Of two outcomes of one stack, each as a part of the largest value that is right."""

    def __init__(self, name, mine, other, right):
        ours, theirs, scales = mine.arrays(name), other.arrays(name), right.arrays(name)
        self.parts = {kind: difference(ours[kind], theirs[kind]) / (largest(map(abs, scales[kind])) or 1.0)
                      for kind in ours}
        scale = largest(map(abs, scales["y"]))
        self.parts["mean"] = abs(mine.said(name)["mean"] - other.said(name)["mean"]) / scale
        self.most = largest(self.parts.values())

    def text(self):
        return ", ".join(f"{kind} {part:.1e}" for kind, part in self.parts.items())


class MusterSide:
    name = "Muster"

    @staticmethod
    def reference(stacks, folder):
        return Outcome(folder, sides.run([PROGRAM, "reference", written(stacks, folder), folder])[0], "d")

    @staticmethod
    def run(stacks, folder, ranks):
        words = [MUSTER, "run", "--private", "-n", ranks, "--",
                 PROGRAM, "ranks", written(stacks, folder), folder]
        return Outcome(folder, sides.run(words, sides.SMALL_SEGMENTS)[0], "f")


class ShardTensorSide:
    """`absent` says why there is none, or is None."""

    name = "PhysicsNeMo"

    def __init__(self, python):
        self.python, self.absent, self.version = python, None, None
        ask = ("import torch, physicsnemo, physicsnemo.domain_parallel; "
               "print(physicsnemo.__version__, torch.__version__)")
        try:
            asked = subprocess.run([str(python), "-c", ask], cwd="/", capture_output=True, text=True,
                                   check=True)
            self.version = asked.stdout.split()
        except subprocess.CalledProcessError as error:
            why = (error.stderr.strip() or "it ended without a word").splitlines()[-1]
            self.absent = f"no PhysicsNeMo by {python}: {why}"
        except OSError as error:
            self.absent = f"no PhysicsNeMo by {python}: {error.strerror}"

    def run(self, stacks, folder, ranks, channels_last=False):
        threads = max(1, len(os.sched_getaffinity(0)) // ranks)
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo",
                       "PYTHONDONTWRITEBYTECODE": "1"}
        words = [self.python, SOURCES / "torch" / "shard_tensor.py", written(stacks, folder), folder,
                 "--ranks", ranks, "--threads", threads, *(["--channels-last"] if channels_last else [])]
        processes, logs = [], [folder / f"log.{rank}" for rank in range(ranks)]
        try:
            for rank, log in enumerate(logs):
                with log.open("w", encoding="utf-8") as errors:
                    processes.append(subprocess.Popen(
                        [str(word) for word in [*words, "--rank", rank]], env=environment, cwd=folder,
                        text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors))
            self.await_all(processes, logs)
            line = processes[0].stdout.read().splitlines()[-1]
        finally:
            for process in processes:
                process.kill()  # nothing happens to one that has ended
                process.communicate()
        return Outcome(folder, json.loads(line), "f")

    @staticmethod
    def await_all(processes, logs):
        """Until all have ended well. One that has not ends the wait, because the others would wait for it."""
        until = time.monotonic() + LIMIT_SECONDS
        while any(process.poll() is None for process in processes):
            if any(process.poll() for process in processes) or time.monotonic() > until:
                break
            time.sleep(0.02)
        for rank, process in enumerate(processes):
            if process.poll():
                raise sides.Failed(f"rank {rank} of ShardTensor ended with status {process.poll()}: "
                                   f"{logs[rank].read_text(encoding='utf-8')[-800:]}")
        if any(process.poll() is None for process in processes):
            raise sides.Failed(f"ShardTensor took longer than {LIMIT_SECONDS} s")


def written(stacks, folder):
    path = folder / "stacks.json"
    path.write_text(json.dumps(stacks), encoding="utf-8")
    return path


def say(line):
    print(line, flush=True)


class Campaign:
    def __init__(self, options, peer, place):
        self.options, self.peer, self.place = options, peer, place
        self.failures = []
        self.folders = 0

    def folder(self):
        self.folders += 1
        made = self.place / str(self.folders)
        made.mkdir()
        return made

    def expect(self, what, differences):
        if not differences.most <= TOLERANCE:
            self.failures.append(f"{what} differ by {differences.most:.1e}: {differences.text()}")

    def held(self, run, stacks, *words):
        """Bytes of all processes together at the peak, above what they hold without a stack."""
        peaks = []
        for each in ([], stacks):
            with Peak(os.getpid()) as peak:
                outcome = run(each, self.folder(), *words)
            peaks.append(peak.resident_bytes)
        return peaks[1] - peaks[0], outcome

    # ---- one stack on so many ranks ----

    def layers(self, ranks):
        quick = self.options.quick
        timed = [timed_stack(ranks, 4 if quick else 8, quick)]
        ours, theirs = [], {name: [] for name in FORMATS}
        for _ in range(self.options.turns):
            if not self.peer.absent:
                for name in FORMATS:
                    theirs[name].append(self.peer.run(timed, self.folder(), ranks, name == "channels last"))
            ours.append(MusterSide.run(timed, self.folder(), ranks))
        short = [timed_stack(ranks, 2, quick)]
        above, last = self.held(MusterSide.run, short, ranks)
        row = {"ranks": ranks, "muster_ms": step_ms(ours), "muster_bytes": above,
               "muster_buffer_bytes": last.line["buffer_bytes_peak"]}
        right = MusterSide.reference(timed, self.folder())
        differences = Differences("layers", ours[-1], right, right)
        self.expect(f"{ranks} ranks: Muster and the reference", differences)
        row["muster_and_reference"] = differences.parts
        say(f"{ranks} ranks, Muster: a step of {row['muster_ms']:.1f} ms; {mib(above)} MiB of all processes, "
            f"{mib(row['muster_buffer_bytes'])} of buffers")
        say(f"  beside double precision: {differences.text()}")
        if not self.peer.absent:
            self.beside(row, theirs, ours[-1], right, short)
        return row

    def beside(self, row, theirs, ours, right, short):
        ranks, found = row["ranks"], {}
        for name, outcomes in theirs.items():
            refused = outcomes[-1].said("layers").get("refused")
            found[name] = math.inf if refused else step_ms(outcomes)
            say(f"{ranks} ranks, PhysicsNeMo, {name}: "
                + (f"refused, {refused}" if refused else f"a step of {found[name]:.1f} ms"))
        best = min(found, key=found.get)
        if found[best] == math.inf:
            self.failures.append(f"{ranks} ranks: PhysicsNeMo refuses the layers")
            return
        last = theirs[best][-1]
        pairs = {"physicsnemo_and_reference": Differences("layers", last, right, right),
                 "muster_and_physicsnemo": Differences("layers", ours, last, right)}
        for key, differences in pairs.items():
            row[key] = differences.parts
            self.expect(f"{ranks} ranks: {key.replace('_', ' ')}", differences)
        above, _ = self.held(self.peer.run, short, ranks, best == "channels last")
        row.update(physicsnemo_ms=found[best], physicsnemo_format=best, physicsnemo_bytes=above,
                   ratio=found[best] / row["muster_ms"],
                   formats_ms={name: None if ms == math.inf else ms for name, ms in found.items()})
        goal = "met" if row["ratio"] >= GOAL else "not met"
        say(f"  {mib(above)} MiB of all processes; beside double precision: "
            f"{pairs['physicsnemo_and_reference'].text()}")
        say(f"  Muster's step is {row['ratio']:.2f} times as fast (goal {GOAL:.0f}, {goal}); they differ by "
            f"{pairs['muster_and_physicsnemo'].text()}")

    # ---- what goes wrong ----

    def faults(self):
        stacks = list(FAULTS.values())
        right = MusterSide.reference(stacks, self.folder())
        ours = MusterSide.run(stacks, self.folder(), 2)
        theirs = None if self.peer.absent else self.peer.run(stacks, self.folder(), 2)
        rows = []
        say(f"\n{'on 2 ranks':34} {'Muster':34} PhysicsNeMo")
        for title, each in FAULTS.items():
            name = each["name"]
            differences = Differences(name, ours, right, right)
            self.expect(f"{title}: Muster and the reference", differences)
            row = {"case": title, "muster": f"right within {differences.most:.0e}",
                   "muster_and_reference": differences.parts,
                   "physicsnemo": verdict(theirs, right, each) if theirs else "-"}
            rows.append(row)
            say(f"{title:34} {row['muster']:34} {row['physicsnemo']}")
        return rows


def verdict(outcome, right, each):
    """What PhysicsNeMo makes of a stack, in a few words."""
    said, name = outcome.said(each["name"]), each["name"]
    if "refused" in said:
        return f"refused: {said['refused']}"
    if math.isnan(said["mean"]):
        return f"NaN; it is {right.said(name)['mean']:.6f}"
    mine, y = outcome.read(f"{name}.y"), right.read(f"{name}.y")
    if len(mine) != len(y):
        return f"{len(mine)} values instead of {len(y)}, without a word"
    most, scale = difference(mine, y), largest(map(abs, y))
    if most <= TOLERANCE * scale:
        return f"right within {most / scale:.0e}"
    return f"off by {most:.2g}, of values up to {scale:.1f}, without a word"


def step_ms(outcomes):
    """The median of all turns; the first step of each makes what later ones keep."""
    seconds = [each for outcome in outcomes for each in outcome.said("layers")["step_seconds"][1:]]
    return 1e3 * statistics.median(seconds)


def mib(count):
    return f"{count / MIB:.0f}"


def parsed():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small field, few steps: shows that it runs")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--turns", type=int)
    parser.add_argument("--python", type=pathlib.Path, help="an interpreter that has PhysicsNeMo")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows into this file")
    parser.add_argument("--plots", type=pathlib.Path, help="taken, and not used: there are tables alone")
    options = parser.parse_args()
    options.turns = options.turns or (1 if options.quick else 3)
    made = SOURCES.parent.parent / "build" / "torch" / "bin" / "python3"  # by deploy/setup.sh physicsnemo
    options.python = options.python or (made if made.exists() else pathlib.Path(sys.executable))
    return options


def main():
    options = parsed()
    if missing := next((program for program in (MUSTER, PROGRAM) if not program.exists()), None):
        sys.exit(f"physicsnemo.py: {missing} is not built; run deploy/bench.sh")
    peer = ShardTensorSide(options.python)
    say(f"PhysicsNeMo is left out: {peer.absent}" if peer.absent else
        f"PhysicsNeMo {peer.version[0]} (figures are of {VERSION}), torch {peer.version[1]}, Gloo")
    with tempfile.TemporaryDirectory() as place:
        campaign = Campaign(options, peer, pathlib.Path(place))
        try:
            result = {"versions": peer.version, "layers": [campaign.layers(ranks) for ranks in options.ranks],
                      "faults": campaign.faults()}
        except sides.Failed as failure:
            sys.exit(f"physicsnemo.py: {failure}")
    if options.json:
        options.json.write_text(json.dumps({**result, "failures": campaign.failures}, indent=1) + "\n",
                                encoding="utf-8")
    if campaign.failures:
        sys.exit("\n".join(f"physicsnemo.py: {failure}" for failure in campaign.failures))


if __name__ == "__main__":
    main()
