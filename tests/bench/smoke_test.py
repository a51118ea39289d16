#!/usr/bin/env python3
"""`smoke_test.py MUSTER_BENCH`: a quick run gives each cell of each contender once, in the documented shape.

A contender that is not installed must be named as left out.
"""

import json
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

PROGRAM = None
RANKS = (2, 4)
SIZES = (8, 4096)
PATHS = {"muster": ("direct", "engine"), "openmpi": ("vader", "coll-sm", "ucx"), "mpich": ("ch4",),
         "gloo": ("tcp",)}
ALONE = ("submit", "kernel", "attach", "job", "mesh_group")
SHARED = "all_gather_shared"  # for who can have memory in common
NOT_OF_GLOO = {SHARED, "gather_v", "scatter_v"}
CUT = ("all_gather", SHARED, "reduce_scatter", "gather", "scatter", "all_to_all", "all_gather_v",
       "reduce_scatter_v", "gather_v", "scatter_v", "all_to_all_v")  # 4 bytes for each rank at least
WHOLE = ("all_reduce", "broadcast", "reduce", "send_recv", "halo")
ROW = {"operation": str, "bytes": int, "ranks": int, "path": str, "peer": str, "median_us": float,
       "minimum_us": float, "samples": int}
FIGURE = {"figure": str, "ranks": int, "path": str, "peer": str, "value": float, "unit": str}


def operation_cells():
    """(operation, bytes, ranks) of all operations in a quick run."""
    for ranks in RANKS:
        yield "barrier", 0, ranks
        for size in SIZES:
            for operation in WHOLE:
                yield operation, size, ranks
            for operation in CUT:
                yield operation, max(size, 4 * ranks), ranks


def other_cells():
    for ranks in RANKS:
        yield "first_use", SIZES[-1], ranks
        yield "group", 0, ranks
        yield "wake", 0, ranks


class QuickRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.json"
            plots = Path(folder) / "plots"
            cls.ended = subprocess.run(
                [PROGRAM, "--quick", "--ranks", ",".join(map(str, RANKS)), "--json", path, "--plots", plots],
                capture_output=True, text=True, check=False)
            cls.report = json.loads(path.read_text()) if path.exists() else None
            cls.plots = {plot.stem: xml.fromstring(plot.read_text()) for plot in plots.glob("*.svg")}

    def found(self, peer, path=None):
        return sorted((row["operation"], row["bytes"], row["ranks"]) for row in self.report["rows"]
                      if row["peer"] == peer and path in (None, row["path"]))

    def left_out(self, peer):
        return [text for text in self.report["left_out"] if text.startswith(peer)]

    def test_ends_well(self):
        self.assertEqual(self.ended.returncode, 0, self.ended.stderr)
        self.assertIsNotNone(self.report)

    def test_says_on_what_it_ran(self):
        self.assertEqual(self.report["schema_version"], 2)
        machine = self.report["machine"]
        self.assertTrue(machine["cpu"])
        self.assertGreaterEqual(machine["cores"], 1)
        self.assertTrue(machine["kernel"].startswith("Linux "))
        self.assertEqual(set(machine["meeting_us"]), set(map(str, RANKS)))
        self.assertIn("muster", self.report["versions"])

    def test_rows_have_all_keys_and_sane_times(self):
        for row in self.report["rows"]:
            self.assertEqual({key: type(row[key]) for key in ROW}, ROW, row)
            self.assertLessEqual(row["minimum_us"], row["median_us"], row)
            self.assertGreaterEqual(row["minimum_us"], 0.0, row)
            self.assertGreaterEqual(row["samples"], 1, row)
        for figure in self.report["figures"]:
            self.assertEqual({key: type(value) for key, value in figure.items()}, FIGURE, figure)

    def test_has_each_cell_of_muster_once_on_each_path(self):
        self.assertEqual(self.left_out("muster over direct"), [])
        want = sorted([*operation_cells(), *other_cells()])
        self.assertEqual(self.found("muster", "direct"), want)
        engine = [cell for cell in self.found("muster", "engine") if cell[2] > 1]
        self.assertEqual(engine, want)

    def test_has_what_needs_one_rank_of_muster(self):
        alone = [cell[0] for cell in self.found("muster", "engine") if cell[2] == 1]
        self.assertEqual(alone, sorted(ALONE))

    def test_has_each_operation_of_each_peer_or_says_that_it_is_missing(self):
        for peer, paths in PATHS.items():
            for path in paths:
                with self.subTest(peer=peer, path=path):
                    self.assertFalse([line for line in self.left_out(peer) if "wrong" in line])
                    if self.left_out(peer):
                        self.assertTrue(any(peer in line and "left out" in line
                                            for line in self.ended.stdout.splitlines()), self.ended.stdout)
                        continue
                    missing = set(operation_cells()) - set(self.found(peer, path))
                    if peer == "gloo":
                        missing = {cell for cell in missing if cell[0] not in NOT_OF_GLOO}
                    self.assertEqual(missing, set())

    def test_has_the_memory_of_all_that_ran(self):
        ran = {(row["peer"], row["path"], row["ranks"]) for row in self.report["rows"] if row["ranks"] > 1}
        held = {(figure["peer"], figure["path"], figure["ranks"]) for figure in self.report["figures"]
                if figure["figure"] == "memory" and figure["value"] > 0.0}
        self.assertEqual(held, ran)

    def test_has_a_floor_for_each_operation_and_for_nothing_else(self):
        operations = {"barrier", *WHOLE, *CUT}
        for row in self.report["rows"]:
            self.assertEqual(row["floor_us"] is not None, row["operation"] in operations, row)
            if row["floor_us"] is not None:
                self.assertGreater(row["floor_us"], 0.0, row)

    def test_draws_each_operation_that_has_sizes(self):
        self.assertEqual(set(self.plots), {*WHOLE, *CUT})
        for name, picture in self.plots.items():
            words = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
            self.assertIn("muster direct", words, name)
            self.assertIn("floor", words, name)
            self.assertIn(f"{RANKS[-1]} ranks", words, name)

    def test_prints_a_line_for_each_cell_and_path(self):
        lines = [line for line in self.ended.stdout.splitlines() if "  direct " in line]
        self.assertEqual(len(lines), len([*operation_cells(), *other_cells()]), self.ended.stdout)


class CommandLine(unittest.TestCase):
    def refused(self, *arguments):
        run = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)
        self.assertNotEqual(run.returncode, 0)
        return run.stdout + run.stderr

    def test_names_what_it_knows(self):
        self.assertIn("reduce_scatter_v", self.refused("--operations", "all_to_none"))
        self.assertIn("mpich", self.refused("--contenders", "nobody"))

    def test_refuses_a_vector_without_elements(self):
        self.assertIn("--bytes", self.refused("--bytes", "2"))

    def test_measures_what_is_chosen_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.json"
            subprocess.run([PROGRAM, "--quick", "--ranks", "2", "--operations", "all_reduce", "--bytes",
                            "1KiB,64KiB", "--contenders", "muster", "--json", path],
                           capture_output=True, text=True, check=True)
            rows = json.loads(path.read_text())["rows"]
        self.assertEqual(sorted((row["peer"], row["path"], row["operation"], row["bytes"]) for row in rows),
                         [("muster", path, "all_reduce", size)
                          for path in ("direct", "engine") for size in (1024, 65536)])


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
