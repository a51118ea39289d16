#!/usr/bin/env python3
"""Tests the mutants' tool: on a tree of one source, with a program that is compiled here."""

import contextlib
import io
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True  # the tree stays as it was
sys.path.insert(0, str(Path(__file__).resolve().parent))

import mutants  # noqa: E402
import planting  # noqa: E402
from planting import Mutant  # noqa: E402

SOURCE = """#include <cstdio>
static int sum(int a, int b) { return a + b; }
static int product(int a, int b) { return a * b; }
static int calls = 0;
static void count() {
  ++calls;
}
int main() {
  count();
  if (calls != 1) return 2;
  return sum(2, 3) == 5 ? 0 : product(2, 3);
}
"""
SUM = Mutant("sum", "a.cpp", "return «a + b»;", "a - b", "wrong sums", ["program"])
COUNT = Mutant("count", "a.cpp", "++calls;", "calls += 2; std::puts(\"x\");", "wrong counts", ["program"])
UNSEEN = Mutant("unseen", "a.cpp", "return «a * b»;", "a / b", "wrong products", ["program"])
HANGS = Mutant("hangs", "a.cpp", "if («calls != 1») return 2;", "([] { for (;;) {} }(), true)", "hangs",
               ["program"])


class Trees(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name) / "tree"
        self.copy = Path(self.folder.name) / "copy"
        header = self.root / planting.HEADER
        header.parent.mkdir(parents=True)
        header.write_text((mutants.ROOT / planting.HEADER).read_text())
        (self.root / "a.cpp").write_text(SOURCE)
        subprocess.run(["git", "init", "-q"], cwd=self.root, check=True)

    def tearDown(self):
        self.folder.cleanup()

    def judge(self, *chosen):
        """What the tool prints of these, planted together in one program."""
        planting.plant(self.root, self.copy, chosen)
        programs = self.copy / "tests"
        programs.mkdir(exist_ok=True)
        subprocess.run(["c++", "-std=c++20", "-I", self.copy, "-o", programs / "program",
                        self.copy / "a.cpp"], check=True)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = mutants.judge(chosen, programs, self.copy / "log")
        return code, said.getvalue()

    def test_seen_mutants_are_caught(self):
        code, said = self.judge(SUM, COUNT)
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"sum +caught: program")
        self.assertRegex(said, r"count +caught: program")
        self.assertIn("2 caught, 0 survived", said)

    def test_a_mutant_that_no_test_sees_has_survived(self):
        code, said = self.judge(SUM, UNSEEN)
        self.assertEqual(code, 1)
        self.assertRegex(said, r"sum +caught")
        self.assertRegex(said, r"unseen +SURVIVED: 1 tests pass")
        self.assertIn("unseen needs a test: wrong products", said)
        self.assertIn("1 caught, 1 survived", said)

    def test_a_test_that_hangs_has_seen_it(self):
        limits = mutants.LIMIT_S, mutants.ALONE_S
        mutants.LIMIT_S, mutants.ALONE_S = 2, 1
        try:
            code, said = self.judge(HANGS)
        finally:
            mutants.LIMIT_S, mutants.ALONE_S = limits
        self.assertEqual(code, 0, said)
        self.assertRegex(said, r"hangs +caught: program does not end")

    def test_a_test_that_fails_by_itself_proves_nothing(self):
        (self.root / "a.cpp").write_text(SOURCE.replace("== 5", "== 6"))
        code, said = self.judge(SUM)
        self.assertEqual(code, 1)
        self.assertIn("program: ends with 6 without a mutant", said)
        self.assertNotIn("caught", said)

    def test_a_filter_that_fits_no_test_proves_nothing(self):
        none = "[==========] Running 0 tests from 0 test suites."
        (self.root / "a.cpp").write_text(SOURCE.replace("  count();", f'  std::puts("{none}");\n  count();'))
        code, said = self.judge(SUM)
        self.assertEqual(code, 1)
        self.assertIn("program: program has no test of that name", said)

    def test_a_program_that_is_not_there_is_named(self):
        code, said = self.judge(Mutant("sum", "a.cpp", "return «a + b»;", "a", "x", ["other"]))
        self.assertEqual(code, 1)
        self.assertIn("there is no program other", said)

    def test_what_does_not_fit_is_named(self):
        gone = Mutant("gone", "a.cpp", "return a % b;", "0", "x", ["program"])
        twice = Mutant("twice", "a.cpp", "int a, int b", "int b, int a", "x", ["program"])
        nowhere = Mutant("nowhere", "b.cpp", "x", "y", "x", ["program"])
        within = Mutant("within", "a.cpp", "return «a» + b;", "b", "x", ["program"])
        untested = Mutant("untested", "a.cpp", "calls != «1»", "2", "x", [])
        lines = planting.misfits(self.root, [SUM, gone, twice, nowhere, within, untested, SUM])
        for name, words in [("gone", "has its place 0 times"), ("twice", "has its place 2 times"),
                            ("nowhere", "b.cpp has its place 0 times"), ("within", "overlaps that of sum"),
                            ("untested", "no test is named"), ("sum", "another mutant has that name")]:
            said = [line for line in lines if line.startswith(f"{name}: ") and words in line]
            self.assertTrue(said, (name, lines))

    def test_the_tree_stays_as_it_was(self):
        planting.plant(self.root, self.copy, [SUM])
        self.assertEqual((self.root / "a.cpp").read_text(), SOURCE)
        planted = self.copy / "a.cpp"
        self.assertIn("MUSTER_MUTANT", planted.read_text())
        before = planted.stat().st_mtime_ns
        planting.plant(self.root, self.copy, [SUM])
        self.assertEqual(planted.stat().st_mtime_ns, before, "an equal file is not written again")

    def test_places_are_drawn_by_seed(self):
        (self.root / "daemon").mkdir()
        (self.root / "daemon/b.cpp").write_text(SOURCE)
        drawn = mutants.draw(self.root, 7, 5)
        self.assertEqual(drawn, mutants.draw(self.root, 7, 5))
        self.assertNotEqual(drawn, mutants.draw(self.root, 8, 5))
        self.assertEqual({name for name, _ in drawn}, {"daemon/b.cpp"}, "a.cpp is no part of the product")


class Lists(unittest.TestCase):
    def test_words_name_settings_program_and_filter(self):
        test = mutants.Test.of("A=1 B=x program *Filter*")
        self.assertEqual((test.program, test.filter, test.environment),
                         ("program", "*Filter*", {"A": "1", "B": "x"}))
        self.assertEqual(mutants.Test.of("program").filter, "*")

    def test_tests_of_the_mutants_are_there(self):
        lists = "\n".join(path.read_text() for pattern in ("CMakeLists.txt", "*.cmake")
                          for path in (mutants.ROOT / "tests").rglob(pattern))
        for mutant in mutants.all_mutants():
            for text in mutant.tests:
                program = mutants.Test.of(text).program
                named = re.search(rf"muster_(program_|fault_)?test\({program}\b", lists)
                self.assertTrue(named, f"{mutant.name}: {program}")


if __name__ == "__main__":
    unittest.main()
