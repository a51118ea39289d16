#!/usr/bin/env python3
"""Runs every test in the presets that suit it and ends with one line, `N passed, N failed`.

release  everything: what ships is what is tested; and the CUDA code is compiled where nvcc is found
debug    label unit, under AddressSanitizer and UndefinedBehaviorSanitizer
tsan     label tsan, under ThreadSanitizer
The last two are compiled by Clang: in half the time of GCC, and a second compiler finds other mistakes.

A preset that does not build, or in which a test does not run, counts as failed. `test.py tsan` runs one.
With `--lean` the build of a preset is removed once its tests have passed: the next one needs its disk.
"""

import os
import platform
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SLOWEST_SHOWN = 10


@dataclass
class Preset:
    name: str
    targets: list
    select: list = field(default_factory=list)  # ctest arguments
    environment: dict = field(default_factory=dict)
    fixed_addresses: bool = False


PRESETS = [
    Preset("release", ["all", "tests_all"]),
    Preset("debug", ["tests_unit"], ["-L", "^unit$"],
           {"ASAN_OPTIONS": "strict_string_checks=1",
            "UBSAN_OPTIONS": "print_stacktrace=1"}),
    # ThreadSanitizer of LLVM 14 stops where the kernel spreads addresses wider than it knows.
    Preset("tsan", ["tests_tsan"], ["-L", "^tsan$"],
           {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"}, fixed_addresses=True),
]


@dataclass
class Outcome:
    passed: int = 0
    skipped: list = field(default_factory=list)
    failed: list = field(default_factory=list)
    times: list = field(default_factory=list)  # (seconds, preset, test)

    def add(self, other):
        self.passed += other.passed
        self.skipped += other.skipped
        self.failed += other.failed
        self.times += other.times


def run(command, environment=None):
    print("+", " ".join(command), flush=True)
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False,
                          env={**os.environ, **(environment or {})}).returncode


def cases_in(path):
    """The testcases of a file of results; none if it was cut off."""
    try:
        return list(xml.parse(path).getroot().iter("testcase"))
    except xml.ParseError:
        return []


def read_results(path, preset):
    """The outcome that ctest wrote down: one testcase for each test that it was to run."""
    outcome = Outcome()
    for case in cases_in(path):
        name = case.get("name")
        status = case.get("status")
        outcome.times.append((float(case.get("time", "0")), preset, name))
        if status == "run" and case.find("failure") is None and case.find("error") is None:
            outcome.passed += 1
        elif case.find("skipped") is not None and status == "notrun" and "SKIP" in _reason(case):
            outcome.skipped.append(f"{preset}: {name}")
        else:
            outcome.failed.append(f"{preset}: {name} ({_reason(case) or status})")
    return outcome


def skipped_inside(details, preset):
    """Tests that their own program skipped: it ends well, so ctest does not know."""
    skipped = []
    for path in sorted(details.glob("*.xml")):
        for case in cases_in(path):
            found = case.find("skipped")
            if found is not None:
                why = (found.get("message") or found.text or "no reason given").strip().splitlines()[-1]
                skipped.append(f"{preset}: {case.get('classname')}.{case.get('name')} ({why})")
    return skipped


def _reason(case):
    for kind in ("failure", "error", "skipped"):
        found = case.find(kind)
        if found is not None:
            return found.get("message", "")
    return ""


def launcher(preset):
    if not preset.fixed_addresses:
        return []
    command = ["setarch", platform.machine(), "-R"]
    try:
        probe = subprocess.run(command + ["true"], capture_output=True, check=False)
    except FileNotFoundError:
        return []
    return command if probe.returncode == 0 else []


def test_preset(preset, jobs):
    def broken(what):
        return Outcome(failed=[f"{preset.name}: {what}"])

    if run(["cmake", "--preset", preset.name]) != 0:
        return broken("does not configure")
    if run(["cmake", "--build", "--preset", preset.name, "-j", jobs, "--target", *preset.targets]) != 0:
        return broken("does not build")
    results = ROOT / "build" / preset.name / "results.xml"
    results.unlink(missing_ok=True)
    details = ROOT / "build" / preset.name / "gtest"
    shutil.rmtree(details, ignore_errors=True)
    code = run(launcher(preset) + ["ctest", "--preset", preset.name, "-j", jobs, "--no-tests=error",
                                   "--output-junit", str(results), *preset.select],
               {**preset.environment, "GTEST_OUTPUT": f"xml:{details}/"})
    if not results.exists():
        return broken(f"ctest ended with {code} and wrote no results")
    outcome = read_results(results, preset.name)
    outcome.skipped += skipped_inside(details, preset.name)
    if code != 0 and not outcome.failed:
        outcome.failed.append(f"{preset.name}: ctest ended with {code}")
    if code == 0 and outcome.passed == 0:
        outcome.failed.append(f"{preset.name}: no test passed")
    return outcome


def main(arguments):
    lean = "--lean" in arguments
    names = [name for name in arguments[1:] if name != "--lean"] or [preset.name for preset in PRESETS]
    unknown = set(names) - {preset.name for preset in PRESETS}
    if unknown:
        print(f"test: no preset {', '.join(sorted(unknown))}; there are {', '.join(p.name for p in PRESETS)}")
        return 2
    if not Path("/proc/self/maps").exists():
        print("test: sanitizers and daemon read /proc, which is not mounted; mount -t proc proc /proc")
        print("0 passed, 1 failed")
        return 1
    jobs = str(len(os.sched_getaffinity(0)))
    total = Outcome()
    for preset in PRESETS:
        if preset.name in names:
            start = time.monotonic()
            outcome = test_preset(preset, jobs)
            total.add(outcome)
            print(f"{preset.name}: {outcome.passed} passed, {len(outcome.failed)} failed, "
                  f"{len(outcome.skipped)} skipped in {time.monotonic() - start:.0f} s; "
                  f"{shutil.disk_usage(ROOT).free >> 30} GiB of disk are free\n", flush=True)
            if lean and not outcome.failed:
                shutil.rmtree(ROOT / "build" / preset.name, ignore_errors=True)
    print("slowest tests:")
    for seconds, preset, name in sorted(total.times, reverse=True)[:SLOWEST_SHOWN]:
        print(f"  {seconds:7.1f} s  {preset}: {name}")
    for title, listed in (("skipped", total.skipped), ("failed", total.failed)):
        if listed:
            print(f"{title}:", *(f"  {line}" for line in listed), sep="\n")
    print(f"{total.passed} passed, {len(total.failed)} failed", flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
