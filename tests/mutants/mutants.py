#!/usr/bin/env python3
"""Do the tests see bugs that a user would notice?

`mutants.py` plants all mutants of list/ into a copy of the tree, each behind a switch, builds the copy once,
and holds each mutant to being seen: by one of its tests, in LIMIT_S seconds. Each test must pass before
without a mutant. A mutant that no test sees has survived.

  mutants.py [NAME …]           all of them, or those
  mutants.py --fits             only whether each still fits the tree, which takes no build
  mutants.py --draw SEED COUNT  places for new ones: lines of the product, drawn by seed
  mutants.py --copy FOLDER      where the copy is; else build/mutants
"""

import argparse
import importlib
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.dont_write_bytecode = True  # the tree stays as it was
sys.path.insert(0, str(Path(__file__).resolve().parent))

import planting  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 180  # of one mutant, all its tests
ALONE_S = 60  # of one test without a mutant: else a hang could not be told from slowness
PRODUCT = ("api/base", "api/client", "api/shm", "daemon", "kernels", "scheduler", "transport")
# As the build gives them to each test: else ranks choose other algorithms from run to run.
COSTS = {"MUSTER_SET_costs__meeting": "130ns", "MUSTER_SET_costs__turn": "1500ns",
         "MUSTER_SET_costs__cached_rate": "80000000000B", "MUSTER_SET_costs__memory_rate": "20000000000B"}


def all_mutants():
    folder = Path(__file__).resolve().parent / "list"
    return [mutant for path in sorted(folder.glob("*.py"))
            for mutant in importlib.import_module(f"list.{path.stem}").MUTANTS]


@dataclass
class Test:
    program: str
    filter: str
    environment: dict

    @classmethod
    def of(cls, text):
        """[NAME=value …] program [gtest filter]"""
        words = shlex.split(text)
        settings = {}
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            settings[name] = value
        return cls(words[0], words[1] if len(words) > 1 else "*", settings)

    def run(self, programs, log, mutant, limit_s):
        """Its exit code; None if it has not ended in time."""
        environment = {**os.environ, **COSTS, **self.environment, "MUSTER_MUTANT": mutant}
        command = [programs / self.program, f"--gtest_filter={self.filter}", "--gtest_fail_fast"]
        with open(log, "a", encoding="utf-8") as out:
            out.write(f"# {mutant or 'no mutant'}: {self.program} {self.filter}\n")
            out.flush()
            child = subprocess.Popen(command, cwd=programs.parent, env=environment, stdin=subprocess.DEVNULL,
                                     stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                return child.wait(limit_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                end_session(child)


def end_session(child):
    """With all that it has started: it leads a group of processes."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def failing_alone(mutants, programs, log):
    """The tests that do not pass without a mutant, or take too long to tell a hang."""
    lines = []
    for text in dict.fromkeys(text for mutant in mutants for text in mutant.tests):
        test = Test.of(text)
        if not (programs / test.program).is_file():
            lines.append(f"{text}: there is no program {test.program}")
            continue
        before = log.stat().st_size if log.is_file() else 0
        code = test.run(programs, log, "", ALONE_S)
        if b"Running 0 tests" in log.read_bytes()[before:]:
            lines.append(f"{text}: {test.program} has no test of that name")
        elif code is None:
            lines.append(f"{text}: takes more than {ALONE_S} s without a mutant; name a part of it")
        elif code != 0:
            lines.append(f"{text}: ends with {code} without a mutant, see {log}")
    return lines


def hunt(mutant, programs, log):
    """Whether a test has seen it, and in which words."""
    start = time.monotonic()
    for text in mutant.tests:
        left = LIMIT_S - (time.monotonic() - start)
        code = Test.of(text).run(programs, log, mutant.name, left) if left > 0 else None
        seconds = time.monotonic() - start
        if code is None:
            return left > ALONE_S, f"{text} does not end, {seconds:.0f} s"
        if code != 0:
            return True, f"{text}, {seconds:.0f} s"
    return False, f"{len(mutant.tests)} tests pass, {seconds:.0f} s"


def judge(mutants, programs, log):
    """1 if a mutant has survived, or a test says nothing."""
    silent = failing_alone(mutants, programs, log)
    for line in silent:
        print(f"mutants: {line}", flush=True)
    if silent:
        return 1
    survived = []
    for mutant in mutants:
        caught, words = hunt(mutant, programs, log)
        if not caught:
            survived.append(mutant)
        print(f"mutants: {mutant.name:36} {'caught' if caught else 'SURVIVED'}: {words}", flush=True)
    for mutant in survived:
        print(f"mutants: {mutant.name} needs a test: {mutant.seen}", flush=True)
    print(f"mutants: {len(mutants) - len(survived)} caught, {len(survived)} survived", flush=True)
    return 1 if survived else 0


def build(copy, programs):
    environment = {**os.environ, "CCACHE_BASEDIR": str(copy), "CCACHE_NOHASHDIR": "1"}
    steps = [["cmake", "--preset", "release"],
             ["cmake", "--build", "--preset", "release", "--target", "muster-engine", *sorted(programs)]]
    return all(subprocess.run(step, cwd=copy, env=environment, stdin=subprocess.DEVNULL,
                              check=False).returncode == 0 for step in steps)


def code_lines(text):
    """Numbers of the lines that say more than where something begins or ends."""
    nothing = re.compile(r"#|namespace|using|public:|private:|struct|class")
    for number, line in enumerate(text.split("\n"), 1):
        code = line.split("//")[0].strip()
        if re.search(r"[a-z]", code) and not nothing.match(code):
            yield number


def draw(root, seed, count):
    """Places in what runs without a GPU."""
    lines = []
    for name in sorted(planting.files_of(root)):
        if name.startswith(PRODUCT) and name.endswith((".cpp", ".hpp")) and "/cuda/" not in name:
            lines += [(name, number) for number in code_lines((root / name).read_text())]
    return random.Random(seed).sample(lines, count)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--fits", action="store_true")
    parser.add_argument("--draw", nargs=2, type=int, metavar=("SEED", "COUNT"))
    parser.add_argument("--copy", type=Path, default=ROOT / "build/mutants")
    options = parser.parse_args(arguments)
    if options.draw:
        for name, number in draw(ROOT, *options.draw):
            print(f"{name}:{number}")
        return 0
    mutants = all_mutants()
    wrong = planting.misfits(ROOT, mutants)
    wrong += [f"there is no mutant {name}" for name in options.names if name not in {m.name for m in mutants}]
    for line in wrong:
        print(f"mutants: {line}")
    if wrong or options.fits:
        print(f"mutants: {len(mutants)}, of which {len(wrong)} do not fit")
        return 1 if wrong else 0
    chosen = [mutant for mutant in mutants if not options.names or mutant.name in options.names]
    planting.plant(ROOT, options.copy, mutants)
    if not build(options.copy, {Test.of(text).program for mutant in chosen for text in mutant.tests}):
        print("mutants: the copy with the mutants does not build")
        return 1
    folder = options.copy / "build/release"
    log = folder / "mutants.log"
    log.write_text("")
    return judge(chosen, folder / "tests", log)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
