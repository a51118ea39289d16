#!/usr/bin/env python3
"""`cluster_smoke_test.py CLUSTER`: a quick run has each cell of Muster by each network, as documented.

A peer that is not installed must be named as left out. Skipped where network namespaces cannot be made.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = None
SKIPPED = 77
NODES = 2
RANKS_PER_NODE = (2,)
WHOLE = ("all_reduce", "halo")
CUT = ("all_gather", "reduce_scatter", "all_to_all")  # 4 bytes for each rank at least
SIZES = (8, 65536)
NETWORKS = ("ucx", "ofi")
PEERS = {"openmpi": ("tcp", "ucx"), "mpich": ("ch4",), "gloo": ("tcp",)}
ROW = {"operation": str, "bytes": int, "ranks": int, "path": str, "peer": str, "median_us": float,
       "minimum_us": float, "samples": int, "nodes": int, "ranks_per_node": int}


def cells():
    return sorted((per_node, operation, size if operation in WHOLE else max(size, 4 * NODES * per_node))
                  for per_node in RANKS_PER_NODE for operation in WHOLE + CUT for size in SIZES)


class QuickRun(unittest.TestCase):
    report = None  # of the run that main() has made
    ended = None

    def found(self, peer, path):
        return sorted((row["ranks_per_node"], row["operation"], row["bytes"]) for row in self.report["rows"]
                      if (row["peer"], row["path"]) == (peer, path))

    def left_out(self, start):
        return [text for text in self.report["left_out"] if start in text]

    def test_rows_have_all_keys_and_sane_times(self):
        for row in self.report["rows"]:
            self.assertEqual({key: type(value) for key, value in row.items()}, ROW, row)
            self.assertEqual((row["nodes"], row["ranks"]), (NODES, NODES * row["ranks_per_node"]), row)
            self.assertLessEqual(row["minimum_us"], row["median_us"], row)
            self.assertGreater(row["minimum_us"], 0.0, row)

    def test_has_each_cell_of_muster_once_by_each_network(self):
        self.assertEqual(self.left_out("muster"), [])
        for network in NETWORKS:
            self.assertEqual(self.found("muster", network), cells(), network)

    def test_has_each_cell_of_each_peer_or_says_that_it_is_missing(self):
        for peer, paths in PEERS.items():
            for path in paths:
                if not self.left_out(f"{peer}/{path}"):
                    self.assertEqual(self.found(peer, path), cells(), f"{peer}/{path}")

    def test_no_result_is_wrong(self):
        self.assertEqual([text for text in self.report["left_out"] if "wrong" in text], [])

    def test_counts_at_least_what_must_be_sent(self):
        counted = sorted((row["operation"], row["path"]) for row in self.report["traffic"]
                         if row["peer"] == "muster")
        self.assertEqual(counted, [("all_reduce", network) for network in sorted(NETWORKS)])
        for row in self.report["traffic"]:
            self.assertEqual(row["payload_bytes"], 65536, row)
            self.assertEqual(len(row["sent_bytes"]), NODES, row)
            for sent in row["sent_bytes"]:
                self.assertGreater(sent, row["payload_bytes"], row)

    def test_measures_messages_between_two_nodes(self):
        for name in ("TCP stream", "muster ucx"):
            for row in self.report["links"][name]:
                self.assertGreater(row["half_trip_us"], 0.0, name)
                self.assertGreater(row["gb_per_s"], 0.0, name)

    def test_prints_a_line_for_each_cell(self):
        lines = [line for line in self.ended.stdout.splitlines() if line.startswith(WHOLE + CUT)]
        self.assertEqual(len(lines), len(cells()) + len(self.report["traffic"]), self.ended.stdout)


class EndedRun(unittest.TestCase):
    def test_leaves_nothing_behind_when_it_is_told_to_end(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "TMPDIR": folder}
            with subprocess.Popen([PROGRAM, "--contenders", "muster", "--nodes", "2"], env=environment,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
                end = time.monotonic() + 60
                while not self.with_word(folder, "--as-rank") and time.monotonic() < end:
                    time.sleep(0.05)
                self.assertTrue(self.with_word(folder, "--as-rank"))
                run.send_signal(signal.SIGTERM)
                self.assertNotEqual(run.wait(60), 0)
            self.assertEqual(self.with_word(folder), [])
            self.assertEqual(os.listdir(folder), [])

    @staticmethod
    def with_word(folder, word=""):
        """Processes of a run in this folder, whose command has the word."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if folder.encode() in (process / "environ").read_bytes():
                    command = (process / "cmdline").read_bytes().decode(errors="replace")
                    found += [command] if word in command else []
            except OSError:
                continue  # it has ended, or is not ours
        return found


def run_quickly():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        QuickRun.ended = subprocess.run([PROGRAM, "--quick", "--json", path], capture_output=True, text=True,
                                        check=False)
        if path.exists():
            QuickRun.report = json.loads(path.read_text())


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    run_quickly()
    if QuickRun.ended.returncode != 0:
        sys.exit(QuickRun.ended.stdout + QuickRun.ended.stderr)
    if "machine" not in QuickRun.report:
        print(f"skipped: {QuickRun.report['left_out'][0]}")
        sys.exit(SKIPPED)
    unittest.main()
