#!/usr/bin/env python3
"""Does each fuzz target find its planted bug? A green run proves nothing until then.

`planted_test.py` copies the tree into build/planted, and for each bug of planted.py makes its change there,
builds the target, and holds it to finding the bug within SECONDS. `planted_test.py --fits` only checks that
each change still fits the tree and that no target is without a bug, which takes no build.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True  # the tree stays as it was

import fuzz  # noqa: E402
from planted import PLANTED  # noqa: E402

ROOT = fuzz.ROOT
COPY = ROOT / "build/planted"
SECONDS = 60
SIGNS = ("promise broken", "AddressSanitizer", "runtime error", "deadly signal", "libFuzzer: timeout")


def misfits():
    """What is wrong with the list itself, a line each."""
    lines = [f"{bug.name}: {bug.file} has its place {count} times, not once" for bug in PLANTED
             if (count := (ROOT / bug.file).read_text().count(bug.before)) != 1]
    lines += [f"{bug.name}: there is no target {bug.target}" for bug in PLANTED
              if bug.target not in fuzz.targets()]
    lines += [f"target {name}: no bug is planted for it" for name in fuzz.targets()
              if name not in {bug.target for bug in PLANTED}]
    return lines


def write_if_new(path, data):
    """Leaves equal files alone, so that the build does too."""
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def copy_tree():
    listing = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z", "-co", "--exclude-standard"],
                             cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listing.split("\0")):
        if (ROOT / name).is_file():
            write_if_new(COPY / name, (ROOT / name).read_bytes())


def hunt(bug, environment):
    """Whether the bug fell, and in which words."""
    path = COPY / bug.file
    good = path.read_text()
    path.write_text(good.replace(bug.before, bug.after))
    try:
        if not fuzz.build([bug.target], COPY, environment):
            return False, "does not build"
        with tempfile.TemporaryDirectory() as folder:
            start = time.monotonic()
            corpora = [Path(folder) / "new", COPY / "tests/fuzz/corpus" / bug.target]
            run = fuzz.run_target(bug.target, SECONDS, corpora, Path(folder) / "found", COPY / "build/fuzz")
            seconds = time.monotonic() - start
    finally:
        path.write_text(good)
    sign = next((sign for sign in SIGNS if sign in run.text), None)
    if run.code == 0 or sign is None:
        return False, f"not found in {run.executions} executions, {seconds:.0f} s"
    return True, f"{sign}, after {seconds:.1f} s"


def main(arguments):
    wrong = misfits()
    for line in wrong:
        print(f"planted: {line}")
    if wrong or "--fits" in arguments:
        print(f"planted: {len(PLANTED)} bugs, {len(wrong)} do not fit")
        return 1 if wrong else 0
    hunted = [bug for bug in PLANTED
              if not arguments[1:] or {bug.name, bug.target} & set(arguments[1:])]
    if not hunted:
        print(f"planted: there are {', '.join(bug.name for bug in PLANTED)}")
        return 2
    copy_tree()
    environment = {**os.environ, "CCACHE_BASEDIR": str(COPY), "CCACHE_NOHASHDIR": "1"}
    missed = 0
    for bug in hunted:
        fell, words = hunt(bug, environment)
        missed += not fell
        print(f"planted: {bug.target:12} {bug.name:22} {'found' if fell else 'MISSED'}: {words}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
