#!/usr/bin/env python3
"""Runs what is promised at the size at which it is promised: two hours and a quarter, on a machine that
does nothing else.

Each line of PROOFS is a test program of build/PRESET with what makes it long, and gives one line: its name,
`passed` or `failed`, the seconds it took, how many of its tests were skipped, and the figures that it
printed. Ends with 1 if one failed.

  prove.py                      all of them
  prove.py --only restarts      that one; may stand several times
  prove.py --list               what there is, and how long each takes
  prove.py --record FILE        appends each line with date and commit to FILE
  prove.py --preset tsan        those that are promised under that sanitizer too (debug: AddressSanitizer)
  prove.py --build              builds their programs before

What a proof printed is in build/PRESET/prove/NAME.log. `make prove` builds everything before.
"""

import argparse
import datetime
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from test import PRESETS, launcher  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
LATE_FACTOR = 10  # so many times what it should take, and it hangs
LATE_MINUTES_LEAST = 30
LOOK_S = 0.2
PATIENCE_S = 10  # for a program that was told to end


@dataclass
class Proof:
    name: str
    minutes: float  # on two cores
    program: str
    environment: dict = field(default_factory=dict)
    filter: str = "*"
    sanitized_minutes: float = 0  # under each sanitizer; 0: it is no promise there


def _cases(count):
    return {"MUSTER_PROPERTY_CASES": str(count)}


CONTRACT = {"MUSTER_CONTRACT": "1"}
LONG = {**CONTRACT, "MUSTER_FAULT_FACTOR": "10"}
CASES = _cases(100_000)
FULL = {"MUSTER_CONFORMANCE": "full"}
SEEDS = {"MUSTER_FAULT_SEEDS": "1000"}
TWO_NODES = {"MUSTER_TEST_NODES": "2"}
NO_LONG_VECTORS = "Faulty/*-*OnLongVectors*:*StreamsLarge*"

# Programs of the client's tests whose ranks may be on several nodes.
CLIENT = ["batch_test", "buffers_test", "checkpoint_test", "collectives_test", "compare_test", "ghosted_test",
          "groups_test", "halo_test", "interrupt_test", "introspect_test", "lanes_test",
          "last_failure_test", "layouts_test", "mesh_calls_test", "objects_test", "offsets_test",
          "open_test", "pieces_test", "recount_test", "refusal_test", "run_test", "session_test",
          "tags_test", "tensor_parallel_layers_test", "tensor_parallel_test",
          "units_broadcast_test", "units_rules_test", "units_sets_test", "units_test",
          "units_unused_test"]

PROOFS = [
    *(Proof(f"two-nodes-{name.removesuffix('_test')}", 1, name, TWO_NODES) for name in CLIENT),
    Proof("conformance-loopback", 1, "loopback_test", FULL),
    Proof("conformance-direct", 2, "direct_conformance_test", FULL),
    Proof("faulty-endpoints", 15, "networks_test", SEEDS, "FaultyMemory*", 60),
    Proof("faulty-communicators", 14, "faulty_factory_test", {**SEEDS, **_cases(20)}, NO_LONG_VECTORS, 60),
    Proof("faulty-spanning", 1, "spanning_test", {**SEEDS, **_cases(500)}, "Faulty/*Random*", 60),
    Proof("faulty-steps", 1, "failing_step_test", {**SEEDS, **_cases(500)}, "*InRandomRounds", 60),
    Proof("random-spanning", 1, "spanning_test", _cases(5_000), "Spanning/*Random*"),
    Proof("layouts", 1, "spanning_test", FULL, "*CarryEveryOperation*"),
    Proof("changed-bytes", 1, "spanning_group_test", _cases(10_000), "*WhereAByteWasChanged"),
    Proof("replayed-heads", 1, "spanning_group_test", _cases(1_000_000), "*NothingThatComesAgain"),
    Proof("late-bytes", 2, "spanning_group_test", _cases(10_000), "*WriteNothingLate"),
    Proof("random-loopback", 1, "loopback_test", CASES, "*Random*"),
    Proof("interfaces", 7, "interfaces_test", {"MUSTER_INTERFACE_RUNS": "20"}),
    Proof("short-jobs", 2, "evictions_test", {"MUSTER_SHORT_JOBS": "200"}),
    Proof("short-jobs-of-two-nodes", 2, "peers_test", {"MUSTER_SHORT_JOBS": "200"}, "*GiveTheirMemory*"),
    Proof("meshes", 2, "meshes_test", {"MUSTER_MESHES": "8"}),
    Proof("random-direct", 2, "direct_conformance_test", CASES, "*Random*"),
    Proof("conformance-public", 6, "random_collectives_test", FULL, "*AtEachLength"),
    Proof("random-public", 1, "random_collectives_test", CASES, "*GiveTheBitsOfTheOracle"),
    Proof("stencils", 2, "base_halo_test", _cases(20_000), "HaloCases*"),
    Proof("halos", 1, "halo_test", _cases(2_000), "*CarryWhatOneRankWouldRead"),
    Proof("two-nodes-halos", 1, "halo_test", {**TWO_NODES, **_cases(2_000)}, "*CarryWhatOneRankWouldRead"),
    Proof("redistributions", 1, "redistribution_test", _cases(20_000), "*Any*"),
    Proof("two-nodes-random-public", 2, "random_collectives_test", {**TWO_NODES, **_cases(5_000)},
          "*GiveTheBitsOfTheOracle:*ReduceEveryDtype*"),
    Proof("two-nodes-digests", 1, "digest_test", TWO_NODES),
    Proof("shared-between-nodes", 1, "spanning_group_test", _cases(5_000), "*SharedTargets*"),
    Proof("agreement", 1, "agreement_test", CASES),
    Proof("gathering", 2, "supervisor_parts_test", _cases(20_000), "Rendezvous*"),
    Proof("overlap", 1, "base_overlap_test", CASES),
    Proof("failure-histories", 2, "failure_history_test", _cases(19_000)),
    Proof("histories", 3, "history_test", _cases(19_000)),
    Proof("process-histories", 4, "history_process_test", _cases(1_000)),
    Proof("programs", 4, "programs_test", _cases(10_000)),
    Proof("unit-departures", 15, "units_departures_test", _cases(5_000)),
    Proof("mutated-fields", 3, "mutation_test", _cases(10_000), "*FindsEveryMutatedField"),
    Proof("two-nodes-mutated-fields", 4, "mutation_test", {**TWO_NODES, **_cases(10_000)},
          "*FindsEveryMutatedField"),
    Proof("differing-nodes", 2, "spanning_group_test", _cases(10_000), "*HearsOfADifferenceOnAllNodes"),
    Proof("matching-fields", 1, "mutation_test", _cases(1_000_000), "*TakesNothingThatMatches*"),
    Proof("restarts", 1, "restart_test", {**CONTRACT, "MUSTER_RESTARTS": "500"}),
    Proof("healings", 1, "healing_moments_test", {"MUSTER_HEALINGS": "200"}),
    Proof("kill-cycles", 2, "fault_cycles_test", {**LONG, "MUSTER_KILL_CYCLES": "2000"}),
    Proof("fault-points", 2, "fault_point_test", CONTRACT),
    Proof("cluster-faults", 35, "cluster_faults_test", {**CONTRACT, "MUSTER_CLUSTER_FAULTS": "500"},
          "*AreHeardOfAndHealed"),
    Proof("making-faults", 6, "cluster_faults_test", {"MUSTER_MAKING_FAULTS": "150"}, "*HalfMade"),
    Proof("lost-packets", 10, "cluster_faults_test", {"MUSTER_LOSSY_SECONDS": "600"}, "*LostPackets"),
    Proof("survivors", 7, "survivor_agreement_test", {"MUSTER_AGREEMENT_SEEDS": "200000"}),
    Proof("hang", 1, "hang_test", CONTRACT),
    Proof("stragglers", 1, "straggler_test", {"MUSTER_CONTROL_STARTS": "100000"}),
    Proof("limits", 2, "limits_test", LONG),
    Proof("hostile-client", 1, "hostile_client_test", LONG),
    Proof("departure", 1, "departure_test", CONTRACT),
    Proof("door", 2, "door_test", LONG),
    Proof("handles", 1, "fault_handle_test", LONG),
    Proof("engine-lock", 1, "engine_test", CONTRACT, "EngineLockHolds.*"),
    Proof("containers", 1, "containers_test"),
    Proof("podman", 1, "podman_test"),
    Proof("warm", 1, "warm_test"),
]


@dataclass
class Result:
    passed: bool
    seconds: float
    skipped: int = 0
    why: str = ""  # it failed
    figures: list = field(default_factory=list)

    def text(self, name):
        words = f"{name}: {'passed' if self.passed else 'failed'}, {self.seconds:.0f} s"
        if self.skipped:
            words += f", {self.skipped} skipped"
        if self.why:
            words += f", {self.why}"
        return "; ".join([words, *self.figures])


# What GoogleTest says of itself, a failure with what belongs to it, and the log of an engine or supervisor.
_FRAME = re.compile(r"\[[ =\-A-Z]{10}\]|Running main\(\)|Note: |Repeating all|\d+ FAILED TEST")
_LOG = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_FAILURE = re.compile(r"\S+:\d+: (Failure|Skipped)")


def figures_of(output):
    """The lines that a test itself printed: not GoogleTest's, no logs, no failures.

    Where a failure's text ends cannot be seen, so a test prints its figures before it holds them to anything.
    """
    figures, in_failure = [], False
    for line in output.splitlines():
        if _FRAME.match(line.strip()):
            in_failure = False
        elif _FAILURE.match(line):
            in_failure = True
        elif line.strip() and not in_failure and not _LOG.match(line):
            figures.append(line.strip())
    return figures


def result_of(code, output, seconds):
    ran = re.search(r"^\[=+\] (\d+) tests? from .* ran\.", output, re.MULTILINE)
    passed = re.search(r"^\[  PASSED  \] (\d+) test", output, re.MULTILINE)
    skipped = re.search(r"^\[  SKIPPED \] (\d+) test", output, re.MULTILINE)
    failed = re.search(r"^\[  FAILED  \] (\d+) test", output, re.MULTILINE)
    why = ""
    if failed:
        why = f"{failed[1]} failed"
    elif code != 0:
        why = f"ended with {code}"
    elif ran is None or int(ran[1]) == 0:
        why = "no test ran"
    elif skipped and passed and int(passed[1]) == 0:
        why = "every test was skipped"
    return Result(not why, seconds, int(skipped[1]) if skipped else 0, why, figures_of(output))


# The signal that has told this program to end; 0: none. Nothing is raised from its handler: a program that is
# just being started would be forgotten.
_told = 0


def _take(number, _frame):
    global _told
    _told = number


def wait(child, limit_s):
    """Its exit code; None if it takes longer."""
    start = time.monotonic()
    while time.monotonic() - start < limit_s:
        if _told:
            raise SystemExit(128 + _told)
        try:
            return child.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            continue
    return None


def end(child):
    """Ends a program with all that it has started: it leads a group of processes."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            return
        try:
            child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            continue


def minutes_of(proof, preset):
    """0: it is not promised in that preset."""
    return proof.minutes if preset.name == "release" else proof.sanitized_minutes


def run(proof, preset, programs, logs):
    program = programs / proof.program
    if not program.is_file():
        return Result(False, 0, why=f"{program} is not there; build it with `cmake --build --preset "
                                    f"{preset.name} --target {proof.program}`")
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{proof.name}.log"
    limit = max(minutes_of(proof, preset) * LATE_FACTOR, LATE_MINUTES_LEAST) * 60
    start = time.monotonic()
    with open(log, "w+", errors="replace", encoding="utf-8") as out:
        command = [*launcher(preset), program, f"--gtest_filter={proof.filter}", "--gtest_color=no"]
        child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=subprocess.STDOUT, start_new_session=True,
                                 env={**os.environ, **preset.environment, **proof.environment})
        try:
            code = wait(child, limit)
        finally:
            end(child)
        if code is None:
            return Result(False, time.monotonic() - start, why=f"not over after {limit:.0f} s, see {log}")
        out.seek(0)
        return result_of(code, out.read(), time.monotonic() - start)


def commit():
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout

    return git("rev-parse", "--short=12", "HEAD").strip() + ("+" if git("status", "--porcelain") else "")


def build(preset, programs):
    steps = [["cmake", "--preset", preset.name],
             ["cmake", "--build", "--preset", preset.name, "--target", *sorted(set(programs))]]
    return all(subprocess.run(step, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode == 0
               for step in steps)


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", metavar="NAME", choices=[p.name for p in PROOFS])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--record", type=Path, metavar="FILE")
    parser.add_argument("--preset", choices=[preset.name for preset in PRESETS], default="release")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--programs", type=Path, metavar="FOLDER")
    parser.add_argument("--logs", type=Path, metavar="FOLDER")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    preset = next(preset for preset in PRESETS if preset.name == options.preset)
    chosen = [p for p in PROOFS if minutes_of(p, preset) and (not options.only or p.name in options.only)]
    if options.list:
        for p in chosen:
            settings = " ".join(f"{name}={value}" for name, value in p.environment.items())
            print(f"{p.name:24} {minutes_of(p, preset):4g} min  {p.program} {p.filter} {settings}")
        return 0
    folder = ROOT / "build" / preset.name
    if options.build and not build(preset, [p.program for p in chosen]):
        print(f"prove: the programs of preset {preset.name} do not build")
        return 1
    failed = 0
    for proof in chosen:
        result = run(proof, preset, options.programs or folder / "tests", options.logs or folder / "prove")
        failed += not result.passed
        line = result.text(proof.name)
        print(line, flush=True)
        if options.record:
            now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ")
            with open(options.record, "a", encoding="utf-8") as record:
                record.write(f"{now} {commit()} {line}\n")
    print(f"{len(chosen) - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    for caught in (signal.SIGINT, signal.SIGTERM):
        signal.signal(caught, _take)
    sys.exit(main(sys.argv[1:]))
