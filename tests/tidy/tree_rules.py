"""Rules of which one file alone says nothing: what is declared, defined and used where in the whole tree.

The text of each finding begins with the name that it is about, by which exceptions.txt excuses it.
"""

import re
from collections import defaultdict
from functools import lru_cache
from pathlib import PurePosixPath

from source import CPP_ENDINGS

CLASS_FUNCTIONS_MAX = 30
CLASS_FUNCTIONS_MANY = 25  # from here on tidy warns: the next function may be that of another class
# Examples are programs of their own, on the public headers: their names meet no others.
PRODUCT = re.compile(r"^(api/(?!examples/)|kernels/|transport/|scheduler/|daemon/)")
USERS = re.compile(r"^(configs|deploy)/")  # programs that are built with the product, and use it
PUBLIC = "api/include/"
_TYPE = r"(?:class|struct|union|enum(?:\s+class|\s+struct)?)"


@lru_cache(maxsize=2)
def product_of(tree):
    return _cpp_of(tree, PRODUCT)


def _cpp_of(tree, pattern):
    return [tree.source(path) for path in sorted(tree.paths)
            if pattern.match(path) and path.endswith(CPP_ENDINGS)]


def unit_of(path):
    """A header and its source are one."""
    return path.rsplit(".", 1)[0]


# --- classes


@lru_cache(maxsize=2)
def _sources_of_classes(tree):
    """(namespace, class) -> {source: first line} of the sources that define member functions of it."""
    found = defaultdict(dict)
    for source in product_of(tree):
        if source.is_header:
            continue
        for scope in source.scopes:
            if scope.kind == "function" and scope.owner and scope.depth == 0:
                key = scope.namespace.removesuffix("::"), scope.owner
                found[key].setdefault(source.path, scope.head_line)
    return found


def class_in_one_source(source, tree):
    """A class is implemented in one source file; small functions may stand in its header."""
    if not (source.is_header and PRODUCT.match(source.path)):
        return
    for scope in source.scopes:
        if scope.kind != "class":
            continue
        name = f"{scope.owner}::{scope.name}" if scope.owner else scope.name
        where = _sources_of_classes(tree).get((scope.namespace.removesuffix("::"), name), {})
        if len(where) > 1:
            files = ", ".join(PurePosixPath(path).name for path in sorted(where))
            yield scope.head_line, f"{name} is implemented in {len(where)} sources: {files}"


def class_functions(source, tree):
    """A class has at most 30 functions, in a header or a source, so that a reader can keep it in mind.

    Each function that its body names counts once, an overload and a private one too. Constructors,
    destructors, operators, what is defaulted or deleted, friends and the functions of a class inside do not
    count: they say what kind of type it is, not what it does. A struct of options has none of those that do.
    """
    for line, name, count in classes_of(source, CLASS_FUNCTIONS_MAX + 1):
        yield line, f"{name} has {count} functions; at most {CLASS_FUNCTIONS_MAX}"


def large_classes(tree):
    """(path, line, name, functions) of the classes that are nearly too large, the largest first."""
    found = [(source.path, *each) for source in product_of(tree)
             for each in classes_of(source, CLASS_FUNCTIONS_MANY)]
    return sorted(found, key=lambda each: (-each[3], each[0]))


def classes_of(source, least):
    """(line, name, functions) of the product's classes with at least so many functions."""
    if not PRODUCT.match(source.path):
        return
    for scope in source.scopes:
        if scope.kind == "class":
            count = len(list(functions_of(scope)))
            if count >= least:
                yield scope.head_line, scope.name, count


def functions_of(scope):
    """Names of the functions that a class declares, without what every type has."""
    for part in scope.body.split(";"):
        part = re.sub(r"\b(?:public|private|protected)\s*:", " ", part)
        part = re.sub(r"\[\[.*?\]\]|\balignas\s*\([^()]*\)", " ", part, flags=re.DOTALL)
        name = _function_name(part)
        if name and name.lstrip("~") != scope.name:
            yield name


def _function_name(text):
    """The function that a declaration declares; None for operators, defaults, friends and all else."""
    if re.search(r"\b(operator|friend|using|typedef|static_assert)\b|=\s*(default|delete)\s*$", text):
        return None
    text = re.sub(r"\b(?:template|requires|decltype|noexcept|explicit)\s*[(<][^;]*?[)>](?=\s)", " ", text)
    while "<" in text and (shorter := re.sub(r"<[^<>]*>", " ", text)) != text:
        text = shorter
    match = re.search(r"(~?\w+)\s*\(", text)
    if not match or "=" in text[:match.start()] or not re.search(r"\w[\s*&]+$|^\s*$", text[:match.start()]):
        return None
    return match.group(1)


# --- types


@lru_cache(maxsize=2)
def _types(tree):
    """Name -> [(path, line)] of the types that are defined at namespace scope, each file once."""
    found, aliases = defaultdict(dict), defaultdict(set)
    for source in product_of(tree):
        if source.path.startswith(PUBLIC):
            continue
        for name, line, alias_of in types_of(source):
            found[name].setdefault(source.path, line)
            aliases[name].add(alias_of)
    one_alias = {name for name, of in aliases.items() if len(of) == 1 and None not in of}
    return {name: sorted(where.items()) for name, where in found.items() if name not in one_alias}


def types_of(source):
    """(name, line, what it is another name of, if it is) of the types defined at namespace scope."""
    code = source.code.split("\n")
    for scope in source.scopes:
        if scope.kind != "class" or scope.depth or not scope.name:
            continue
        head = " ".join(code[scope.head_line - 1:scope.open_line])
        # A specialisation, or a nested class that is defined outside: no new name.
        if not re.search(rf"\b{scope.name}\s*<|::\s*{scope.name}\b", head.split("{")[0]):
            yield scope.name, scope.head_line, None
    for statement in source.statements:
        match = re.match(r"(?:template\s*<.*>\s*)?using\s+(\w+)\s*=\s*(.*)", statement.text, re.DOTALL)
        if match and not statement.owner and not re.search(rf"\b{match[1]}\b", match[2]):
            yield match[1], statement.line, re.sub(r"\s+", " ", match[2])


def type_defined_once(source, tree):
    """A type's name at namespace scope means one thing in the product, in whatever namespace it stands.

    Two anonymous namespaces count too: a reader, and a search, know no difference. Types inside a class or a
    function are free, and so is one alias of one type that several files write down.
    """
    if not PRODUCT.match(source.path):
        return
    for name, line, _ in types_of(source):
        where = _types(tree).get(name, [])
        if len(where) > 1 and where[0][0] == source.path:
            others = ", ".join(f"{path}:{other}" for path, other in where[1:])
            yield line, f"{name} is also defined in {others}"


# --- includes


@lru_cache(maxsize=2)
def _circles(tree):
    """Units that include each other round in a circle: first path -> the units, sorted."""
    edges = defaultdict(set)
    for source in product_of(tree):
        for _, quote, name in source.includes():
            if quote == '"' and unit_of(name) != unit_of(source.path) and name in tree.paths:
                edges[unit_of(source.path)].add(unit_of(name))
    reach = {unit: _reached(unit, edges) for unit in list(edges)}
    circles = {}
    for unit in sorted(edges):
        members = tuple(sorted(other for other in reach[unit] if unit in reach.get(other, ())))
        if members and members[0] == unit:
            circles[unit] = members
    return circles


def _reached(unit, edges):
    seen, pending = set(), [unit]
    while pending:
        for after in edges.get(pending.pop(), ()):
            if after not in seen:
                seen.add(after)
                pending.append(after)
    return seen


def include_circle(source, tree):
    """No include goes round, a header and its source counted as one."""
    members = _circles(tree).get(unit_of(source.path))
    if not members:
        return
    lines = [line for line, _, name in source.includes()
             if unit_of(name) in members and unit_of(name) != members[0]]
    sources = [path for path in sorted(tree.paths) if unit_of(path) == members[0]]
    inside = [path for path in sources if any(
        unit_of(name) in members[1:] for _, _, name in tree.source(path).includes())]
    if inside and inside[0] == source.path:
        names = ", ".join(PurePosixPath(member).name for member in members[1:])
        yield lines[0], f"{PurePosixPath(members[0]).name} includes {names} and they include it"


# --- declarations


_WORD = re.compile(r"[A-Za-z_]\w*")
# Macros, and what the standard's templates and range-for look for by name.
_CALLED_BY_NAME = re.compile(r"[A-Z][A-Z0-9_]+|(?:const_)?iterator|value_type|begin|end")


@lru_cache(maxsize=2)
def _words(tree):
    """Word -> how often the product's code has it, without the places that declare or define it."""
    count = defaultdict(int)
    for source in _cpp_of(tree, USERS):
        for word in _WORD.findall(source.code):
            count[word] += 1
    for source in product_of(tree):
        for word in _WORD.findall(source.code):
            count[word] += 1
        for name, _ in declarations_of(source):
            count[name] -= 1
        for scope in source.scopes:
            if _is_definition(scope) and not _is_free(source, scope):
                count[scope.name.lstrip("~")] -= 1
    return count


def _is_definition(scope):
    """Outside its class; one with its body inside is a declaration already."""
    return scope.kind == "function" and not scope.depth and re.fullmatch(r"~?\w+", scope.name) \
        and scope.name != "lambda"


def _is_free(source, scope):
    return source.is_header and not scope.owner


def declarations_of(source):
    """(name, line) of the types, constants and functions that a file declares outside function bodies."""
    code = source.code.split("\n")
    for scope in source.scopes:
        if scope.kind == "class" and scope.name:
            if not re.search(r"\}\s*\w", code[scope.close_line - 1]):  # else: struct A {} a;
                yield scope.name, scope.head_line
            yield from ((name, scope.head_line) for name in functions_of(scope))
        elif _is_definition(scope) and _is_free(source, scope):
            yield scope.name, scope.head_line
    for statement in source.statements:
        text = statement.text
        if match := re.match(rf"(?:{_TYPE}|using)\s+(?:\[\[.*?\]\]\s*)?(\w+)\s*(?:=|:|$)", text):
            yield match[1], statement.line
        elif statement.owner:
            continue  # members are those of their class
        elif match := re.search(r"\b(k[A-Z]\w*)\s*(?:\[[^\]]*\]\s*)?(?:=|\{|$)", text):
            if re.search(r"\bconst(?:expr|init)?\b", text[:match.start()]):
                yield match[1], statement.line
        elif name := _function_name(text):
            yield name, statement.line


def unused_declaration(source, tree):
    """What a header of the product declares, the product uses: tests alone are no reason to keep it.

    By name over the whole tree, so two of one name hide each other: what is found is unused, not all that is
    unused is found. The public API is used by others; what overrides is used through its base.
    """
    if not (source.is_header and PRODUCT.match(source.path)) or source.path.startswith(PUBLIC):
        return
    told = set()
    for name, line in declarations_of(source):
        if name not in told and _words(tree)[name] <= 0 and not _CALLED_BY_NAME.fullmatch(name):
            told.add(name)
            line = _line_of(source, name, line)
            if not re.search(r"\boverride\b", source.code.split("\n")[line - 1]):
                yield line, f"{name} is used by no code of the product"


def _line_of(source, name, line):
    """Of a member: the first line behind the class's head that has the name."""
    for number, text in enumerate(source.code.split("\n")[line - 1:], line):
        if re.search(rf"\b{name}\b", text):
            return number
    return line


TREE_RULES = (class_in_one_source, class_functions, type_defined_once, include_circle, unused_declaration)
