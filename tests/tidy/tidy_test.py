#!/usr/bin/env python3
"""Tests tidy itself: for each rule planted samples that it must find, and clean ones that it must accept."""

import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True  # the tree stays as it was

import floors  # noqa: E402
import words  # noqa: E402
from rules import RULES  # noqa: E402
from source import Source  # noqa: E402
from tidy import EXCEPTIONS, Tree, check, exceptions_of, read_tree  # noqa: E402

# Other files that the samples' includes may name.
BESIDE = {path: "#pragma once\n" for path in (
    "api/base/status.hpp", "api/shm/layout.hpp", "api/client/wait.hpp", "kernels/kernel.hpp",
    "kernels/table.hpp", "kernels/linear/linear.hpp", "daemon/engine/engine.hpp", "daemon/cli/manual.hpp",
    "kernels/math/add.hpp",
    "kernels/device/device.hpp", "transport/collective/communicator.hpp",
    "api/base/mesh/mesh.hpp", "daemon/engine/job/conductor.hpp", "daemon/engine/memory/arena.hpp",
    "daemon/engine/nodes/other_nodes.hpp", "daemon/supervisor/jobs/job_table.hpp",
    "api/client/session/session.hpp",
    "daemon/config/config.hpp", "tests/seeded.hpp")}
BESIDE["api/include/muster/muster.h"] = ""
# Of the whole tree: two sources of the class Twice and one of Once, a type Known and an alias Ints, a header
# that api/base/a.hpp may go round in a circle with, and users of what begins with "used" or "tested".
BESIDE["api/base/one.cpp"] = "namespace muster {\nvoid Twice::f() {}\nT Once::f() {}\nT Once::g() {}\n}\n"
BESIDE["api/base/two.cpp"] = "namespace muster {\nTwice::Twice() : a_(1) {}\nvoid Once::Part::f() {}\n}\n"
BESIDE["api/base/known.cpp"] = ("namespace muster {\nnamespace {\nstruct Known {\n  struct Options {};\n};\n"
                                "using Ints = std::vector<int>;\n}\n}\n")
BESIDE["api/base/a.hpp"] = "#pragma once\n"
BESIDE["api/base/circle.hpp"] = '#pragma once\n#include "api/base/a.hpp"\n'
BESIDE["api/base/users.cpp"] = "void g() { used(kUsed, UsedType(), a.used_member()); }\n"
BESIDE["tests/users_test.cpp"] = "TEST(A, B) { tested(kTested, TestedType(), a.tested_member()); }\n"
BESIDE["api/examples/all_reduce.c"] = "int main(void) {}\n"
BESIDE[words.LIST] = ("# Old\ntie: link (but TieBreaker)\nwish: request\nsettle: drain\ndoubt: suspect\n"
                      "seat: slot\nvacancy: idle\n")
BESIDE[floors.FILE] = (Path(__file__).resolve().parents[2] / floors.FILE).read_text()
TABLE = floors.with_table(f"# x\n{floors.BEGIN}\n{floors.END}\n", floors.parse(BESIDE[floors.FILE]))

# How many there still are; never more.
EXCEPTIONS_LEFT = 1
FLOOR_EXCEPTIONS_LEFT = 0

CARD = "// A thing.\n//\n// Owns    it. Thread  any.\n// Bound   one.\n// Fails   never.\n"


def lines_of(count, filler="  g();\n"):
    return filler * count


def numbered(line, count):
    return "".join(line.format(number) for number in range(count))


# rule -> [(path, text, line)]: each must give exactly one finding of that rule, at that line.
PLANTED = {
    "include-direction": [
        ("api/base/x.hpp", '#pragma once\n#include "api/shm/layout.hpp"\n', 2),
        ("kernels/math/x.hpp", '#pragma once\n#include "api/shm/layout.hpp"\n', 2),
        ("transport/loopback/x.cpp", '#include "kernels/kernel.hpp"\n', 1),
        ("kernels/linear/x.cpp", '#include "transport/collective/communicator.hpp"\n', 1),
        ("scheduler/run/x.cpp", '#include "daemon/config/config.hpp"\n', 1),
        ("api/client/x.cpp", '#include "kernels/kernel.hpp"\n', 1),
        ("api/examples/x.cpp", '#include "api/base/status.hpp"\n', 1),
        ("daemon/engine/x.cpp", '#include "api/client/wait.hpp"\n', 1),
        ("daemon/engine/x.cpp", '#include "tests/seeded.hpp"\n', 1),
        ("daemon/engine/x.cpp", '#include "session.hpp"\n', 1),
        ("api/include/muster/x.h", '#include "api/base/status.hpp"\n', 1),
        ("daemon/config/x.cpp", '#include "daemon/engine/engine.hpp"\n', 1),
        ("kernels/norm/x.cpp", '#include "kernels/linear/linear.hpp"\n', 1),
        ("kernels/x.cpp", '#include "kernels/table.hpp"\n', 1),
        ("kernels/device/host/x.cpp", '#include "kernels/kernel.hpp"\n', 1),
        ("api/client/direct/x.cpp", '#include "api/client/session/session.hpp"\n', 1),
        # The rooms of one folder have an order too; two that stand beside each other do not meet.
        ("daemon/engine/memory/x.cpp", '#include "daemon/engine/job/conductor.hpp"\n', 1),
        ("daemon/engine/observe/x.cpp", '#include "daemon/engine/nodes/other_nodes.hpp"\n', 1),
        ("daemon/supervisor/base/x.cpp", '#include "daemon/supervisor/jobs/job_table.hpp"\n', 1),
        ("daemon/engine/x.cpp", '#include "daemon/engine/memory/arena.hpp"\n', 1),
        ("elsewhere/x.cpp", '#include "api/base/status.hpp"\n', 1),
        # An exception is for one file and one folder.
        ("daemon/supervisor/main.cpp", '#include "daemon/cli/manual.hpp"\n', 1),
        ("daemon/supervisor/main_flags.cpp", '#include "tests/seeded.hpp"\n', 1),
    ],
    "floor-declared": [
        (floors.FILE, "floor 0: words\n  api/base > api/gone\n", 2),
        (floors.FILE, "floor 2: one device\n  kernels/gone.*\n", 2),
        (floors.FILE, "floor 0: words\n  api/base\nfloor 5: all\n  daemon/config\n"
                      "except api/base/status.hpp > daemon/config: it once did\n", 5),
    ],
    "floor-table": [(floors.PAGE, "# x\n", 1),
                    (floors.PAGE, TABLE.replace("| 4 |", "| 3 |"), 2),
                    (floors.PAGE, TABLE.replace(floors.END, ""), 1)],
    "vendor-confinement": [
        ("scheduler/x.cpp", "#include <cuda_runtime.h>\n", 1),
        ("kernels/linear/linear.cpp", "#include <cublas_v2.h>\n", 1),
        ("kernels/linear/linear.cpp", "#include <cblas.h>\n", 1),
        ("daemon/engine/x.cpp", "#include <asio.hpp>\n", 1),
        ("scheduler/x.cpp", "#include <yaml-cpp/yaml.h>\n", 1),
        ("transport/collective/x.cpp", "#include <nccl.h>\n", 1),
        ("transport/nccl/x.cpp", "#include <ucp/api/ucp.h>\n", 1),
        ("daemon/engine/engine.cpp", "#include <CLI/CLI.hpp>\n", 1),
    ],
    "standard-header": [
        ("api/base/x.hpp", "#pragma once\n#include <string>\nstd::string a(std::span<const int> of);\n", 3)],
    "heavy-header": [
        ("daemon/control/job.hpp", "#pragma once\n#include <nlohmann/json.hpp>\n", 2),
        ("daemon/cli/x.hpp", "#pragma once\n#include <CLI/CLI.hpp>\n", 2),
        ("daemon/control/loop.hpp", "#pragma once\n#include <asio/io_context.hpp>\n", 2),
        ("daemon/config/x.hpp", "#pragma once\n#include <yaml-cpp/yaml.h>\n", 2),
        ("kernels/math/x.hpp", "#pragma once\n#include <hwy/highway.h>\n", 2),
        ("api/base/x.hpp", "#pragma once\n#include <fmt/ranges.h>\n", 2),
    ],
    "cuda-condition": [("daemon/engine/x.cpp", "#ifdef MUSTER_HAVE_CUDA\n#endif\n", 1),
                       ("api/base/x.hpp", "#pragma once\n#if defined(__CUDACC__)\n#endif\n", 2)],
    "device-kind": [
        ("daemon/engine/job/x.cpp", '#include "kernels/device/host/device.hpp"\n', 1),
        ("scheduler/run/x.cpp", "void f() {\n  device::host::enqueue(a, b);\n}\n", 2),
        ("daemon/engine/job/x.hpp", "#pragma once\nbool f(K k) { return k == device::Kind::kHost; }\n", 2)],
    "header-guard": [("api/base/x.hpp", "int f();\n", 1)],
    "test-includes-its-header-first": [
        ("tests/api/base/x_test.cpp", '#include <gtest/gtest.h>\n#include "api/base/status.hpp"\n', 1)],
    "file-length": [("api/base/x.cpp", lines_of(601, "int x;\n"), 601)],
    "line-length": [("api/base/x.cpp", "// " + "a" * 108 + "\n", 1),
                    ("api/include/muster/x.h", "// " + "a" * 138 + "\n", 1)],
    "function-length": [
        ("api/base/x.cpp", "namespace a {\nint f(int x) {\n" + lines_of(69) + "}\n}\n", 2),
        ("api/base/x.cpp", "A::A(int x)\n    : a_{x}, b_(x) {\n" + lines_of(68) + "}\n", 1),
        ("api/base/x.cpp", "template<class T>\nT f(T x, O o = {}) noexcept {\n" + lines_of(70) + "}\n", 1),
        ("api/base/x.cpp", 'TEST(A, B) {\n  f("}", \'}\', R"(})");  // }\n' + lines_of(70) + "}\n", 1),
        ("api/base/x.cpp", "const auto f = [](int x) -> int {\n" + lines_of(70) + "};\n", 1),
        ("api/base/x.cpp", "bool operator==(A a, A b) {\n" + lines_of(70) + "}\n", 1),
        ("api/base/x.cpp", "#if A\nint f(int x) {\n#else\nint f() {\n#endif\n" + lines_of(70) + "}\n", 2),
        ("api/base/x.cpp",
         "struct A {\n  int g() const { return 1'000; }\n  void f() {\n" + lines_of(70) + "  }\n};\n", 3),
        ("tests/tidy/x.py", "def f():\n" + lines_of(70, "    g()\n"), 1),
    ],
    "class-card": [
        ("api/base/x.hpp", "#pragma once\nclass A {\n  int f();\n\n private:\n  int a_;\n};\n", 2),
        ("api/base/x.hpp",
         "#pragma once\n// Owns it.\n// Bound one. Fails never.\nstruct A {\n  virtual ~A();\n};\n", 4),
        ("api/base/x.hpp",
         "#pragma once\ntemplate<class T>\nclass A {\n  struct B { int b; };\n private:\n"
          "  struct C {};\n};\n", 2),
    ],
    "shared-member": [
        ("api/shm/layout.hpp", "#pragma once\nstruct A {\n  std::uint64_t* word = nullptr;\n};\n", 2),
        ("api/shm/layout.hpp", "#pragma once\nstruct A {\n  bool on = false;\n};\n", 2),
        ("api/shm/direct.hpp", "#pragma once\nstruct A {\n  char c = 0;\n  std::size_t n = 0;\n};\n", 2),
        ("api/shm/control.hpp", "#pragma once\nstruct A {\n  std::string name;\n};\n", 2),
        ("api/shm/control.hpp", "#pragma once\nstruct A {\n  std::atomic<int> n;\n};\n", 2),
        ("api/shm/command.hpp", "#pragma once\nenum class A { kB };\n", 2),
    ],
    "banned-name": [("api/base/util.hpp", "#pragma once\n", 1), ("daemon/common/x.cpp", "\n", 1),
                    ("api/base/x.cpp", "class SessionManager;\n", 1),
                    ("api/base/x.cpp", "\nstruct [[nodiscard]] AImpl {};\n", 2)],
    "banned-call": [
        ("api/base/x.cpp", "auto t = std::chrono::system_clock::now();\n", 1),
        ("api/base/x.cpp", "int r = std::rand();\n", 1), ("api/base/x.cpp", "std::random_device d;\n", 1),
        ("api/base/x.cpp", "void f() { strcpy(a, b); }\n", 1),
        ("api/base/x.c", "void f() { sprintf(a, b); }\n", 1),
        ("api/base/x.cpp", "volatile int flag;\n", 1),
        ("api/base/x.cpp", "int a = sem_timedwait(s, &t);\n", 1),
        ("api/base/x.hpp", "#pragma once\nusing namespace std;\n", 2)],
    "leftover": [("README.md", "# x\n\nTO" "DO: write\n", 3), ("api/base/x.cpp", "// FIX" "ME later\n", 1)],
    "machine-path": [("deploy/x.sh", "cd /builds/main\n", 1),
                     ("README.md", "# x\nSee `/data/muster/x`.\n", 2),
                     ("api/base/x.cpp", "int a;  // see /builds/main\n", 1),
                     ("tests/x.py", "open('/roo" "t/x')\n", 1),
                     ("api/base/x.cpp", 'f("/ho' 'me/me/x");\n', 1)],
    "documented-path": [("README.md", "# x\n`api/base/gone.hpp`\n", 2),
                        ("ARCHITECTURE.md", "| `daemon/config/config.hpp`: `load` |\n", 1)],
    "shown-source": [("README.md", "# x\n```c\nint main(void) { }\n```\n", 2), ("README.md", "# x\n", 1),
                     ("README.md", "```sh\n```\n```c\n#include <x.h>\nint main(void) {}\n```\n", 3)],
    "file-globbing": [("api/base/CMakeLists.txt", "file(GLOB all *.cpp)\n", 1)],
    "commented-out-test": [("tests/x_test.cpp", "// TEST(A, B) {\n", 1),
                           ("tests/x_test.cpp", "\n#if 0\n#endif\n", 2),
                           ("tests/x_test.cpp", "TEST(A, DISABLED_B) {}\n", 1),
                           ("tests/api/CMakeLists.txt", "# muster_test(a_test SOURCES a.cpp)\n", 1)],
    "folder-readme": [("kernels/new/CMakeLists.txt", "muster_floor(new)\n", 1),
                      ("kernels/new/README.md", lines_of(81, "text\n"), 81)],
    "top-level": [("tools/x.txt", "\n", 1)],
    "class-in-one-source": [
        ("api/base/x.hpp", "#pragma once\nnamespace muster {\nclass Twice {\n  void f();\n};\n}\n", 3)],
    "class-functions": [
        ("api/base/x.hpp", "#pragma once\nclass A {\n" + numbered("  int f{}(int x);\n", 31) + "};\n", 2),
        ("api/base/x.hpp", "#pragma once\nstruct A {\n" + numbered("  B<C> f{}() {{ return g(1); }}\n", 31) +
         "};\n", 2),
        ("api/base/x.hpp", "#pragma once\nstruct A {\n  struct B {\n" +
         numbered("    void f{}(X x = X());\n", 31) + "  };\n};\n", 3),
        ("api/base/x.cpp", "namespace {\nclass A {\n" + numbered("  int f{}();\n", 31) + "};\n}\n", 2)],
    "old-word": [
        ("api/base/x.hpp", "#pragma once\nclass TideTie {};\n", 2),
        ("api/base/x.cpp", "struct A {\n  enum class Wish { kA };\n};\n", 2),
        ("api/base/x.hpp", "#pragma once\nvoid settle_rest();\n", 2),
        ("api/base/x.cpp", "\nvoid A::on_doubt(int x) {}\n", 2),
        ("api/base/x.hpp", "#pragma once\nstruct A {\n  int seat() const;\n};\n", 2),
        ("api/base/rank_vacancy.cpp", "\n", 1)],
    "comment-beginning": [
        ("api/base/x.hpp", "#pragma once\n// Of a group the first member.\nint f();\n", 2),
        ("api/base/x.cpp", "int a;  // Who waits.\n", 1),
        ("api/base/x.cpp", "// Two lines, of which the second\n// ends. Whoever waits goes on.\n", 2),
        ("api/include/muster/x.h", "/* The ranks.\n * What is left: the rest. */\n", 2),
        ("tests/x_test.cpp", "int a;\n// What it has.\n", 2)],
    "type-defined-once": [
        ("api/base/a.cpp", "namespace a {\nstruct Known {\n};\n}\n", 2),
        ("api/base/a.hpp", "#pragma once\nenum class Known : int { k };\n", 2),
        ("api/base/a.cpp", "namespace a {\nusing Known = int;\n}\n", 2),
        ("api/base/a.cpp", "\nusing Ints = std::vector<long>;\n", 2)],
    "include-circle": [
        ("api/base/a.hpp", '#pragma once\n#include "api/base/circle.hpp"\n', 2),
        # A header and its source are one.
        ("api/base/a.cpp", '#include "api/base/a.hpp"\n#include "api/base/circle.hpp"\n', 2)],
    "unused-declaration": [
        ("api/base/x.hpp", "#pragma once\nnamespace a {\nint tested(int x);\n}\n", 3),
        ("api/base/x.hpp", "#pragma once\nnamespace a {\ninline constexpr int kTested = 1;\n}\n", 3),
        ("api/base/x.hpp", "#pragma once\nstruct TestedType {\n  int a = 0;\n};\n", 2),
        ("api/base/x.hpp", "#pragma once\nclass UsedType {\n  int used();\n  int tested_member();\n};\n", 4),
        ("api/base/x.hpp", "#pragma once\ntemplate<class T>\nT tested(T t) {\n  return t;\n}\n", 3)],
}

# rule -> [(path, text)]: none may give a finding of that rule.
CLEAN = {
    "include-direction": [
        ("transport/loopback/x.cpp",
         '#include "kernels/device/device.hpp"\n#include "kernels/math/add.hpp"\n#include <vector>\n'),
        ("daemon/engine/job/x.cpp",
         '#include "api/base/mesh/mesh.hpp"\n#include "daemon/config/config.hpp"\n'
         '#include "daemon/engine/memory/arena.hpp"\n'),
        ("daemon/supervisor/program/x.cpp", '#include "daemon/supervisor/jobs/job_table.hpp"\n'),
        ("api/client/x.cpp",
         '#include "api/client/wait.hpp"\n#include "api/shm/layout.hpp"\n#include <muster/muster.h>\n'),
        ("api/examples/x.c", "#include <muster/muster.h>\n"),
        ("tests/x_test.cpp", '#include "daemon/config/config.hpp"\n'),
        ("api/base/x.cpp", '// #include "daemon/config/config.hpp"\n'),
        ("daemon/cli/x.cpp", '#include "daemon/config/config.hpp"\n'),
        ("kernels/table.cpp", '#include "kernels/linear/linear.hpp"\n#include "kernels/kernel.hpp"\n'),
        ("kernels/linear/x.cpp", '#include "kernels/kernel.hpp"\n'),
    ],
    "floor-declared": [
        (floors.FILE, "floor 0: words\n  api/base > api/include\nfloor 2: one device\n  kernels/table.*\n")],
    "floor-table": [(floors.PAGE, TABLE), ("README.md", "# x\n")],
    "vendor-confinement": [
        ("kernels/linear/cuda/linear.cu", "#include <cuda_runtime.h>\n"),
        ("kernels/onednn/product.cpp", "#include <cblas.h>\n"),
        ("daemon/control/x.cpp", "#include <asio.hpp>\n"),
        ("daemon/supervisor/program/main.cpp", "#include <CLI/CLI.hpp>\n"),
        ("kernels/math/x.cpp", "#include <hwy/highway.h>\n"),
        ("tests/x_test.cpp", "#include <yaml-cpp/yaml.h>\n")],
    "standard-header": [
        ("api/base/x.hpp", "#pragma once\n#include <span>\n// A std::vector.\nvoid f(std::span<int> a);\n"),
        ("api/base/x.cpp", "std::string a;\n")],
    "heavy-header": [
        ("daemon/control/packet.hpp", "#pragma once\n#include <nlohmann/json.hpp>\n"),
        ("daemon/control/job.hpp", "#pragma once\n#include <nlohmann/json_fwd.hpp>\n"),
        ("daemon/config/document.cpp", "#include <yaml-cpp/yaml.h>\n"),
        ("api/base/x.hpp", "#pragma once\n#include <fmt/format.h>\n")],
    "cuda-condition": [("kernels/device/x.cpp", "#ifdef MUSTER_HAVE_CUDA\n#endif\n"),
                       ("api/base/x.cpp", "// #ifdef CUDA\n")],
    "device-kind": [
        ("kernels/table.cpp", '#include "kernels/device/host/device.hpp"\n'),
        ("transport/loopback/x.cpp", "void f() { device::host::enqueue(a, b); }\n"),
        ("tests/daemon/x_test.cpp", "auto a = device::Kind::kHost;\n"),
        ("daemon/config/x.cpp", "auto a = DeviceKind::kHost;  // not Kind::kHost\n"),
        ("daemon/engine/job/x.cpp", '#include "kernels/device/device.hpp"\n')],
    "header-guard": [("api/base/x.hpp", "// A.\n#pragma once\n"), ("api/include/muster/x.h", "\n")],
    "test-includes-its-header-first": [
        ("tests/x_test.cpp", '#include "api/base/status.hpp"\n#include <gtest/gtest.h>\n'),
        ("tests/y_test.cpp", "#include <gtest/gtest.h>\n")],
    "file-length": [("api/base/x.cpp", lines_of(600, "int x;\n")), ("CHANGELOG.md", lines_of(700))],
    "line-length": [("api/base/x.cpp", "// " + "ä" * 107 + "\n"),
                    ("api/include/muster/x.h", "// " + "a" * 137 + "\n"),
                    ("README.md", "a" * 300 + "\n")],
    "function-length": [
        ("api/base/x.cpp", "int f() {\n" + lines_of(68) + "}\n"),
        ("api/base/x.cpp", "constexpr std::array kRows{\n" + lines_of(100, "    Row{1, f(2)},\n") + "};\n"),
        ("api/base/x.cpp", "Row rows[] = {\n" + lines_of(100, "    {1, g(2)},\n") + "};\n"),
        ("api/base/x.cpp", "namespace a {\n" + lines_of(100, "void f() {}\n") + "}\n"),
        ("api/base/x.hpp",
         "#pragma once\nstruct A : B<int> {\n" + lines_of(100, "  int f() const { return 1; }\n") + "};\n"),
        ("api/base/x.hpp", '#pragma once\nextern "C" {\n' + lines_of(100, "void f(void);\n") + "}\n"),
        ("api/base/x.cpp", "enum class E : int {\n" + lines_of(100, "  k,\n") + "};\n"),
        ("api/base/x.cpp", "#define F(x) {\\\n  x\nvoid f() {}\n" + lines_of(100, "int f(int x);\n")),
    ],
    "class-card": [
        ("api/base/x.hpp", "#pragma once\n" + CARD + "class A {\n private:\n  int a_;\n};\n"),
        ("api/base/x.hpp", CARD + "#pragma once\n\n// Said above.\nclass A {\n private:\n  int a_;\n};\n"),
        ("api/base/x.hpp", "#pragma once\nstruct A {\n  int a = 0;\n  int b() const;\n};\n"),
        ("api/base/x.hpp",
         "#pragma once\n" + CARD + "template<class T>\nclass A {\n"
          "  class B { int b; private: int c; };\n};\n"),
        ("tests/x.hpp", "#pragma once\nclass A {\n private:\n  int a_;\n};\n"),
    ],
    "shared-member": [
        ("api/shm/layout.hpp",
         "#pragma once\nenum class K : std::uint8_t { kA };\nstruct alignas(kLine) A {\n"
         "  MessageHeader header;\n  std::int32_t a = 0, b = 0;\n"
         "  alignas(kLine) std::uint64_t c[2] = {0, 0};\n  char text[kTextBytes] = {};\n"
         "  enum class L : std::uint8_t { kB };\n  K k = K::kA;\n};\n"),
        ("api/shm/ring.hpp", "#pragma once\nstruct A {\n  bool on = false;\n};\n"),
    ],
    "banned-name": [("api/base/ids.hpp", "#pragma once\n// UtilImpl\nclass Community;\n"),
                    ("api/base/commonality.cpp", "\n")],
    "banned-call": [
        ("api/base/x.cpp",
         'asm volatile("pause");\nsnprintf(a, n, b);\n// strcpy(a)\nf("volatile");\nusing namespace a;\n'),
        ("api/base/x.cpp", "int operand(int a);\nint b = my_rand(1);\nstd::strcmp(a, b);\n")],
    "leftover": [("api/base/x.cpp", 'mkstemp("aXX' 'XXXX");\n// hacking, todos\n')],
    "machine-path": [("deploy/x.sh", "ls /usr/share/x /run/muster api/base/home/me/x\n"),
                     ("api/base/x.cpp", 'f("/no/such/file");\n')],
    "shown-source": [("README.md", "# x\n```c\nint main(void) {}\n```\n"),
                     ("api/README.md", "```c\nint x;\n```\n")],
    "file-globbing": [("api/base/CMakeLists.txt", "# GLOB is not used\nadd_library(a a.cpp)\n")],
    "documented-path": [("README.md", "`api/base/status.hpp`, `build/x/y`, `api/base/mesh`\n"),
                        ("ARCHITECTURE.md", "| `daemon/config/config.hpp`: `pragma` | a `word` |\n")],
    "commented-out-test": [("tests/x_test.cpp", "// The TEST macro.\nTEST(A, B) {}\n#if 1\n#endif\n"),
                           ("deploy/cmake/test.cmake", "#   muster_test(mesh_test SOURCES mesh_test.cpp)\n")],
    "folder-readme": [("kernels/none/CMakeLists.txt", ""), ("deploy/cmake/CMakeLists.txt", "a()\n")],
    "top-level": [("api/base/x.hpp", "#pragma once\n"), ("README.md", "# x\n"), (".ci/run", "make test\n")],
    "class-in-one-source": [
        ("api/base/x.hpp", "#pragma once\nnamespace muster {\nclass Once {\n  struct Part { void f(); };\n"
                           "  void f();\n  void g();\n};\n}\n"),
        ("api/base/x.hpp", "#pragma once\nnamespace other {\nclass Twice {};\n}\n")],
    "class-functions": [
        ("api/base/x.hpp", "#pragma once\nclass A {\n" + numbered("  int f{}();\n", 30) +
         "  A();\n  explicit A(int x);\n  ~A();\n  A& operator=(const A&) = delete;\n"
         "  bool empty() const = default;\n  friend int g(A a);\n  int a_ = f(1);\n};\n"),
        ("api/base/x.hpp", "#pragma once\nstruct Options {\n" + numbered("  int f{} = 0;\n", 99) + "};\n"),
        ("tests/x.cpp", "class A {\n" + numbered("  int f{}();\n", 31) + "};\n")],
    "old-word": [
        ("api/base/x.hpp", "#pragma once\nstruct TieBreaker {};\nint tied();\nint identity();\n"),
        ("api/base/x.cpp", "// A wish, a seat.\nint a = tie();\nvoid f() { int wish = 0; }\n"),
        ("tests/x.cpp", "struct Wish {};\n")],
    "comment-beginning": [
        ("api/base/x.cpp", "// The first of a group, who waits.\nint a;  // of the engine\n"),
        ("api/base/x.cpp", "// Members wait. This is\n// What the page calls a wait.\n"),
        ("api/base/x.cpp", "// Who waits? A rank.\nauto s = \"// Of it\";\n")],
    "type-defined-once": [
        ("api/base/a.cpp", "class Known;\nstruct A {\n  struct Known {};\n};\nstruct Options {};\n"),
        ("api/base/a.cpp", "void f() {\n  struct Known {};\n}\nusing other::Known;\n"),
        ("api/base/a.hpp", "template<>\nstruct Known<int> {};\nusing Known = other::Known;\n"),
        ("api/base/a.cpp", "using Ints = std::vector<int>;\n"), ("tests/a.cpp", "struct Known {};\n"),
        ("api/examples/a.cpp", "struct Known {};\n")],
    "include-circle": [
        ("api/base/y.hpp", '#pragma once\n#include "api/base/circle.hpp"\n'),
        ("api/base/a.cpp", '#include "api/base/a.hpp"\n#include "api/base/status.hpp"\n')],
    "unused-declaration": [
        ("api/base/x.hpp", "#pragma once\nint used(int x);\ninline constexpr int kUsed = 1;\n"
                           "struct UsedType {\n  UsedType();\n  int used_member();\n};\n"),
        ("api/base/x.hpp", "#pragma once\nstruct UsedType : B {\n  int tested_member() override;\n};\n"),
        ("api/include/muster/x.h", "int tested(int x);\n"), ("api/base/x.cpp", "int tested(int x);\n")],
}


def found(rule, path, text):
    tree = Tree({**BESIDE, path: text})
    return list(RULES[rule](Source(path, text), tree))


class EachRule(unittest.TestCase):
    def test_every_rule_has_planted_and_clean_samples(self):
        self.assertEqual(set(RULES), set(PLANTED))
        self.assertEqual(set(RULES), set(CLEAN))

    def test_finds_what_is_planted_where_it_is_planted(self):
        for rule, samples in PLANTED.items():
            for path, text, line in samples:
                with self.subTest(rule=rule, path=path, text=text[:60]):
                    self.assertEqual([line], [number for number, _ in found(rule, path, text)])

    def test_accepts_what_is_clean(self):
        for rule, samples in CLEAN.items():
            for path, text in samples:
                with self.subTest(rule=rule, path=path, text=text[:60]):
                    self.assertEqual([], found(rule, path, text))

    def test_reports_path_line_rule_and_text_in_order(self):
        tree = Tree({"api/base/x.cpp": "int r = std::rand();\nvolatile int f;\n"})
        self.assertEqual([("api/base/x.cpp", 1, "banned-call"), ("api/base/x.cpp", 2, "banned-call")],
                         [finding[:3] for finding in check(tree)])


class Exceptions(unittest.TestCase):
    LINE = "unused-declaration api/base/x.hpp tested: a reason\n"
    HEADER = "#pragma once\nint tested(int x);\n"

    def rules_found(self, listed, header=HEADER):
        tree = Tree({EXCEPTIONS: listed, "api/base/x.hpp": header})
        return [finding[2] for finding in check(tree)]

    def test_excuse_one_name_of_one_file_from_one_rule(self):
        self.assertEqual(["unused-declaration"], self.rules_found(""))
        self.assertEqual([], self.rules_found("# why\n" + self.LINE))
        self.assertEqual(["unused-declaration"],
                         self.rules_found(self.LINE, self.HEADER + "int other(int x);\n"))

    def test_are_found_when_they_excuse_nothing(self):
        self.assertEqual(["exceptions"], self.rules_found(self.LINE, "#pragma once\n"))

    def test_need_a_reason_and_a_rule_of_the_tree(self):
        for line in ("unused-declaration api/base/x.hpp tested:\n", "line-length api/base/x.hpp x: long\n"):
            with self.assertRaises(SystemExit):
                self.rules_found(line)

    def test_only_become_fewer(self):
        tree = read_tree(Path(__file__).resolve().parents[2])
        self.assertEqual((EXCEPTIONS_LEFT, FLOOR_EXCEPTIONS_LEFT),
                         (len(exceptions_of(tree)), len(tree.floors.excepted)), "write down what is left")


if __name__ == "__main__":
    unittest.main(verbosity=1)
