#!/usr/bin/env python3
"""Checks the tree against rules.py: `tidy.py [ROOT]`. Prints `file:line: rule: text`, exits 1 on findings."""

import re
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # the tree stays as it was

import floors  # noqa: E402
from rules import RULES  # noqa: E402
from source import Source  # noqa: E402
from tree_rules import TREE_RULES, large_classes  # noqa: E402


EXCEPTIONS = "tests/tidy/exceptions.txt"


class Tree:
    """The files of one checkout, by path from its root."""

    def __init__(self, files):
        self.files = files  # path -> text
        self.paths = set(files)
        self.floors = floors.parse(files.get(floors.FILE, ""))
        self._sources = {}

    def source(self, path):
        if path not in self._sources:
            self._sources[path] = Source(path, self.files[path])
        return self._sources[path]


def tracked(root):
    """Files that git tracks or would track. Without git: all but build outputs and hidden folders."""
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", str(root), "ls-files", "-z", "-co", "--exclude-standard"],
        capture_output=True, check=False)
    if listing.returncode == 0:
        return [name for name in listing.stdout.decode().split("\0") if name]
    names = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return [str(n) for n in names if n.parts[0] not in ("build", "demo") and not n.parts[0].startswith(".")]


def read_tree(root):
    files = {}
    for name in tracked(root):
        path = root / name
        if path.is_symlink() or not path.is_file():
            continue  # deleted in the work tree, or a pointer elsewhere
        data = path.read_bytes()
        if b"\0" in data[:8192]:
            continue  # no text
        files[name] = data.decode("utf-8", errors="replace")
    return Tree(files)


def exceptions_of(tree):
    """(rule, path, name) -> line number, of what exceptions.txt excuses."""
    found = {}
    for number, line in enumerate(tree.files.get(EXCEPTIONS, "").split("\n"), 1):
        if line and not line.startswith("#"):
            match = re.fullmatch(r"([\w-]+) (\S+) (\w[\w:]*): \S.*", line)
            if not match or match[1].replace("-", "_") not in {rule.__name__ for rule in TREE_RULES}:
                raise SystemExit(f"{EXCEPTIONS}:{number}: '{line}' is no `RULE FILE NAME: REASON`")
            found[match.groups()] = number
    return found


def check(tree):
    """All findings as sorted (path, line, rule, text), but for what is excepted."""
    findings = []
    for path in tree.files:
        source = tree.source(path)
        for name, rule in RULES.items():
            findings.extend((path, line, name, finding) for line, finding in rule(source, tree))
    excepted = exceptions_of(tree)
    excused = [finding for finding in findings if _excuse(finding) in excepted]
    stale = set(excepted) - set(map(_excuse, excused))
    findings += [(EXCEPTIONS, excepted[key], "exceptions", f"{' '.join(key)}: nothing to excuse any more")
                 for key in stale]
    return sorted(set(findings) - set(excused))


def _excuse(finding):
    path, _, rule, text = finding
    return rule, path, text.split(" ", 1)[0]


def main(arguments):
    root = Path(arguments[1] if len(arguments) > 1 else Path(__file__).resolve().parents[2])
    tree = read_tree(root)
    if not tree.files:
        print(f"tidy: no files under {root}; name the root of a checkout")
        return 2
    findings = check(tree)
    for path, line, rule, text in findings:
        print(f"{path}:{line}: {rule}: {text}")
    for path, line, name, count in large_classes(tree):
        print(f"{path}:{line}: warning: {name} has {count} functions")
    print(f"tidy: {len(tree.files)} files, {len(RULES)} rules, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
