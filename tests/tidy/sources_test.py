#!/usr/bin/env python3
"""Every source is built by somebody: `sources_test.py ROOT BUILD CUDA`.

Goal:   no test is lost because its line in a CMakeLists.txt is, as a merge can do.
Method: each tracked C, C++ or CUDA file must stand in the build's compile_commands.json. CUDA is ON or OFF:
        without it, CUDA sources may be missing. The consumer in tests/package is built by its own test.
"""

import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # the tree stays as it was

from tidy import tracked  # noqa: E402


def unbuilt(sources, compiled, cuda):
    return [path for path in sources
            if path not in compiled and not path.startswith("tests/package/")
            and (cuda or "cuda" not in path)]


def main(arguments):
    root, build, cuda = Path(arguments[1]).resolve(), Path(arguments[2]), arguments[3] == "ON"
    commands = json.loads((build / "compile_commands.json").read_text())
    compiled = {str(Path(entry["directory"], entry["file"]).resolve().relative_to(root)) for entry in commands
                if Path(entry["directory"], entry["file"]).resolve().is_relative_to(root)}
    sources = [path for path in tracked(root)
               if path.endswith((".c", ".cpp", ".cu")) and (root / path).is_file()]
    if unbuilt(["planted/lost_test.cpp"], compiled, cuda) != ["planted/lost_test.cpp"] or not sources:
        print("sources: the check itself does not work")
        return 1
    lost = unbuilt(sources, compiled, cuda)
    for path in lost:
        print(f"{path}: no CMakeLists.txt builds it")
    print(f"sources: {len(sources)} files, {len(lost)} not built")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
