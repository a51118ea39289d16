#!/usr/bin/env python3
"""clang-tidy over the whole tree, with .clang-tidy: `lint.py [FOLDER OR FILE]...` (`make lint`).

Prints what it finds and ends with a line of numbers. Nothing is compiled: a build folder is configured, in
which each source stands by itself.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "lint"
TOOL = "clang-tidy-14"
FINDING = re.compile(r"^(?=/\S+:\d+:\d+: (?:warning|error): )", re.MULTILINE)
ARGUMENTS = ["--quiet", "-p", str(BUILD), "--extra-arg=-Wno-unknown-warning-option"]  # GCC has others


def configure():
    return subprocess.run(
        ["cmake", "--preset", "release", "-B", str(BUILD), "-DMUSTER_TOGETHER=OFF", "-DMUSTER_CUDA=OFF",
         "-DMUSTER_WERROR=OFF"],
        cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def sources(chosen):
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    paths = {Path(entry["directory"], entry["file"]).resolve() for entry in commands}
    ours = sorted(str(path.relative_to(ROOT)) for path in paths
                  if path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / "build"))
    return [path for path in ours if not chosen or path.startswith(chosen)]


def lint(path):
    """What the tool says of one source and the headers that it includes: a text for each finding."""
    ended = subprocess.run([TOOL, *ARGUMENTS, path], cwd=ROOT, check=False, capture_output=True, text=True)
    findings = [text.strip() for text in FINDING.split(ended.stdout) if text.strip()]
    return findings or ([f"{path}: {ended.stderr.strip()}"] if ended.returncode != 0 else [])


def main(arguments):
    configured = configure()
    if configured.returncode != 0:
        print(configured.stdout)
        return 1
    chosen = sources(tuple(arguments[1:]))
    told = set()  # a header's finding comes once for each source that includes it
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for findings in pool.map(lint, chosen):
            for text in findings:
                if text not in told:
                    told.add(text)
                    print(text.replace(f"{ROOT}/", ""), flush=True)
    print(f"lint: {len(chosen)} sources, {len(told)} findings")
    return 1 if told or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
