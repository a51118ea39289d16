#!/usr/bin/env python3
"""Every header stands alone: `headers_test.py ROOT CXX CC CLANG [INCLUDE...]`.

Goal:   whoever includes a header needs to include nothing before it, and nothing is defined twice.
Method: a compiler checks the syntax of a text that includes one header twice. Public headers are C11,
        C++17 and C++20 to CXX and CC, each without a warning. All others are C++20 to CLANG, which reads
        precompiled headers in an eighth of the time of GCC. Device headers need a CUDA include folder among
        INCLUDE; without one they are counted as left out.
        To save time, a text may go on with a header that includes all that was there before it: what comes
        before such a header changes nothing. And the standard headers, with the large libraries that a
        header reaches, are parsed before it, once for all headers that reach the same ones; tidy's rule
        standard-header sees a standard header that is left out.
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
           '-DMUSTER_CONFIGS="configs"', '-DMUSTER_SCRIPTED_RANK="scripted"']

PUBLIC = "api/include/"
LARGE = ["fmt/format.h", "gmock/gmock.h", "gtest/gtest.h", "nlohmann/json.hpp", "tl/expected.hpp"]
INCLUDE = re.compile(r'^#include [<"]([^>"]+)[>"]', re.MULTILINE)


class Includes:
    """What a header includes, itself or by way of other headers of ours: these, and the large libraries."""

    def __init__(self, root):
        self.root = root
        self.found = {}

    def of(self, name):
        """The paths of headers of ours, this one among them, and the names of libraries."""
        if name in LARGE:
            return frozenset([name])
        if name not in self.found:
            self.found[name] = frozenset()  # until it is known: a circle of includes ends here
            path = next((path for path in (name, PUBLIC + name) if (self.root / path).is_file()), None)
            text = (self.root / path).read_text() if path else ""
            ours = frozenset([path] if path else [])
            self.found[name] = ours.union(*(self.of(other) for other in INCLUDE.findall(text)))
        return self.found[name]

    def libraries(self, name):
        return self.of(name).intersection(LARGE)


def chains(paths, includes):
    """Lists of these headers, in which each one includes all that come before it, and the same libraries."""
    largest_first = sorted(paths, key=lambda path: (-len(includes.of(path)), path))
    left = dict.fromkeys(largest_first)
    found = []
    for path in largest_first:
        if path in left:
            chain = []
            while path:
                del left[path]
                chain.insert(0, path)
                path = next((other for other in left if other in includes.of(path)
                             and includes.libraries(other) == includes.libraries(path)), None)
            found.append(chain)
    return found


def ways(path):
    """(language, standard, text) of each way in which a public header must compile."""
    line = f"#include <{path.removeprefix(PUBLIC)}>\n"
    return [(language, standard, line + line)
            for language, standard in (("c", "c11"), ("c++", "c++17"), ("c++", "c++20"))]


def headers(root):
    found = [p for p in tracked(root) if p.endswith((".hpp", ".h")) and not p.startswith("tests/package/")]
    return sorted(p for p in found if (root / p).is_file())


class Compiler:
    """`programs`: c++ and c for public headers, clang for all others."""

    def __init__(self, root, programs, includes, folder):
        self.programs = programs
        self.flags = [*WARNINGS, *DEFINES, f"-I{root}", f"-I{root}/{PUBLIC}",
                      *(f"-isystem{include}" for include in includes)]
        # Relacy's macros have a dollar in their names.
        self.clang = [programs["clang"], "-std=c++20", *self.flags, "-Wno-dollar-in-identifier-extension"]
        self.folder = folder
        self.parsed = {}  # the libraries: a header that includes them, precompiled

    def parse_standard(self):
        """Precompiles the standard headers."""
        return self._parse("standard", [], [])

    def parse(self, libraries):
        """Precompiles these libraries on top of the standard headers."""
        standard = Path(self.folder) / "standard.hpp"
        self.parsed[libraries] = self._parse("_".join(["with", *libraries]).replace("/", "_"),
                                             sorted(libraries), ["-include", standard])

    def _parse(self, name, libraries, before):
        header = Path(self.folder) / f"{name}.hpp"
        header.write_text("".join(f"#include <{name}>\n" for name in [*HEADERS, *libraries]))
        flags = [flag for flag in self.clang if flag != "-fsyntax-only"]
        # If that fails, each text parses them anew.
        subprocess.run([*flags, *before, "-fpch-instantiate-templates", "-x", "c++-header",
                        header, "-o", f"{header}.gch"], check=False, capture_output=True)
        return header

    def public(self, way):
        language, standard, text = way
        return self._compile([self.programs[language], f"-std={standard}", *self.flags, "-x", language], text)

    def others(self, chain, libraries):
        text = "".join(f'#include "{path}"\n' * 2 for path in chain)
        return self._compile([*self.clang, "-include", self.parsed[libraries], "-x", "c++"], text)

    def _compile(self, command, text):
        done = subprocess.run([*command, "-"], text=True, input=f"{text}int alone;\n",
                              capture_output=True, check=False)
        return done.returncode == 0, f"{' '.join(command[:2])}\n{text}{done.stderr}"


def main(arguments):
    root, programs = Path(arguments[1]), dict(zip(("c++", "c", "clang"), arguments[2:5], strict=True))
    folders = arguments[5:]
    has_cuda = any((Path(folder) / "cuda_runtime.h").exists() for folder in folders)
    found = headers(root)
    known = [path for path in found if has_cuda or "/cuda/" not in path]
    public = [way for path in known if path.startswith(PUBLIC) for way in ways(path)]
    includes = Includes(root)
    others = [(chain, includes.libraries(chain[0]))
              for chain in chains([path for path in known if not path.startswith(PUBLIC)], includes)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        compiler = Compiler(root, programs, folders, folder)
        compiler.parse_standard()
        list(pool.map(compiler.parse, {libraries for _, libraries in others}))
        results = [*pool.map(compiler.public, public), *pool.map(lambda one: compiler.others(*one), others)]
    failures = [text for passed, text in results if not passed]
    print(*failures, sep="\n")
    print(f"headers: {len(known)} in {len(results)} compilations, {len(failures)} failed, "
          f"{len(found) - len(known)} headers left out (no CUDA)")
    if not known:
        print(f"headers: none found under {root}")
    return 1 if failures or not known else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
