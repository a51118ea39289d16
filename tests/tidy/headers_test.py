#!/usr/bin/env python3
"""Every header stands alone: `headers_test.py ROOT CXX CC [INCLUDE...]`.

Goal:   whoever includes a header needs to include nothing before it, and nothing is defined twice.
Method: the compiler checks the syntax of a text that includes one header twice. Public headers are C11,
        C++17 and C++20, each without a warning. Device headers need a CUDA include folder among INCLUDE;
        without one they are counted as left out.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True  # the tree stays as it was

from tidy import tracked  # noqa: E402

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-fopenmp-simd"]
# What the build tells every includer of some headers.
DEFINES = ["-DASIO_STANDALONE", "-DASIO_NO_DEPRECATED",
           '-DMUSTER_PROGRAMS="bin"', '-DMUSTER_RANK_PROGRAM="rank"', '-DMUSTER_NEXT_PROGRAM="next"',
           '-DMUSTER_BYSTANDER_PROGRAM="bystander"', '-DMUSTER_CONFIGS="configs"']


def ways(path):
    """(language, standard, include line) of each way in which a header must compile."""
    if path.startswith("api/include/"):
        name = path.removeprefix("api/include/")
        return [(language, standard, f"#include <{name}>")
                for language, standard in (("c", "c11"), ("c++", "c++17"), ("c++", "c++20"))]
    return [("c++", "c++20", f'#include "{path}"')]


def headers(root):
    found = [p for p in tracked(root) if p.endswith((".hpp", ".h")) and not p.startswith("tests/package/")]
    return sorted(p for p in found if (root / p).is_file())


def compile_alone(root, compilers, includes, way):
    language, standard, line = way
    command = [compilers[language], "-x", language, f"-std={standard}", *WARNINGS, *DEFINES, f"-I{root}",
               f"-I{root}/api/include", *(f"-isystem{folder}" for folder in includes), "-"]
    text = f"{line}\n{line}\nint alone;\n"
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=False)
    return done.returncode == 0, f"{standard} {line}\n{done.stderr}"


def main(arguments):
    root, compilers = Path(arguments[1]), {"c++": arguments[2], "c": arguments[3]}
    includes = arguments[4:]
    has_cuda = any((Path(folder) / "cuda_runtime.h").exists() for folder in includes)
    left_out, work = 0, []
    for path in headers(root):
        if "/cuda/" in path and not has_cuda:
            left_out += 1
        else:
            work += ways(path)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = list(pool.map(lambda way: compile_alone(root, compilers, includes, way), work))
    failures = [text for passed, text in results if not passed]
    print(*failures, sep="\n")
    print(f"headers: {len(work)} compilations, {len(failures)} failed, {left_out} headers left out (no CUDA)")
    if not work:
        print(f"headers: none found under {root}")
    return 1 if failures or not work else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
