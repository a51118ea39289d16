#!/usr/bin/env python3
"""Tests deploy/demo_cluster.py where the machine makes no network namespaces, by programs that only fail."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REASON = "unshare: cannot change root filesystem propagation: Invalid argument"


def program(path, *lines):
    path.write_text("\n".join(("#!/bin/sh", *lines, "")), encoding="utf-8")
    path.chmod(0o755)


class DemoCluster(unittest.TestCase):
    def said(self, *lines):
        """What it says where `unshare` does that."""
        with tempfile.TemporaryDirectory() as folder:
            for name in ("muster", "musterd", "train_lm"):
                program(Path(folder) / name, "exit 0")
            program(Path(folder) / "unshare", *lines)
            variables = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
            variables.pop("MUSTER_CLUSTER_OF_NAMESPACES", None)
            ended = subprocess.run([sys.executable, ROOT / "deploy/demo_cluster.py", "--bin", folder],
                                   check=False, env=variables, capture_output=True, text=True)
        self.assertEqual(ended.returncode, 1)
        self.assertEqual(ended.stdout, "")
        return ended.stderr

    def test_says_what_it_needs_and_why_it_is_not_here(self):
        for lines in ((f"echo '{REASON}' >&2", "exit 1"), (f"echo '{REASON}' >&2", "exit 71")):
            said = self.said(*lines)
            self.assertTrue(said.startswith("demo-cluster: this machine makes no nodes: "), said)
            self.assertIn(REASON, said)
            self.assertIn("network namespace", said)
            self.assertIn("no chroot", said)
            self.assertEqual(said.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
