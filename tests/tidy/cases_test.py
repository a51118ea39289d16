#!/usr/bin/env python3
"""Each case of sharded training has a test: `cases_test.py ROOT`.

Goal:   no case of the catalogue is lost: meshes (M), FSDP and HSDP (F), tensor parallelism (T), strided
        layouts (X), checkpoints (C).
Method: the id must stand in the comment right above a test, as "case F18" or "cases X2 and C1". "(ours)"
        marks ids that the catalogue uses without numbers; their tests have numbers of our own.
"""

import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # the tree stays as it was

from tidy import tracked  # noqa: E402

# Left out: what is not in the product. F20 offloads to the CPU, F22 and F23 tune, T12 overlaps products.
CASES = ([f"M{i}" for i in range(1, 15)] + [f"F{i}" for i in range(1, 30) if i not in (20, 22, 23)] +
         [f"T{i}" for i in range(1, 14) if i != 12] + [f"X{i}" for i in range(1, 5)] +
         [f"C{i}" for i in range(1, 11)])
TAG = re.compile(r"\bcases? ((?:[MFTXC]\d+(?: \([^)]*\))?(?:, | and )?)+)")
TEST = re.compile(r"((?:^//.*\n)+)TEST(?:_F|_P)?\(\w+,\s*\w+\)", re.M)


def named(text):
    """The ids that comments above tests name."""
    found = set()
    for comment in TEST.findall(text):
        for tag in TAG.findall(re.sub(r"\n//\s*", " ", comment)):
            found.update(re.findall(r"[MFTXC]\d+", tag))
    return found


def missing_in(texts):
    found = set().union(*map(named, texts))
    return [case for case in CASES if case not in found]


def main(arguments):
    root = Path(arguments[1]).resolve()
    texts = [(root / path).read_text() for path in tracked(root)
             if path.startswith("tests/") and path.endswith("_test.cpp") and (root / path).is_file()]
    planted = "// Goal: cases M1, F2 (ours) and\n//       X3: a.\nTEST(A, B) {\n// case C4\n\nTEST(A, C) {\n"
    if missing_in([planted]) != [case for case in CASES if case not in ("M1", "F2", "X3")]:
        print("cases: the check itself does not work")
        return 1
    missing = missing_in(texts)
    for case in missing:
        print(f"case {case}: no comment above a test names it")
    print(f"cases: {len(CASES)}, {len(missing)} without a test")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
