#!/usr/bin/env python3
"""Headers, version script and library name the same functions: `exports_test.py FOLDER MAP [LIBRARY NM]`."""

import re
import subprocess
import sys
from pathlib import Path

NODE = "MUSTER_0.2"


def declared(folder):
    names = []
    for header in Path(folder).glob("*.h"):
        text = re.sub(r"/\*.*?\*/", " ", header.read_text(), flags=re.DOTALL)
        text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
        names += re.findall(r"\bMUSTER_API\b[^;(]*?\b(\w+)\s*\(", text)
    return sorted(names)


def mapped(path):
    text = re.sub(r"#.*", "", Path(path).read_text())
    node = re.fullmatch(r"\s*(\S+)\s*\{\s*global:(.*)local:\s*\*;\s*\};\s*", text, flags=re.DOTALL)
    if not node or node.group(1) != NODE:
        sys.exit(f"{path}: expected one node {NODE} {{ global: … local: *; }};")
    return sorted(name for name in re.split(r"[;\s]+", node.group(2)) if name)


def exported(library, nm):
    command = [nm, "-D", "--defined-only", library]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    symbols = [line.split() for line in listing.stdout.splitlines()]
    names = [symbol[-1] for symbol in symbols if symbol[-2] != "A"]  # A: the node itself
    wrong = [name for name in names if not name.endswith("@@" + NODE)]
    if wrong:
        sys.exit(f"{library} exports outside {NODE}: {' '.join(wrong)}")
    return sorted(name.split("@")[0] for name in names)


def differences(left, left_title, right, right_title):
    only_left, only_right = sorted(set(left) - set(right)), sorted(set(right) - set(left))
    for only, title, other in ((only_left, left_title, right_title), (only_right, right_title, left_title)):
        if only:
            print(f"in {title} and not in {other}: {' '.join(only)}")
    return len(only_left) + len(only_right)


def main(arguments):
    folder, version_script, *rest = arguments[1:]
    functions = declared(folder)
    if not functions:
        sys.exit(f"{folder} declares no MUSTER_API function")
    failures = differences(functions, folder, mapped(version_script), version_script)
    if rest:
        failures += differences(functions, folder, exported(*rest), rest[0])
    print(f"exports: {len(functions)} functions, {failures} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
