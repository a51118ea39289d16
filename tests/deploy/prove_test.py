#!/usr/bin/env python3
"""Tests deploy/prove.py: what it makes of a test program's words, with programs that only say them."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True  # the tree stays as it was
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy"))

import prove  # noqa: E402

GOOD = """Running main() from ./googletest/src/gtest_main.cc
Note: Google Test filter = *
[==========] Running 2 tests from 1 test suite.
[----------] Global test environment set-up.
[ RUN      ] A.B
2026-01-02T03:04:05.678Z warning engine[7]: job job: rank 1 died
 the p99: 3.5 ms
[       OK ] A.B (1 ms)
[ RUN      ] A.C
a_test.cpp:12: Skipped
no freezer here

[  SKIPPED ] A.C (0 ms)
[==========] 2 tests from 1 test suite ran. (2 ms total)
[  PASSED  ] 1 test.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] A.C
"""
BAD = """[ RUN      ] A.B
so many: 7
a_test.cpp:12: Failure
Expected: this
  Actual: that
[  FAILED  ] A.B (1 ms)
[==========] 1 test from 1 test suite ran. (2 ms total)
[  PASSED  ] 0 tests.
[  FAILED  ] 1 test, listed below:
[  FAILED  ] A.B

 1 FAILED TEST
"""
NONE = "[==========] 0 tests from 0 test suites ran. (0 ms total)\n[  PASSED  ] 0 tests.\n"
SKIPPED = """[==========] 1 test from 1 test suite ran. (0 ms total)
[  PASSED  ] 0 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] A.C
"""


class Words(unittest.TestCase):
    def test_figures_are_what_the_test_itself_printed(self):
        self.assertEqual(prove.figures_of(GOOD), ["the p99: 3.5 ms"])
        self.assertEqual(prove.figures_of(BAD), ["so many: 7"])

    def test_a_good_run_passes_with_its_skips(self):
        result = prove.result_of(0, GOOD, 61.4)
        self.assertEqual(result.text("name"), "name: passed, 61 s, 1 skipped; the p99: 3.5 ms")

    def test_all_else_fails_and_says_why(self):
        for code, output, why in [(1, BAD, "1 failed"), (139, GOOD, "ended with 139"),
                                  (0, NONE, "no test ran"), (0, "", "no test ran"),
                                  (0, SKIPPED, "every test was skipped")]:
            with self.subTest(why):
                result = prove.result_of(code, output, 1)
                self.assertFalse(result.passed)
                self.assertEqual(result.why, why)


class Table(unittest.TestCase):
    def test_names_programs_and_settings_that_are_there(self):
        lists = "\n".join(path.read_text() for path in ROOT.glob("tests/**/CMakeLists.txt"))
        sources = "\n".join(path.read_text() for pattern in ("*.cpp", "*.hpp")
                            for path in ROOT.glob(f"tests/**/{pattern}"))
        names = [proof.name for proof in prove.PROOFS]
        self.assertEqual(len(names), len(set(names)))
        for proof in prove.PROOFS:
            with self.subTest(proof.name):
                # No assertIn: it would print all of them.
                self.assertTrue(re.search(rf"\b{proof.program}\b", lists))
                for setting in proof.environment:
                    self.assertTrue(f'"{setting}"' in sources, setting)
                for word in re.findall(r"\w+", proof.filter):
                    self.assertTrue(re.search(rf"TEST\w*\([^)\n]*{word}", sources), word)


class Runs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)
        self.proofs = prove.PROOFS
        prove.PROOFS = [prove.Proof("good", 1, "good_test", {"SETTING": "so"}, "A.*"),
                        prove.Proof("bad", 1, "bad_test")]
        self.program("good_test", f"cat <<'END'\n{GOOD}\nsetting $SETTING\nEND\necho \"asked: $SETTING $1\"")
        self.program("bad_test", f"cat <<'END'\n{BAD}\nEND\nexit 1")

    def tearDown(self):
        prove.PROOFS = self.proofs
        self.folder.cleanup()

    def program(self, name, text):
        path = self.path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def prove(self, *arguments):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = prove.main([*arguments, "--programs", str(self.path), "--logs", str(self.path / "logs")])
        return code, said.getvalue()

    def test_one_line_for_each_and_a_record(self):
        record = self.path / "record"
        code, said = self.prove("--record", str(record))
        self.assertEqual(code, 1)
        lines = said.splitlines()
        self.assertRegex(lines[0], r"^good: passed, 0 s, 1 skipped; the p99: 3.5 ms; "
                                   r".*asked: so --gtest_filter=A")
        self.assertEqual(lines[1], "bad: failed, 0 s, 1 failed; so many: 7")
        self.assertEqual(lines[2], "1 passed, 1 failed")
        self.assertRegex(record.read_text(), r"\A\d{4}-\d\d-\d\dT\d\d:\d\dZ [0-9a-f]*\+? good: passed.*\n"
                                             r".* bad: failed, .*\n\Z")
        self.assertIn("A.B", (self.path / "logs" / "good.log").read_text())

    def test_only_chooses_and_list_runs_nothing(self):
        self.assertEqual(self.prove("--only", "good")[0], 0)
        code, said = self.prove("--list")
        self.assertEqual(code, 0)
        self.assertEqual([line.split()[0] for line in said.splitlines()], ["good", "bad"])
        self.assertIn("SETTING=so", said)

    def test_a_preset_has_what_is_promised_there_and_its_environment(self):
        prove.PROOFS[0].sanitized_minutes = 3
        self.program("good_test", f"cat <<'END'\n{GOOD}\nEND\necho \"options: $TSAN_OPTIONS\"")
        code, said = self.prove("--preset", "tsan")
        self.assertEqual(code, 0)
        self.assertRegex(said, "^good: passed.*options: halt_on_error=1.*\n1 passed, 0 failed\n")
        self.assertRegex(self.prove("--preset", "tsan", "--list")[1], "^good +3 min ")

    def test_a_program_that_is_not_there_fails_with_the_remedy(self):
        (self.path / "good_test").unlink()
        code, said = self.prove("--only", "good")
        self.assertEqual(code, 1)
        self.assertIn("--target good_test", said)

    def test_an_interrupt_ends_what_the_program_has_started(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number):
                pids = self.path / "pids"
                pids.unlink(missing_ok=True)
                self.program("hang_test", f"sleep 600 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait")
                command = [sys.executable, str(ROOT / "deploy" / "prove.py"), "--only", "hang", "--programs",
                           str(self.path), "--logs", str(self.path / "logs")]
                with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
                    self.until(pids.exists)
                    child.send_signal(number)
                    self.assertEqual(child.wait(60), 128 + number)
                for pid in pids.read_text().split():
                    self.until(lambda pid=pid: not running(pid))

    def until(self, good):
        for _ in range(2000):
            if good():
                return
            time.sleep(0.01)
        self.fail("it never came to that")


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    os.environ.pop("SETTING", None)
    unittest.main()
