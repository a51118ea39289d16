#!/usr/bin/env python3
"""`sharding_smoke_test.py SHARDING [OPTION...]`: a quick run has all figures of Muster as documented.

The same goes for torch, where it is installed; else the run must say why there is none. The options, such as
--python, are passed on.
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = None
OPTIONS = []
MESH = "dp_shard=2"
SECTIONS = ["meshes", "hsdp", "wrapping", "tp", "checkpoint", "overhead"]
MIB = 2**20
PARAMETERS = 256 * 64 * 2 + 64 + 2 * (4 * 64 * 64 + 3 * 64 * 192 + 2 * 64)


class QuickRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "report.json"
            cls.ended = subprocess.run([PROGRAM, "--quick", "--json", path, "--plots", folder, *OPTIONS],
                                       capture_output=True, text=True, check=False)
            cls.report = json.loads(path.read_text()) if path.exists() else None

    def section(self, name):
        return self.report["sections"][name]

    def test_ends_well_and_has_all_sections(self):
        self.assertEqual(self.ended.returncode, 0, self.ended.stderr)
        self.assertEqual(self.report["failures"], [])
        self.assertEqual(list(self.report["sections"]), SECTIONS)
        for name in SECTIONS:
            self.assertIn(f"== {name}\n", self.ended.stdout)

    def test_trains_the_same_on_both_sides_or_says_why_there_is_one(self):
        (row,) = self.section("meshes")
        self.assertEqual((row["mesh"], row["ranks"], row["goal"]), (MESH, 2, 1.6))
        self.assertGreater(row["muster_tokens_per_second"], 0)
        if self.report["torch"] is None:
            self.assertIsNone(row["torch_tokens_per_second"])
            self.assertIn("torch is left out: no torch by", self.ended.stdout)
            return
        self.assertGreater(row["torch_tokens_per_second"], 0)
        self.assertAlmostEqual(row["torch_loss"], row["muster_loss"], delta=1e-3)
        self.assertEqual(row["ratio"], row["muster_tokens_per_second"] / row["torch_tokens_per_second"])
        self.assertGreater(row["torch_resident_bytes"], row["torch_resident_before_bytes"] / 2)

    def test_knows_the_memory(self):
        for row in self.section("hsdp") + self.section("meshes"):
            self.assertGreaterEqual(row["muster_sum_of_peaks_bytes"], row["muster_resident_bytes"], row)
            self.assertGreater(row["muster_small_segments_bytes"], 4 * PARAMETERS, row)
            self.assertGreater(row["muster_resident_bytes"], 4 * PARAMETERS, row)
            # The units of a mesh that shards are never all whole; replicas are.
            whole = row["muster_unsharded_bytes"] >= 4 * PARAMETERS
            self.assertEqual(whole, "dp_shard" not in row["mesh"], row)

    def test_wrappings_differ_as_they_should(self):
        root, alone, listed = self.section("wrapping")
        self.assertEqual([row["wrapping"] for row in (root, alone, listed)], ["root", "alone", "list"])
        self.assertEqual([row["units"] for row in (root, alone, listed)], [3, 5, 4])
        for row in (root, alone, listed):
            self.assertEqual(row["reductions_per_step"], row["units"], row)
            self.assertGreater(row["step_seconds"], 0, row)
        # A root is gathered once, and holds the embedding and the output for the whole step.
        table = 4 * 128 * 64
        self.assertGreaterEqual(root["whole_bytes_in_blocks"], listed["whole_bytes_in_blocks"] + table)
        self.assertGreaterEqual(root["whole_bytes_peak"], 2 * table)
        self.assertGreater(alone["gathers_per_step"], listed["gathers_per_step"])

    def test_finds_the_largest_batch_within_the_limit(self):
        for row in self.section("tp"):
            self.assertEqual(row["largest_batch"] % 4, 0, row)
            self.assertGreater(row["largest_batch"], 0, row)
            self.assertLessEqual(row["largest_batch_bytes"], row["memory_limit_bytes"], row)

    def test_saves_and_loads_the_same_bytes(self):
        rows = self.section("checkpoint")
        wanted = ["muster", "dd"] if self.report["torch"] is None else ["muster", "torch", "dd"]
        self.assertEqual([row["by"] for row in rows], wanted)
        for row in rows:
            self.assertEqual(row["bytes"], 4 * MIB, row)
            self.assertGreater(row["save_seconds"], 0, row)
            self.assertGreater(row["load_seconds"], 0, row)

    def test_counts_what_units_cost(self):
        alone, two = self.section("overhead")
        self.assertEqual((alone["ranks"], two["ranks"]), (1, 2))
        self.assertIsNone(alone["by_hand_us"])
        self.assertGreater(two["by_hand_us"], 0)
        self.assertEqual(two["reductions_per_step"], two["units"])
        for row in (alone, two):
            self.assertEqual(row["calls"], 2 + 4 * row["units"])
            self.assertGreater(row["us_per_call"], 0)


if __name__ == "__main__":
    PROGRAM = sys.argv[1]
    OPTIONS = sys.argv[2:]
    unittest.main(argv=sys.argv[:1])
