#!/usr/bin/env python3
"""A page's examples print what the page shows: `examples_test.py PAGE PROGRAMS FOLDER BUILD EXAMPLE...`.

Goal:   each command of the page's console blocks that has output there prints just that; and each EXAMPLE has
        such a command.
Method: a shell in FOLDER, with PROGRAMS first in its PATH, runs the command as it stands; for build/release
        it gets BUILD. Ranks write in any order, so lines are compared sorted. How many ms something took is
        not compared, and neither is standard error, which has times and process numbers.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

SECONDS_MAX = 120


def shown(page):
    """(command, lines of output) of each command with output in the page's console blocks."""
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.splitlines()
            if lines:
                yield command, lines


def comparable(lines):
    return sorted(re.sub(r"\b\d+\.\d ms\b", "N ms", line) for line in lines)


def run(command, programs, folder):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    return subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


def main(arguments):
    page, programs, folder, build = (Path(argument).resolve() for argument in arguments[1:5])
    expected = list(shown(page.read_text()))
    failed = 0
    for command, lines in expected:
        done = run(command.replace("build/release/", f"{build}/"), programs, folder)
        if done.returncode == 0 and comparable(done.stdout.splitlines()) == comparable(lines):
            continue
        failed += 1
        print(f"$ {command}\nended with {done.returncode} and printed\n{done.stdout}{done.stderr}"
              f"where {page} shows\n" + "\n".join(lines))
    for example in arguments[5:]:
        if not any(re.search(rf"/{example}\b", command) for command, _ in expected):
            failed += 1
            print(f"{page} shows no output of {example}")
    print(f"examples: {len(expected)} commands of {page}, {failed} failed")
    return 1 if failed or not expected else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
