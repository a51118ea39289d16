#!/usr/bin/env python3
"""Runs every test in the presets that suit it and ends with one line, `N passed, N failed`.

release  everything: what ships is what is tested; and the CUDA code is compiled where nvcc is found
debug    label unit, under AddressSanitizer and UndefinedBehaviorSanitizer
tsan     label tsan, under ThreadSanitizer
The last two are compiled by Clang: in half the time of GCC, and a second compiler finds other mistakes.

While the tests of a preset run, the next presets are built from what these tests leave of the cores: many
tests wait. The output of such a build is printed when its turn comes.
A preset that does not build, or in which a test does not run, counts as failed. `test.py tsan` runs one.
With `--lean` the build of a preset is removed once its tests have passed.
"""

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as xml
from concurrent.futures import ThreadPoolExecutor
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


class Builds:
    """Builds presets one after another, in a thread of its own.

    The first is built like any program. The others may run beside tests, and get what is left of the cores:
    their policy is SCHED_IDLE, so whoever wakes takes the core from them at once. They are also a session
    whose share is the least, because the kernel divides the cores among sessions first.
    """

    BESIDE_TESTS = ("chrt", "--idle", "0")

    def __init__(self, presets, commands, folder):
        """`commands` gives of a preset its commands, each with what is wrong if it fails."""
        self.commands = commands
        self.folder = folder
        self.process = None
        self.stopped = False
        folder.mkdir(parents=True, exist_ok=True)
        for preset in presets:
            self.output(preset).write_text("")
        self.thread = ThreadPoolExecutor(1)
        self.built = {preset.name: self.thread.submit(self._build, preset, preset is not presets[0])
                      for preset in presets}

    def output(self, preset):
        return self.folder / f"{preset.name}.build.log"

    def wait(self, preset):
        """Prints the output of this preset's build, to its end; returns what is wrong, or None."""
        built = self.built[preset.name]
        with self.output(preset).open(errors="replace") as output:
            while not built.done():
                self._hurry()
                print(output.read(), end="", flush=True)
                time.sleep(0.2)
            print(output.read(), end="", flush=True)
        return built.result()

    def stop(self):
        """Ends the build that runs, and begins no other."""
        self.stopped = True
        self.thread.shutdown(wait=False, cancel_futures=True)
        while not all(built.done() for built in self.built.values()):
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                if self.process is not None and self.process.poll() is None:
                    os.killpg(self.process.pid, signal.SIGTERM)
            time.sleep(0.1)

    def _hurry(self):
        """Whoever waits for a build gives it the cores like any program, where the system lets us."""
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has just ended, or may not be changed
                pid = int(stat.parent.name)
                session = int(stat.read_text().rpartition(")")[2].split()[3])
                ours = self.process is not None and session == self.process.pid
                if ours and os.sched_getscheduler(pid) == os.SCHED_IDLE:
                    os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
                    (stat.parent / "autogroup").write_text("0")

    def _build(self, preset, beside_tests):
        start = time.monotonic()
        with self.output(preset).open("w") as output:
            for command, fault in self.commands(preset):
                print("+", " ".join(command), file=output, flush=True)
                if self.stopped or self._run(command, output, beside_tests) != 0:
                    return fault
            print(f"{preset.name}: built in {time.monotonic() - start:.0f} s", file=output)
        return None

    def _run(self, command, output, beside_tests):
        whole = [*(self.BESIDE_TESTS if beside_tests else ()), *command]
        self.process = subprocess.Popen(whole, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output,
                                        stderr=subprocess.STDOUT, start_new_session=True)
        if beside_tests:
            with contextlib.suppress(OSError):  # where the kernel does not divide by sessions
                Path(f"/proc/{self.process.pid}/autogroup").write_text("19")
        return self.process.wait()


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


def build_commands(preset, jobs):
    return [(["cmake", "--preset", preset.name], "does not configure"),
            (["cmake", "--build", "--preset", preset.name, "-j", jobs, "--target", *preset.targets],
             "does not build")]


def test_preset(preset, jobs):
    """The outcome of the tests of a preset that is built, of which `jobs` run at a time."""
    results = ROOT / "build" / preset.name / "results.xml"
    results.unlink(missing_ok=True)
    details = ROOT / "build" / preset.name / "gtest"
    shutil.rmtree(details, ignore_errors=True)
    code = run(launcher(preset) + ["ctest", "--preset", preset.name, "-j", jobs, "--no-tests=error",
                                   "--output-junit", str(results), *preset.select],
               {**preset.environment, "GTEST_OUTPUT": f"xml:{details}/"})
    if not results.exists():
        return Outcome(failed=[f"{preset.name}: ctest ended with {code} and wrote no results"])
    outcome = read_results(results, preset.name)
    outcome.skipped += skipped_inside(details, preset.name)
    if code != 0 and not outcome.failed:
        outcome.failed.append(f"{preset.name}: ctest ended with {code}")
    if code == 0 and outcome.passed == 0:
        outcome.failed.append(f"{preset.name}: no test passed")
    return outcome


def part_text(presets, at):
    """Which part of the tests comes now, and which remain."""
    rest = ", ".join(preset.name for preset in presets[at + 1:])
    return f"part {at + 1} of {len(presets)}: {presets[at].name}; then {rest or 'nothing more'}"


def test_presets(presets, lean):
    cores = len(os.sched_getaffinity(0))
    total = Outcome()
    begun = time.monotonic()
    builds = Builds(presets, lambda preset: build_commands(preset, str(cores)), ROOT / "build")
    try:
        for at, preset in enumerate(presets):
            start = time.monotonic()
            print(f"-- {part_text(presets, at)}; {start - begun:.0f} s have passed", flush=True)
            fault = builds.wait(preset)
            # Of later presets the builds are done or nearly so: nothing takes the core of a test that waits.
            jobs = cores if preset is presets[0] else cores + 1
            outcome = Outcome(failed=[f"{preset.name}: {fault}"]) if fault else test_preset(preset, str(jobs))
            total.add(outcome)
            print(f"{preset.name}: {outcome.passed} passed, {len(outcome.failed)} failed, "
                  f"{len(outcome.skipped)} skipped in {time.monotonic() - start:.0f} s; "
                  f"{shutil.disk_usage(ROOT).free >> 30} GiB of disk are free\n", flush=True)
            if lean and not outcome.failed:
                shutil.rmtree(ROOT / "build" / preset.name, ignore_errors=True)
    finally:
        builds.stop()
    return total


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
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda caught, _: sys.exit(128 + caught))  # which stops the builds
    if len(names) == len(PRESETS):
        print("-- all of it takes 45 to 65 minutes on two cores, and 17 GB of disk; Ctrl-C ends it",
              flush=True)
    total = test_presets([preset for preset in PRESETS if preset.name in names], lean)
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
