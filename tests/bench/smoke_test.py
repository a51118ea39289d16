#!/usr/bin/env python3
"""`smoke_test.py MUSTER_BENCH`: a quick run without peers gives every cell once, in the documented shape."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = None
KEYS = {"operation": str, "bytes": int, "ranks": int, "path": str, "peer": str,
        "median_us": float, "minimum_us": float}


def cells():
    """(operation, bytes, ranks) of a quick run; every rank has at least one element of 4 bytes."""
    yield "submit", 0, 1
    yield "kernel", 0, 1
    for ranks in (2, 4):
        yield "barrier", 0, ranks
        for size in (8, 4096):
            yield "all_reduce", size, ranks
            yield "all_gather", max(size, 4 * ranks), ranks
            yield "reduce_scatter", max(size, 4 * ranks), ranks


class QuickRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.json"
            cls.ended = subprocess.run([PROGRAM, "--quick", "--no-peers", "--json", path],
                                     capture_output=True, text=True, check=False)
            cls.report = json.loads(path.read_text()) if path.exists() else None

    def test_ends_well(self):
        self.assertEqual(self.ended.returncode, 0, self.ended.stderr)
        self.assertIsNotNone(self.report)

    def test_says_on_what_it_ran(self):
        self.assertEqual(self.report["schema_version"], 1)
        machine = self.report["machine"]
        self.assertTrue(machine["cpu"])
        self.assertGreaterEqual(machine["cores"], 1)
        self.assertTrue(machine["kernel"].startswith("Linux "))

    def test_rows_have_all_keys_and_sane_times(self):
        for row in self.report["rows"]:
            self.assertEqual({key: type(value) for key, value in row.items()}, KEYS, row)
            self.assertLessEqual(row["minimum_us"], row["median_us"], row)
            self.assertGreaterEqual(row["minimum_us"], 0.0, row)

    def test_has_each_cell_of_muster_once(self):
        found = sorted((row["operation"], row["bytes"], row["ranks"])
                       for row in self.report["rows"] if row["peer"] == "muster")
        self.assertEqual(found, sorted(cells()))

    def test_has_a_floor_for_each_cell_of_several_ranks(self):
        found = sorted((row["operation"], row["bytes"], row["ranks"])
                       for row in self.report["rows"] if row["peer"] == "floor")
        self.assertEqual(found, sorted(cell for cell in cells() if cell[2] > 1))

    def test_prints_a_line_for_each_cell(self):
        lines = [line for line in self.ended.stdout.splitlines() if " engine " in line]
        self.assertEqual(len(lines), len(list(cells())), self.ended.stdout)


class CommandLine(unittest.TestCase):
    def test_names_the_operations_it_knows(self):
        run = subprocess.run([PROGRAM, "--operations", "all_to_none"],
                             capture_output=True, text=True, check=False)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("reduce_scatter", run.stdout + run.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
