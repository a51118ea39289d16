#!/usr/bin/env python3
"""Builds every fuzz target with clang and runs each for a while: `fuzz.py [--seconds N] [NAME …]`.

Prints executions, executions a second and coverage of each target, and ends with 1 if one found anything,
which an input that takes a second, and does so again, is too; the input is then in build/fuzz/found, and
`build/fuzz/fuzz/fuzz_NAME FILE` runs it again. What was learnt is kept in build/fuzz/corpus; `--keep` adds to
tests/fuzz/corpus what covers something new there. `--jobs` targets run at a time, one on each core.
`--record FILE` appends a line for each target: date, commit, target, executions, edges, result.
`--executions N` ends each target once all together have run N inputs, if --seconds does not end it before.
`--wire` takes the targets of what other nodes send.
"""

import argparse
import datetime
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True  # the tree stays as it was
sys.path.insert(0, str(ROOT / "deploy"))
from prove import commit  # noqa: E402

HERE = ROOT / "tests/fuzz"
BUILD = ROOT / "build/fuzz"
RSS_MAX_MB = 2048
INPUT_SECONDS_MAX = 10
INPUT_BYTES_MAX = 4096
KEPT_BYTES_MAX = 1024  # inputs of the tree stay small
WIRE = ["agreement", "heartbeat", "peers", "span"]
# Its inputs have thousands of features each, and to weigh these took two thirds of the time.
OPTIONS = {"span": ["-entropic=0"]}


def targets():
    """Those that the build knows."""
    return re.findall(r"^muster_fuzz\((\w+)", (HERE / "CMakeLists.txt").read_text(), re.MULTILINE)


def program(name, build=BUILD):
    return build / "fuzz" / f"fuzz_{name}"


@dataclass
class Run:
    code: int
    text: str

    def number(self, pattern):
        found = re.findall(pattern, self.text)
        return int(found[-1]) if found else 0

    @property
    def executions(self):
        return self.number(r"stat::number_of_executed_units:\s*(\d+)") or self.number(r"^#(\d+)\s")

    @property
    def slowest(self):
        """Whole seconds that the slowest input took."""
        return self.number(r"stat::slowest_unit_time_sec:\s*(\d+)")

    @property
    def rate(self):
        return self.number(r"stat::average_exec_per_sec:\s*(\d+)")

    @property
    def edges(self):
        return self.number(r"cov: (\d+)"), self.number(r"\((\d+) inline 8-bit counters\)")


def run_target(name, seconds, corpora, found, build=BUILD, extra=()):
    """One target for `seconds`. New inputs go to the first of `corpora`, what ends it into `found`."""
    for folder in (corpora[0], found):
        folder.mkdir(parents=True, exist_ok=True)
    words = HERE / f"{name}.dict"
    extra = [*extra, *OPTIONS.get(name, []), *([f"-dict={words}"] if words.is_file() else [])]
    command = [str(program(name, build)), f"-max_total_time={seconds}", f"-timeout={INPUT_SECONDS_MAX}",
               f"-rss_limit_mb={RSS_MAX_MB}", f"-max_len={INPUT_BYTES_MAX}", "-print_final_stats=1",
               "-report_slow_units=1", "-len_control=10", f"-artifact_prefix={found}/{name}-", *extra,
               *(str(corpus) for corpus in corpora if corpus.is_dir())]
    log = found / f"{name}.log"
    with log.open("wb") as out:
        code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                              check=False).returncode
    return Run(code, log.read_text(errors="replace"))


def is_slow(name, found, build=BUILD):
    """Whether an input that took a second takes it again. The machine may have been busy: forgets it then."""
    units = list(found.glob(f"{name}-slow-unit-*"))
    for unit in units:
        def seconds(unit=unit):
            begin = time.monotonic()
            subprocess.run([str(program(name, build)), str(unit)], stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            return time.monotonic() - begin
        if min(seconds() for _ in range(3)) >= 1:
            return True
        unit.unlink()
    return not units  # nothing to try again: what the run said stands


def build(names, folder=ROOT, environment=None):
    """True if all targets stand."""
    steps = [["cmake", "--preset", "fuzz"],
             ["cmake", "--build", "--preset", "fuzz", "--target", *(f"fuzz_{name}" for name in names)]]
    return all(subprocess.run(step, cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, check=False).returncode == 0 for step in steps)


def keep(name):
    """Adds the small inputs of the working corpus that cover what the tree's do not."""
    small = BUILD / "small" / name
    small.mkdir(parents=True, exist_ok=True)
    for path in (BUILD / "corpus" / name).iterdir():
        if path.stat().st_size <= KEPT_BYTES_MAX:
            (small / path.name).write_bytes(path.read_bytes())
    kept = HERE / "corpus" / name
    kept.mkdir(parents=True, exist_ok=True)
    # As few as cover all edges: a tree of thousands of files serves nobody.
    subprocess.run([str(program(name)), "-set_cover_merge=1", "-use_counters=0", str(kept), str(small)],
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                   check=False)
    print(f"  {name}: {sum(1 for _ in kept.iterdir())} inputs, "
          f"{sum(path.stat().st_size for path in kept.iterdir())} bytes", flush=True)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="targets; all if none is named")
    parser.add_argument("--seconds", type=int, default=20, help="for each target (20)")
    parser.add_argument("--executions", type=int, default=0, metavar="N", help="of all targets together")
    parser.add_argument("--wire", action="store_true", help=f"the targets {', '.join(WIRE)}")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="at a time (cores)")
    parser.add_argument("--keep", action="store_true", help="add what is new to tests/fuzz/corpus")
    parser.add_argument("--record", type=Path, metavar="FILE", help="append what each target did")
    options = parser.parse_args(arguments[1:])
    names = options.names or (WIRE if options.wire else targets())
    limit = [f"-runs={-(-options.executions // len(names))}"] if options.executions else []
    unknown = sorted(set(names) - set(targets()))
    if unknown:
        print(f"fuzz: no target {', '.join(unknown)}; there are {', '.join(targets())}")
        return 2
    if not build(names):
        print("fuzz: the targets do not build; see `cmake --build --preset fuzz --target fuzz_targets`")
        return 1

    def run(name):
        result = run_target(name, options.seconds, [BUILD / "corpus" / name, HERE / "corpus" / name],
                            BUILD / "found", extra=limit)
        if result.code == 0 and options.keep:
            keep(name)
        return name, result

    found, executions, state = [], 0, commit()
    print(f"{'TARGET':12} {'EXECUTIONS':>12} {'PER SECOND':>11} {'EDGES':>14}  RESULT", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        for name, result in pool.map(run, names):
            reached, all_edges = result.edges
            said = "nothing found"
            if result.code != 0 or (result.slowest > 0 and is_slow(name, BUILD / "found")):
                found.append(name)
                said = f"FOUND, see {BUILD / 'found' / name}.log"
            executions += result.executions
            print(f"{name:12} {result.executions:12} {result.rate:11} {reached:6} of {all_edges:5}  {said}",
                  flush=True)
            if options.record:
                now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ")
                with options.record.open("a", encoding="utf-8") as record:
                    word = "FOUND" if name in found else "nothing"
                    record.write(f"{now}\t{state}\t{name}\t{result.executions}\t{reached}\t{word}\n")
    print(f"{executions} executions, {len(found)} targets found something")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
