#!/usr/bin/env python3
"""Every source is built by somebody: `sources_test.py ROOT BUILD`.

Goal:   no test is lost because its line in a CMakeLists.txt is, as a merge can do.
Method: each tracked C, C++ or CUDA file must stand in the build's compile_commands.json, alone or among
        the sources that CMake compiles as one, or its name in the CMakeLists.txt above it, as that of a
        source for which this machine lacks CUDA or MPI. The consumer in tests/package is built by its own
        test.
"""

import json
import re
import sys
from pathlib import Path, PurePosixPath

sys.dont_write_bytecode = True  # the tree stays as it was

from tidy import tracked  # noqa: E402


def is_named(path, lists):
    """Whether the nearest CMakeLists.txt above the file names it."""
    for folder in PurePosixPath(path).parents:
        text = lists.get(f"{folder}/CMakeLists.txt")
        if text is not None:
            return PurePosixPath(path).name in text
    return False


def unbuilt(sources, compiled, lists):
    return [path for path in sources
            if path not in compiled and not path.startswith("tests/package/") and not is_named(path, lists)]


def of_one_entry(file):
    """The sources behind an entry: itself, or those that CMake compiles as one."""
    if file.parent.name != "Unity":
        return [file]
    return [Path(source).resolve() for source in re.findall(r'^#include "(.*)"$', file.read_text(), re.M)]


def main(arguments):
    root, build = Path(arguments[1]).resolve(), Path(arguments[2])
    commands = json.loads((build / "compile_commands.json").read_text())
    entries = (Path(entry["directory"], entry["file"]).resolve() for entry in commands)
    files = (source for entry in entries for source in of_one_entry(entry))
    compiled = {str(file.relative_to(root)) for file in files if file.is_relative_to(root)}
    paths = [path for path in tracked(root) if (root / path).is_file()]
    lists = {path: (root / path).read_text() for path in paths if path.endswith("/CMakeLists.txt")}
    sources = [path for path in paths if path.endswith((".c", ".cpp", ".cu"))]
    planted = ["tests/system/lost_test.cpp"]
    if unbuilt(planted, compiled, lists) != planted or not sources:
        print("sources: the check itself does not work")
        return 1
    lost = unbuilt(sources, compiled, lists)
    for path in lost:
        print(f"{path}: no CMakeLists.txt builds it")
    print(f"sources: {len(sources)} files, {len(lost)} not built")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
