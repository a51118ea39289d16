#!/usr/bin/env python3
"""The tests that the catalogue of fields names are there: `catalogue_test.py ROOT`.

Goal:   the table of tests/api/client/fields/README.md does not rot.
Method: each id has one row. Each `program Suite.Name` in the table is a test in a source that CMake lists for
        that program.
"""

import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # the tree stays as it was

from tidy import tracked  # noqa: E402

TABLE = "tests/api/client/fields/README.md"
IDS = {"T": 19, "C": 14, "I": 6, "G": 5, "R": 4, "D": 9, "S": 7, "X": 1, "P": 1}
ROW = re.compile(r"^\| ([A-Z])(\d+)(?: to [A-Z](\d+))? \|(.*)\|$", re.M)
NAMED = re.compile(r"`(\w+_test) (\w+)\.(\w+)`")
PROGRAM = re.compile(r"\bmuster_test\((\w+)\s+SOURCES\s+((?:[\w./]+\s*)+?)"
                     r"(?=\b(?:ON|LABELS|VENDOR|HOT)\b|\))")
TEST = re.compile(r"\bTEST(?:_F|_P)?\((\w+),\s*(\w+)\)")


def programs_of(lists):
    """By program, the sources that CMake lists. `lists`: texts by path."""
    found = {}
    for path, text in lists.items():
        for name, sources in PROGRAM.findall(text):
            found.setdefault(name, []).extend(str(Path(path).parent / source) for source in sources.split())
    return found


def faults_of(table, lists, text_of):
    """What is wrong with the table; `text_of` gives the text of a source."""
    programs = programs_of(lists)
    seen, faults = [], []
    for letter, first, last, rest in ROW.findall(table):
        seen += [f"{letter}{number}" for number in range(int(first), int(last or first) + 1)]
        if not rest.strip():
            faults.append(f"{letter}{first}: the row is empty")
        for program, suite, name in NAMED.findall(rest):
            tests = [test for source in programs.get(program, []) for test in TEST.findall(text_of(source))]
            if (suite, name) not in tests:
                faults.append(f"{letter}{first}: {program} has no test {suite}.{name}")
    for letter, count in IDS.items():
        for number in range(1, count + 1):
            rows = seen.count(f"{letter}{number}")
            if rows != 1:
                faults.append(f"{letter}{number}: {rows} rows have it")
    return faults


def works():
    """Whether planted faults are found."""
    rows = [f"| {letter}1 to {letter}{count} | none |" for letter, count in IDS.items() if count > 1]
    rows += ["| X1 | `a_test A.B`, `a_test A.C` |", "| P1 | `b_test A.B` |", "| P1 | none |"]
    lists = {"tests/x/CMakeLists.txt": "muster_test(a_test\n  SOURCES a_test.cpp y/b_test.cpp\n  ON other)"}
    texts = {"tests/x/a_test.cpp": "TEST_F(A, D) {", "tests/x/y/b_test.cpp": "TEST(A, B) {"}
    return faults_of("\n".join(rows), lists, texts.__getitem__) == [
        "X1: a_test has no test A.C", "P1: b_test has no test A.B", "P1: 2 rows have it"]


def main(arguments):
    root = Path(arguments[1]).resolve()
    if not works():
        print("catalogue: the check itself does not work")
        return 1
    lists = {path: (root / path).read_text() for path in tracked(root) if path.startswith("tests/") and
             (path.endswith(".cmake") or path.endswith("CMakeLists.txt"))}

    def text_of(source):
        path = root / source
        return path.read_text() if path.is_file() else ""

    table = (root / TABLE).read_text()
    faults = faults_of(table, lists, text_of)
    for fault in faults:
        print(fault)
    print(f"catalogue: {len(NAMED.findall(table))} tests are named, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
