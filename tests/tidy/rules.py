"""The rules. Each takes one Source and the Tree, and yields (line, text). RULES at the end lists them all.

They are the executable part of CONTRIBUTING.md; which folder may include which is in deploy/floors.txt.
"""

import ast
import re
from pathlib import PurePosixPath

import floors
import standard_names
from source import CPP_ENDINGS
from tree_rules import TREE_RULES
from words import comment_beginning, old_word

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
SHOWN_WHOLE = {"README.md": "api/examples/all_reduce.c"}  # page -> the source that it shows
DOCUMENTED_PATH = r"(?:api|daemon|scheduler|transport|kernels|configs|tests|deploy)/[\w./-]+"
README_LINES_MAX = 80
LINE_CHARACTERS_MAX = 110
PUBLIC_LINE_CHARACTERS_MAX = 140

# Vendor headers and the only places that may include them. Leaves under tests/ may include any.
VENDORS = [
    ("CUDA", r"(cuda|cublas|cudnn|cufft|curand|nvrtc|nvml|nvtx3?/|cooperative_groups|cub/|thrust/)",
     r"^kernels/[^/]+/cuda/"),
    ("oneDNN or BLAS", r"(oneapi/dnnl|dnnl|cblas|openblas|f77blas)", r"^kernels/onednn/"),
    ("Highway", r"hwy/", r"^kernels/(?!.*/cuda/)"),
    # Nothing links these yet. Each gets a folder below transport/, and its pattern here, when it comes.
    ("NCCL", r"nccl", None),
    ("UCX", r"(ucp|ucs|uct|ucm)/", r"^transport/ucx/"),
    ("libfabric or verbs", r"(rdma|infiniband)/", r"^transport/ofi/"),
    ("Asio", r"asio(\.hpp|/)", r"^daemon/(control|supervisor)/"),
    ("yaml-cpp", r"yaml-cpp/", r"^daemon/config/"),
    ("CLI11", r"CLI/", r"^(daemon/cli/|daemon/(control/texts|supervisor/program)/main[^/]*$|api/examples/)"),
    ("nlohmann-json", r"nlohmann/", r"^(daemon|api/examples|api/base/checkpoint)/"),
    ("systemd", r"systemd/", r"^daemon/supervisor/"),
    ("OpenSSL", r"openssl/", r"^daemon/"),
]

# What takes a second and more to parse, and the headers of ours that may include it all the same: most of the
# build's time was once theirs. A source may include what VENDORS lets it.
HEAVY = [
    (r"nlohmann/json\.hpp",
     {"daemon/cli/outcome.hpp", "daemon/control/packet.hpp",
      "daemon/supervisor/jobs/state.hpp"},
     "declare with nlohmann/json_fwd.hpp"),
    (r"CLI/", set(), "declare CLI::App"),
    (r"asio(\.hpp|/)", set(), "hide it behind control::Loop"),
    (r"yaml-cpp/", set(), "hide it behind config::Node"),
    (r"hwy/", {"kernels/math/reduce_loops.hpp", "kernels/math/reduce_memory.hpp"}, "keep it in the source"),
    (r"(fmt/(chrono|ranges|ostream)\.h|iostream|regex)$", set(), "keep it in the source"),
]

# Pattern in code (comments and literals blanked), where it is allowed, and what to use instead.
CALLS = [
    (r"\b(system_clock|high_resolution_clock)\b", None, "it may jump or hide its origin; take a Clock"),
    (r"\bsem_timedwait\b", None, "it waits on wall time; use a futex or pidfd with a monotonic bound"),
    (r"\brandom_device\b", None, "chance is passed in; take a seed"),
    (r"(\bstd::s?rand\b|(?<![\w.>:])s?rand\s*\()", None, "chance is passed in; take a seeded engine"),
    (r"\b(strcpy|strcat|v?sprintf|gets|strncpy)\s*\(", None, "it checks no bound; use fmt or std::string"),
    (r"(?<!asm )(?<!__asm__ )\bvolatile\b", None, "it orders nothing; use an atomic"),
    (r"\busing\s+namespace\b", r"^(?!.*\.(hpp|h|cuh)$)", "a header opens no namespace for its includers"),
]

# Headers of words that two processes share, and of messages between them.
SHARED_LAYOUTS = r"^api/shm/(command|control|counters|direct|layout)\.hpp$"
_SHARED_TYPE = (r"(?:std::u?int(?:8|16|32|64)_t|std::byte|char|double|muster_(?:kernel|range|face)"
                r"|[A-Z]\w*(?:::[A-Z]\w*)?)")
_SHARED_MEMBER = re.compile(rf"(?:alignas\([\w:]+\) )?{_SHARED_TYPE} \w+(?:\[[^\]]+\])? ?(?:[={{,].*)?")

BANNED_STEMS = {"util", "utils", "utility", "utilities", "common", "misc", "helper", "helpers", "manager",
                "managers"}
BANNED_CLASS_ENDINGS = ("Manager", "Handler", "Impl", "Helper", "Util", "Utils")
CARD_WORDS = ("Owns", "Thread", "Bound", "Fails")
LEFTOVERS = r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK|TB" r"D)\b"
# Somebody's home, anywhere; and where no literal may hold an imagined path, a folder of no standard.
HOMES = r"(?<![\w.}/-])/(root|home/\w+|Users/\w+)/"
STANDARD_FOLDERS = "bin|boot|dev|etc|lib|lib64|media|mnt|opt|proc|run|sbin|srv|sys|tmp|usr|var"
NO_STANDARD_FOLDER = rf"(?:^|(?<=[\s\"'`=(:,]))/(?!(?:{STANDARD_FOLDERS})\b)[A-Za-z][\w.-]*/[\w.-]"
TOP_LEVEL = {"daemon", "scheduler", "transport", "kernels", "api", "configs", "tests", "deploy", ".ci"}
BACKEND_FOLDERS = ("kernels/", "tests/kernels/")
ABOVE_DEVICES = ("api/", "scheduler/", "daemon/")
CODE_FOLDERS = ("daemon/", "scheduler/", "transport/", "kernels/", "api/")


def _top(path):
    return path.split("/", 1)[0]


def include_direction(source, tree):
    for line, quote, name in source.includes():
        if quote == "<":
            if not name.startswith("muster/"):
                continue
            target = "api/include/" + name
        else:
            target = name
        if target not in tree.paths:
            if quote == '"':
                yield line, f'"{name}" is no file from the root; write the full path (packages stand in <>)'
            continue
        reason = tree.floors.refusal(source.path, target)
        if reason:
            yield line, f'"{name}": {reason}'


def floor_declared(source, tree):
    """Each entry of floors.txt is a folder or file of the tree; each exception there is still needed."""
    if source.path != floors.FILE:
        return
    for entry, place in tree.floors.places.items():
        start = entry.removesuffix("*") if entry.endswith("*") else entry + "/"
        if not any(path.startswith(start) for path in tree.paths):
            yield place.chain, f"{entry}: there is no such folder or file"
    for (file, folder), line in tree.floors.excepted.items():
        text = tree.files.get(file, "")
        targets = re.findall(r'^#include "([^"]+)"', text, re.MULTILINE)
        if not any(tree.floors.place_of(target) == tree.floors.places.get(folder) for target in targets):
            yield line, f"{file} includes nothing of {folder} any more: delete the exception"


def floor_table(source, tree):
    if source.path != floors.PAGE:
        return
    page = floors.with_table(source.text, tree.floors)
    if page is None:
        yield 1, f"the table of floors has lost its markers: {floors.BEGIN} and {floors.END}"
    elif page != source.text:
        line = source.text.split(floors.BEGIN)[0].count("\n") + 1
        yield line, "the table is not that of deploy/floors.txt: build the target write-floors"


def vendor_confinement(source, tree):
    if source.path.startswith("tests/"):
        return
    for line, _, name in source.includes():
        for vendor, pattern, allowed in VENDORS:
            if re.match(pattern, name) and not (allowed and re.match(allowed, source.path)):
                yield line, f"<{name}>: {vendor} headers are confined to {allowed or 'no folder yet'}"


def heavy_header(source, tree):
    """A header is parsed by all who include it."""
    if not source.path.endswith(".hpp") or source.path.startswith("tests/"):
        return
    for line, _, name in source.includes():
        for pattern, allowed, advice in HEAVY:
            if re.match(pattern, name) and source.path not in allowed:
                yield line, f"<{name}> is too much for a header: {advice}"


def standard_header(source, tree):
    """A header includes what declares the standard names that it uses; headers_test.py relies on it."""
    if source.path.endswith(".hpp"):
        for number, name, header in standard_names.missing(source):
            yield number, f"std::{name} needs #include <{header}>: a header stands alone"


def cuda_condition(source, tree):
    if not source.is_cpp or source.path.startswith(BACKEND_FOLDERS):
        return
    for number, line in enumerate(source.code.split("\n"), 1):
        if re.match(r"\s*#\s*(el)?if(n?def)?\b.*(CUDA|NCCL)", line):
            yield number, "a backend is chosen behind its seam: no conditional for CUDA here"


def device_kind(source, tree):
    """Above kernels and transport a device is what Device::Info says of it, whatever its kind."""
    if not source.is_cpp or not source.path.startswith(ABOVE_DEVICES):
        return
    for line, _, name in source.includes():
        if re.match(r"kernels/(.*/)?(host|cuda)/", name):
            yield line, f'"{name}": it is of one kind of device; use kernels/device'
    for number, line in enumerate(source.code.split("\n"), 1):
        match = re.search(r"\b(host|cuda)::|\bKind::k(Host|Cuda)\b", line)
        if match:
            yield number, f"{match.group(0)}: no kind of device above kernels and transport; ask Device::Info"


def header_guard(source, tree):
    # A header that Highway includes once per SIMD target has a guard that turns with the target.
    guard = r"^#pragma once$|^#if defined\(MUSTER_\w+\) == defined\(HWY_TARGET_TOGGLE\)$"
    if source.path.endswith((".hpp", ".cuh")) and not re.search(guard, source.text, re.MULTILINE):
        yield 1, "a C++ header starts with #pragma once"


def test_includes_its_header_first(source, tree):
    if not (source.path.startswith("tests/") and source.path.endswith("_test.cpp")):
        return
    includes = list(source.includes())
    ours = [quote == '"' or name.startswith("muster/") for _, quote, name in includes]
    if any(ours) and not ours[0]:
        yield includes[0][0], "the header under test comes first, so that it is seen to stand by itself"


def file_length(source, tree):
    if len(source.lines) > FILE_LINES_MAX and _is_code(source.path):
        count = len(source.lines)
        yield count, f"{count} lines; at most {FILE_LINES_MAX}: what second thing lives here?"


def line_length(source, tree):
    if not _is_code(source.path):
        return
    bound = PUBLIC_LINE_CHARACTERS_MAX if source.path.startswith("api/include/") else LINE_CHARACTERS_MAX
    for number, line in enumerate(source.lines, 1):
        if len(line) > bound:
            yield number, f"{len(line)} characters; at most {bound}"


def function_length(source, tree):
    for scope in source.scopes:
        length = scope.close_line - scope.head_line + 1
        if scope.kind == "function" and length > FUNCTION_LINES_MAX:
            yield scope.head_line, f"{scope.name} has {length} lines; at most {FUNCTION_LINES_MAX}"
    if source.path.endswith(".py"):
        for node in ast.walk(ast.parse(source.text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = node.end_lineno - node.lineno + 1
                if length > FUNCTION_LINES_MAX:
                    yield node.lineno, f"{node.name} has {length} lines; at most {FUNCTION_LINES_MAX}"


def class_card(source, tree):
    """A class with hidden state or virtual functions says what it owns, its thread, bound and failures."""
    if not source.path.endswith(".hpp") or source.path.startswith("tests/"):
        return
    needing = [s for s in source.scopes if s.kind == "class" and s.depth == 0 and
               re.search(r"\b(private|protected)\s*:|\bvirtual\b", s.body)]
    for scope in needing:
        card = _comment_above(source, scope.head_line)
        if len(needing) == 1:  # then the header's opening comment may be the card
            card += _comment_above(source, _first_code_line(source))
        missing = [word for word in CARD_WORDS if not re.search(rf"\b{word}\b", card)]
        if missing:
            yield scope.head_line, f"{scope.name} lacks {', '.join(missing)} in the card above it"


def shared_member(source, tree):
    """What two processes share means the same in both, whatever bytes the other one writes."""
    if not re.match(SHARED_LAYOUTS, source.path):
        return
    for number, line in enumerate(source.code.split("\n"), 1):
        if re.search(r"\benum\s+class\s+\w+\s*\{", line):
            yield number, "an enum of shared bytes names its type"
    for scope in source.scopes:
        if scope.kind != "class" or re.search(r"\benum\b", source.lines[scope.head_line - 1]):
            continue
        for member in (re.sub(r"\s+", " ", part).strip() for part in scope.body.split(";")):
            if member and not member.startswith("enum ") and not _SHARED_MEMBER.fullmatch(member):
                yield scope.head_line, (f"{scope.name}: `{member}` is no integer of fixed size, char, byte, "
                                        "or struct of those: the other side could forge it")


def _comment_above(source, line):
    text = []
    while line - 1 in source.comments and source.code.split("\n")[line - 2].strip() == "":
        line -= 1
        text.append(source.comments[line])
    return "\n".join(text)


def _first_code_line(source):
    return next((n for n, line in enumerate(source.code.split("\n"), 1) if line.strip()), 1)


def banned_name(source, tree):
    for part in PurePosixPath(source.path).parts:
        for word in re.split(r"[_.\-]", part.lower()):
            if word in BANNED_STEMS:
                yield 1, f"'{part}': a thing named {word} is not understood yet; say what it holds"
    if source.is_cpp:
        for number, line in enumerate(source.code.split("\n"), 1):
            for name in re.findall(r"\b(?:class|struct)\s+(?:\[\[.*?\]\]\s*)?(\w+)", line):
                if name.endswith(BANNED_CLASS_ENDINGS):
                    yield number, f"{name}: say what it holds"


def banned_call(source, tree):
    if not source.is_cpp:
        return
    for number, line in enumerate(source.code.split("\n"), 1):
        for pattern, allowed, advice in CALLS:
            match = re.search(pattern, line)
            if match and not (allowed and re.match(allowed, source.path)):
                yield number, f"{match.group(0).strip()}: {advice}"


def leftover(source, tree):
    for number, line in enumerate(source.lines, 1):
        match = re.search(LEFTOVERS, line)
        if match:
            yield number, f"{match.group(0)}: finish it, or make it a clear error"


def machine_path(source, tree):
    with_literals = source.is_cpp or source.path.endswith(".py")
    for number, line in enumerate(source.lines, 1):
        match = re.search(HOMES, line)
        if not match:
            match = re.search(NO_STANDARD_FOLDER, source.comments.get(number, "") if with_literals else line)
        if match:
            yield number, f"{match.group(0)}: the path of one machine"


def file_globbing(source, tree):
    if source.path.endswith((".cmake", "CMakeLists.txt")):
        for number, line in enumerate(source.lines, 1):
            if re.search(r"^[^#]*\b(GLOB|GLOB_RECURSE|aux_source_directory)\b", line):
                yield number, "sources are written out: a globbed list hides what is built"


def commented_out_test(source, tree):
    if source.is_cpp:
        for number, comment in source.comments.items():
            if re.search(r"(^\s*|//\s*|\*\s*)(TYPED_)?TEST(_F|_P)?\s*\(\s*\w+\s*,", comment):
                yield number, "a commented-out test looks like coverage: delete it or mend it"
        for number, line in enumerate(source.code.split("\n"), 1):
            if re.search(r"^\s*#\s*if\s+0\b|\bDISABLED_\w", line):
                yield number, "a disabled test or branch looks like code: delete it or mend it"
    elif source.path.startswith("tests/") and source.path.endswith("CMakeLists.txt"):
        for number, line in enumerate(source.lines, 1):
            if re.search(r"#\s*(muster_test|add_test|add_subdirectory)\s*\(", line):
                yield number, "a commented-out test looks like coverage: delete it or mend it"


def folder_readme(source, tree):
    """Asked of the file that makes a folder one of ours: a CMakeLists.txt that says something."""
    path = PurePosixPath(source.path)
    folder = str(path.parent)
    if path.name == "README.md" and folder != "." and len(source.lines) > README_LINES_MAX:
        yield len(source.lines), f"{len(source.lines)} lines; a folder's README is a page: {README_LINES_MAX}"
    if path.name != "CMakeLists.txt" or folder == "." or not source.text.strip():
        return
    if source.path.startswith(CODE_FOLDERS) or folder == "tests":
        if f"{folder}/README.md" not in tree.paths:
            yield 1, f"{folder}/ has no README.md (purpose, floor, owner, threads)"


def top_level(source, tree):
    if "/" in source.path and _top(source.path) not in TOP_LEVEL:
        yield 1, f"{_top(source.path)}/ is no folder of this project's top level"


def documented_path(source, tree):
    """A page names files and folders that exist; in a table's cell, the functions behind a file are in it."""
    if not source.path.endswith(".md"):
        return
    for number, line in enumerate(source.lines, 1):
        table = line.startswith("|")
        for cell in line.split("|") if table else [line]:
            file = None
            for word in re.findall(r"`([^`]+)`", cell):
                path = word.rstrip("/")
                beside = str(PurePosixPath(file).parent / word) if file else ""
                if re.fullmatch(DOCUMENTED_PATH, word):
                    file = path if path in tree.paths else None
                    if not file and not any(other.startswith(path + "/") for other in tree.paths):
                        yield number, f"{word}: there is no such file or folder"
                elif beside in tree.paths:
                    file = beside
                elif table and file and re.fullmatch(r"[\w:]+", word):
                    if not re.search(rf"\b{word.split('::')[-1]}\b", tree.files[file]):
                        yield number, f"{file} has no {word}"


def shown_source(source, tree):
    """What a page shows of a source is the source."""
    shown = SHOWN_WHOLE.get(source.path)
    if shown and f"\n```c\n{tree.files.get(shown)}```\n" not in source.text:
        number = next((n for n, line in enumerate(source.lines, 1) if line == "```c"), 1)
        yield number, f"does not show {shown} as it is: copy the file into a block that begins with ```c"


def _is_code(path):
    return path.endswith(CPP_ENDINGS + (".py", ".sh", ".cmake", "CMakeLists.txt", "Makefile"))


RULES = {rule.__name__.replace("_", "-"): rule for rule in (
    include_direction, floor_declared, floor_table, vendor_confinement, heavy_header, standard_header,
    cuda_condition, device_kind, header_guard, test_includes_its_header_first, file_length, line_length,
    function_length, class_card, shared_member, banned_name, banned_call, leftover, machine_path,
    file_globbing, commented_out_test, folder_readme, top_level, documented_path, shown_source,
    old_word, comment_beginning,
    *TREE_RULES)}
