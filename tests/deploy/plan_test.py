#!/usr/bin/env python3
"""Tests deploy/test.py: builds beside tests, by commands that only say or wait; and its results."""

import contextlib
import importlib.util
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
from pathlib import Path

sys.dont_write_bytecode = True  # the tree stays as it was
ROOT = Path(__file__).resolve().parents[2]
# By its path: the standard library has a module `test`.
SPEC = importlib.util.spec_from_file_location("plan", ROOT / "deploy/test.py")
plan = importlib.util.module_from_spec(SPEC)
sys.modules["plan"] = plan
SPEC.loader.exec_module(plan)

POLICY = [sys.executable, "-c",
          "import os; print('policy', os.sched_getscheduler(0), 'leads', os.getsid(0) == os.getpid())"]
RESULTS = """<testsuite>
<testcase name="good" status="run" time="1.5"/>
<testcase name="bad" status="fail" time="2"><failure message="Failed"/></testcase>
<testcase name="without_root" status="notrun" time="0"><skipped message="SKIP_RETURN_CODE=77"/></testcase>
<testcase name="gone" status="notrun" time="0"><skipped message="Unable to find executable"/></testcase>
</testsuite>
"""


def shell(text, fault="does not build"):
    return [(["sh", "-c", text], fault)]


class Builds(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        # On a busy machine builds that take what is left would never end; two tests say otherwise.
        self.beside_tests = plan.Builds.BESIDE_TESTS
        self.addCleanup(setattr, plan.Builds, "BESIDE_TESTS", self.beside_tests)
        plan.Builds.BESIDE_TESTS = ()
        self.presets = [plan.Preset(name, []) for name in ("one", "two", "three")]

    def builds(self, commands):
        builds = plan.Builds(self.presets, lambda preset: commands[preset.name], self.folder / "build")
        self.addCleanup(builds.stop)
        return builds

    def wait(self, builds, preset):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            fault = builds.wait(preset)
        return fault, printed.getvalue()

    def test_the_next_presets_are_built_while_tests_run_and_say_so_at_their_turn(self):
        marks = [self.folder / "two", self.folder / "three"]
        builds = self.builds({"one": shell("echo of one"), "two": shell(f"echo of two; touch {marks[0]}"),
                              "three": shell(f"echo of three; touch {marks[1]}")})
        fault, printed = self.wait(builds, self.presets[0])
        self.assertIsNone(fault)
        self.assertIn("of one", printed)
        deadline = time.monotonic() + 60
        while not all(mark.exists() for mark in marks) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertTrue(all(mark.exists() for mark in marks))  # nobody has waited for them yet
        for preset in self.presets[1:]:
            fault, printed = self.wait(builds, preset)
            self.assertIsNone(fault)
            said = [line for line in printed.splitlines() if line.startswith("of ")]
            self.assertEqual(said, [f"of {preset.name}"])

    def test_a_build_that_fails_says_why_and_the_next_one_goes_on(self):
        builds = self.builds({"one": shell("exit 3", "does not configure") + shell("echo never"),
                              "two": shell("echo error: so >&2; exit 1"), "three": shell("true")})
        fault, printed = self.wait(builds, self.presets[0])
        self.assertEqual(fault, "does not configure")
        self.assertNotIn("\nnever", printed)
        fault, printed = self.wait(builds, self.presets[1])
        self.assertEqual(fault, "does not build")
        self.assertIn("error: so", printed)
        self.assertIsNone(self.wait(builds, self.presets[2])[0])

    def test_a_build_beside_tests_takes_what_they_leave_until_somebody_waits_for_it(self):
        plan.Builds.BESIDE_TESTS = self.beside_tests
        go = self.folder / "go"
        builds = self.builds({"one": [(POLICY, "fails")], "three": shell("true"),
                              "two": shell(f"until [ -e {go} ]; do sleep 0.1; done")})
        self.assertIn(f"policy {os.sched_getscheduler(0)} leads True", self.wait(builds, self.presets[0])[1])
        self.until(lambda: os.sched_getscheduler(builds.process.pid) == os.SCHED_IDLE)
        if os.geteuid() == 0:  # who may change the policy of what is SCHED_IDLE
            waiter = threading.Thread(target=self.wait, args=(builds, self.presets[1]))
            waiter.start()
            self.until(lambda: os.sched_getscheduler(builds.process.pid) == os.SCHED_OTHER)
            go.touch()
            waiter.join()

    def until(self, holds):
        deadline = time.monotonic() + 60
        while not holds() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertTrue(holds())

    def test_whoever_stops_leaves_no_build(self):
        own = self.folder / "pid"
        builds = self.builds({"one": shell("true"), "two": shell(f"sleep 1000 & echo $! > {own}; wait"),
                              "three": shell("echo never")})
        self.wait(builds, self.presets[0])
        while not (own.exists() and own.read_text().strip()):
            time.sleep(0.01)
        builds.stop()
        deadline = time.monotonic() + 60
        while running(int(own.read_text())) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(running(int(own.read_text())))
        self.assertEqual(builds.output(self.presets[2]).read_text(), "")

    def test_each_part_says_its_place_and_what_remains(self):
        said = [plan.part_text(self.presets, at) for at in range(3)]
        self.assertEqual(said, ["part 1 of 3: one; then two, three", "part 2 of 3: two; then three",
                                "part 3 of 3: three; then nothing more"])
        # As it runs: the parts' commands and tests only say something.
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), \
                unittest.mock.patch.object(plan, "build_commands", lambda *_: shell("true")), \
                unittest.mock.patch.object(plan, "test_preset", lambda *_: plan.Outcome(passed=1)), \
                unittest.mock.patch.object(plan, "ROOT", self.folder):
            self.assertEqual(plan.test_presets(self.presets, False).passed, 3)
        for line in said:
            self.assertRegex(printed.getvalue(), f"(?m)^-- {line}; \\d+ s have passed$")


class Steps(unittest.TestCase):
    def step(self, *command):
        return subprocess.run([ROOT / "deploy/step.sh", *command], capture_output=True, text=True,
                              check=False)

    def test_a_step_says_that_it_begins_and_how_long_it_took(self):
        done = self.step("build", "echo", "two  words")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"\A-- build\ntwo  words\n-- build: done in \d+ s\n\Z")

    def test_a_step_that_fails_ends_the_target_with_its_code(self):
        done = self.step("train", "sh", "-c", "exit 3")
        self.assertEqual(done.returncode, 3)
        self.assertRegex(done.stderr, r"\A-- train: failed after \d+ s\n\Z")

    def test_each_target_that_takes_long_has_steps(self):
        makefile = (ROOT / "Makefile").read_text()
        for target in ("setup", "build", "demo", "demo-cluster", "test", "prove", "fuzz", "bench", "lint"):
            recipe = makefile.partition(f"\n{target}:")[2].partition("\n\n")[0]
            self.assertIn("\n\t$(STEP) ", recipe, target)


class Start(unittest.TestCase):
    def run_main(self, *arguments):
        """What it says before a Ctrl-C comes, and how it ends then."""
        interrupt = unittest.mock.patch.object(
            plan, "test_presets", side_effect=lambda *_: os.kill(os.getpid(), signal.SIGINT))
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        said = io.StringIO()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` ignores it
        try:
            with interrupt, contextlib.redirect_stdout(said), self.assertRaises(SystemExit) as end:
                plan.main(["test.py", *arguments])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return said.getvalue(), end.exception.code

    def test_it_says_how_long_all_takes_and_ends_at_an_interrupt_without_a_trace(self):
        said, code = self.run_main()
        self.assertRegex(said, r"\A-- all of it takes .* minutes .*; Ctrl-C ends it\n\Z")
        self.assertEqual(code, 130)
        self.assertEqual(self.run_main("tsan"), ("", 130))


def running(pid):
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class Results(unittest.TestCase):
    def test_what_passed_what_was_skipped_and_what_did_not_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.xml"
            path.write_text(RESULTS)
            outcome = plan.read_results(path, "debug")
            self.assertEqual(outcome.passed, 1)
            self.assertEqual(outcome.skipped, ["debug: without_root"])
            self.assertEqual(outcome.failed,
                             ["debug: bad (Failed)", "debug: gone (Unable to find executable)"])
            path.write_text(RESULTS[:100])
            self.assertEqual(plan.read_results(path, "debug").passed, 0)


if __name__ == "__main__":
    unittest.main()
