#!/usr/bin/env python3
"""Tests headers_test.py on planted headers: `headers_samples_test.py CXX CC CLANG`."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True  # the tree stays as it was

import headers_test  # noqa: E402

GOOD = {
    "a/one.hpp": "#pragma once\nstruct One { int number; };\n",
    "a/two.hpp": '#pragma once\n#include "a/one.hpp"\nstruct Two { One one; };\n',
    "a/words.hpp": "#pragma once\n#include <fmt/format.h>\ninline auto say() { return fmt::format(\"\"); }\n",
    "a/all.hpp": '#pragma once\n#include "a/two.hpp"\n#include "a/words.hpp"\nstruct All { Two two; };\n',
    "api/include/muster/call.h": "#ifndef CALL\n#define CALL\nint call(void);\n#endif\n",
}
# Each planted header, and what includes before it all that it lacks.
NEEDS = {
    "another of ours": ("a/bad.hpp", "#pragma once\nstruct Bad { One one; };\n",
                        '#pragma once\n#include "a/one.hpp"\n#include "a/bad.hpp"\n'),
    "more than it includes": ("a/bad.hpp", '#pragma once\n#include "a/one.hpp"\nstruct Bad { Two two; };\n',
                              '#pragma once\n#include "a/two.hpp"\n#include "a/bad.hpp"\n'),
    "a large library": ("a/bad.hpp", "#pragma once\ninline auto bad() { return fmt::format(\"\"); }\n",
                        '#pragma once\n#include "a/words.hpp"\n#include "a/bad.hpp"\n'),
    "a guard": ("a/bad.hpp", "struct Bad {};\n", '#pragma once\n#include "a/bad.hpp"\n'),
    "C++": ("api/include/muster/bad.h", "#ifndef BAD\n#define BAD\nnamespace bad {}\n#endif\n",
            '#pragma once\n#include "a/one.hpp"\n'),
}


def check(files):
    """The exit code of headers_test.py on a tree of these files, and what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = headers_test.main(["headers_test.py", folder, *COMPILERS])
        return code, printed.getvalue()


class Samples(unittest.TestCase):
    def test_good_headers_pass(self):
        code, printed = check(GOOD)
        self.assertEqual(code, 0, printed)
        # Three of the public one; one.hpp and two.hpp in one text, words.hpp and all.hpp in another.
        self.assertIn("5 in 5 compilations, 0 failed", printed)

    def test_a_header_that_needs_more_than_itself_is_found(self):
        for what, (name, text, user) in NEEDS.items():
            with self.subTest(needs=what):
                code, printed = check({**GOOD, name: text, "a/user.hpp": user})
                self.assertEqual(code, 1, printed)
                self.assertIn("1 failed", printed)
                self.assertIn("bad.h", printed)

    def test_no_header_at_all_is_a_failure(self):
        self.assertEqual(check({"readme": ""})[0], 1)


class Chains(unittest.TestCase):
    def test_each_header_includes_all_that_come_before_it(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in GOOD.items():
                (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / name).write_text(text)
            includes = headers_test.Includes(Path(folder))
            paths = [name for name in GOOD if name.endswith(".hpp")]
            found = sorted(headers_test.chains(paths, includes))
        self.assertEqual(found, [["a/one.hpp", "a/two.hpp"], ["a/words.hpp", "a/all.hpp"]])


if __name__ == "__main__":
    COMPILERS = sys.argv[1:4]
    headers_test.HEADERS = ["string"]
    unittest.main(argv=sys.argv[:1])
