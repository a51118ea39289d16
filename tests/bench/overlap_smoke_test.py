"""Runs bench/overlap --quick and checks what it found. The figures themselves are of no interest here.

  overlap_smoke_test.py PROGRAM
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True

SKIPPED = 77
CHUNK = 2**20
PROGRAM = None


class QuickRun(unittest.TestCase):
    report = {}

    def test_times_an_all_reduce_alone_and_behind_work(self):
        for row in self.report["reduce"]:
            for name in ("alone_s", "work_s", "both_s"):
                self.assertGreater(row[name], 0.0, row)
            self.assertEqual(len(row["overlaps"]), row["rounds"], row)

    def test_an_urgent_halo_waits_for_one_chunk_in_the_engine_at_most(self):
        for row in self.report["halo"]:
            self.assertGreater(row["alone_us"]["count"], 0, row)
            self.assertGreater(row["one_lane_us"]["count"], 0, row)
            if row["network"] != "one node":
                self.assertGreater(row["behind_us"]["count"], 0, row)
                self.assertLessEqual(row["engine_bytes"], CHUNK, row)

    def test_layers_give_the_same_with_one_halo_and_with_many(self):
        for row in self.report["field"]:
            self.assertLessEqual(row["difference"], 1e-5, row)
            for kind in ("shallow", "deep"):
                self.assertGreater(row[kind]["step_s"], 0.0, row)
                self.assertGreater(row[kind]["sockets_s"], 0.0, row)

    def test_counts_what_of_a_step_waits_for_halos(self):
        for row in self.report["winds"]:
            self.assertGreaterEqual(row["exposed"], row["halo_exposed"], row)
            self.assertGreater(row["at_once"], 0, row)

    def test_trains_over_both_nodes(self):
        for row in self.report["train"]:
            self.assertGreater(row["step_s"], 0.0, row)
            self.assertGreater(row["sent_bytes_a_step"], 0.0, row)


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        ended = subprocess.run([PROGRAM, "--quick", "--json", path], capture_output=True, text=True,
                               check=False)
        if ended.returncode != 0:
            sys.exit(ended.stdout + ended.stderr)
        QuickRun.report = json.loads(path.read_text())
    if "halo" not in QuickRun.report:
        print(f"skipped: {QuickRun.report['left_out'][0]}")
        sys.exit(SKIPPED)
    unittest.main()


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    main()
