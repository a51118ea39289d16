#!/usr/bin/env python3
"""Every header stands alone: `headers_test.py ROOT CXX CC [INCLUDE...]`.

Goal:   whoever includes a header needs to include nothing before it, and nothing is defined twice.
Method: the compiler checks the syntax of a text that includes one header twice. Public headers are C11,
        C++17 and C++20, each without a warning. Device headers need a CUDA include folder among INCLUDE;
        without one they are counted as left out.
        To save time, a header that another one includes first of all is seen alone there. And the standard
        headers, with the large libraries that a header reaches, are parsed before it, once for all headers
        that reach the same ones; tidy's rule standard-header sees a standard header that is left out.
"""

import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True  # the tree stays as it was

from standard_names import HEADERS  # noqa: E402
from tidy import tracked  # noqa: E402

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-fopenmp-simd"]
# What the build tells every includer of some headers.
DEFINES = ["-DASIO_STANDALONE", "-DASIO_NO_DEPRECATED",
           '-DMUSTER_PROGRAMS="bin"', '-DMUSTER_RANK_PROGRAM="rank"', '-DMUSTER_NEXT_PROGRAM="next"',
           '-DMUSTER_BYSTANDER_PROGRAM="bystander"', '-DMUSTER_PYTHON="python3"',
           '-DMUSTER_CONFIGS="configs"']

PARSED_AS = ("c++", "c++20")
LARGE = ["fmt/format.h", "gmock/gmock.h", "gtest/gtest.h", "nlohmann/json.hpp"]
INCLUDE = re.compile(r'^#include [<"]([^>"]+)[>"]', re.MULTILINE)


class Reach:
    """Which large libraries a header includes, itself or by way of other headers of ours."""

    def __init__(self, root):
        self.root = root
        self.found = {}

    def of(self, name):
        if name in LARGE:
            return frozenset([name])
        if name not in self.found:
            self.found[name] = frozenset()  # until it is known: a circle of includes ends here
            paths = [self.root / name, self.root / "api/include" / name]
            text = next((path.read_text() for path in paths if path.is_file()), "")
            self.found[name] = frozenset().union(*(self.of(other) for other in INCLUDE.findall(text)))
        return self.found[name]


def ways(path):
    """(language, standard, include line) of each way in which a header must compile."""
    if path.startswith("api/include/"):
        name = path.removeprefix("api/include/")
        return [(language, standard, f"#include <{name}>")
                for language, standard in (("c", "c11"), ("c++", "c++17"), ("c++", "c++20"))]
    return [(*PARSED_AS, f'#include "{path}"')]


def headers(root):
    """All headers but those that another header begins with."""
    found = [p for p in tracked(root) if p.endswith((".hpp", ".h")) and not p.startswith("tests/package/")]
    found = sorted(p for p in found if (root / p).is_file())
    firsts = {first[1] for p in found if (first := INCLUDE.search((root / p).read_text()))}
    return [p for p in found if p not in firsts]


class Compiler:
    def __init__(self, root, programs, includes, folder):
        self.programs = programs
        self.flags = [*WARNINGS, *DEFINES, f"-I{root}", f"-I{root}/api/include",
                      *(f"-isystem{include}" for include in includes)]
        self.reach = Reach(root)
        self.folder = folder
        self.parsed = {}  # the libraries: a header that includes them, precompiled

    def command(self, language, standard, *more):
        return [self.programs[language], f"-std={standard}", *self.flags, *more]

    def parse_libraries(self, numbered):
        """Precompiles the standard headers and these. If that fails, each time all of them are parsed."""
        number, libraries = numbered
        header = Path(self.folder) / f"libraries{number}.hpp"
        header.write_text("".join(f"#include <{name}>\n" for name in [*HEADERS, *sorted(libraries)]))
        command = [word for word in self.command(*PARSED_AS) if word != "-fsyntax-only"]
        subprocess.run([*command, "-x", "c++-header", header, "-o", f"{header}.gch"], check=False,
                       capture_output=True)
        return libraries, header

    def alone(self, way):
        language, standard, line = way
        libraries = self.reach.of(INCLUDE.match(line)[1])
        parsed = ["-include", self.parsed[libraries]] if (language, standard) == PARSED_AS else []
        done = subprocess.run(self.command(language, standard, *parsed, "-x", language, "-"), text=True,
                              input=f"{line}\n{line}\nint alone;\n", capture_output=True, check=False)
        return done.returncode == 0, f"{standard} {line}\n{done.stderr}"


def main(arguments):
    root, programs = Path(arguments[1]), {"c++": arguments[2], "c": arguments[3]}
    includes = arguments[4:]
    has_cuda = any((Path(folder) / "cuda_runtime.h").exists() for folder in includes)
    left_out, work = 0, []
    for path in headers(root):
        if "/cuda/" in path and not has_cuda:
            left_out += 1
        else:
            work += ways(path)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        compiler = Compiler(root, programs, includes, folder)
        reached = {compiler.reach.of(INCLUDE.match(line)[1]) for _, _, line in work}
        compiler.parsed = dict(pool.map(compiler.parse_libraries, enumerate(reached)))
        results = list(pool.map(compiler.alone, work))
    failures = [text for passed, text in results if not passed]
    print(*failures, sep="\n")
    print(f"headers: {len(work)} compilations, {len(failures)} failed, {left_out} headers left out (no CUDA)")
    if not work:
        print(f"headers: none found under {root}")
    return 1 if failures or not work else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
