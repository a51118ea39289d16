"""One file of the tree, split into what the rules look at: code, comments, includes, scopes."""

import re
from dataclasses import dataclass, field

CPP_ENDINGS = (".hpp", ".cpp", ".h", ".c", ".cu", ".cuh")
HEADER_ENDINGS = (".hpp", ".h", ".cuh")


@dataclass
class Scope:
    """A brace pair outside any function: a namespace, a class or a whole function."""

    kind: str  # "namespace", "class", "function", "initialiser"
    name: str
    head_line: int  # first line of what stands before the brace
    open_line: int
    close_line: int = 0
    depth: int = 0  # classes around it
    namespace: str = ""  # "muster::cli"; a file's own has no name: "muster::cli::"
    owner: str = ""  # of a class the classes around it, of a function the class of its body: "Pool::State"
    body: str = ""  # code of a class without its nested functions' bodies


@dataclass
class Statement:
    """A declaration that ends in a semicolon, outside any function."""

    text: str
    line: int
    namespace: str
    owner: str  # as Scope's


@dataclass
class Source:
    path: str
    text: str
    code: str = ""  # comments and the insides of literals are blanks; line structure kept
    comments: dict = field(default_factory=dict)  # line -> comment text on it
    scopes: list = field(default_factory=list)
    statements: list = field(default_factory=list)  # what ends in a semicolon, outside functions

    def __post_init__(self):
        self.lines = self.text.split("\n")
        if self.lines and self.lines[-1] == "":
            self.lines.pop()
        if self.is_cpp:
            self.code, self.comments = blank_comments_and_literals(self.text)
            self.scopes, self.statements = find_scopes(self.code)

    @property
    def is_cpp(self):
        return self.path.endswith(CPP_ENDINGS)

    @property
    def is_header(self):
        return self.path.endswith(HEADER_ENDINGS)

    def includes(self):
        """Yields (line, quote, name) for each include; quote is '"' or '<'."""
        if not self.is_cpp:
            return
        code_lines = self.code.split("\n")
        for number, line in enumerate(self.lines, 1):
            if not re.match(r"\s*#\s*include\b", code_lines[number - 1]):
                continue
            match = re.match(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', line)
            if match:
                yield number, '"' if match.group(1) else "<", match.group(1) or match.group(2)


_TOKEN = re.compile(
    r"""(?P<line_comment>//(?:\\\n|[^\n])*)
      | (?P<block_comment>/\*.*?(?:\*/|\Z))
      | (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")
      | (?P<string>"(?:\\.|[^"\\\n])*"?)
      | (?P<number>(?<![\w])\d(?:'?[\w.])*)
      | (?P<char>'(?:\\.|[^'\\\n])*'?)""",
    re.DOTALL | re.VERBOSE,
)


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def blank_comments_and_literals(text):
    """The text with comments and the insides of literals blanked, and the comment text by line."""
    out, comments, at = [], {}, 0
    for match in _TOKEN.finditer(text):
        out.append(text[at:match.start()])
        at = match.end()
        token = match.group(0)
        if match.lastgroup in ("line_comment", "block_comment"):
            first = text.count("\n", 0, match.start()) + 1
            for offset, part in enumerate(token.split("\n")):
                comments[first + offset] = comments.get(first + offset, "") + part
            out.append(_blank(token))
        elif match.lastgroup in ("string", "char"):
            closed = len(token) > 1 and token[-1] == token[0]
            out.append(token[0] + _blank(token[1:-1]) + token[-1] if closed else _blank(token))
        elif match.group("raw") is not None:
            out.append('"' + _blank(token[1:-1]) + '"')
        else:
            out.append(token)
    out.append(text[at:])
    return "".join(out), comments


def _blank_directives(code):
    """Directives vanish. Of an #if whose branches do not balance their braces, only the first stays."""
    lines = code.split("\n")
    kept, groups, continued = [], [], False
    branch_of = [()] * len(lines)
    for i, line in enumerate(lines):
        directive = re.match(r"\s*#\s*(\w+)", line)
        if continued or directive:
            word = None if continued else directive.group(1)
            if word in ("if", "ifdef", "ifndef"):
                groups.append([i, 0])
            elif word in ("else", "elif") and groups:
                groups[-1][1] += 1
            elif word == "endif" and groups:
                groups.pop()
            continued = line.rstrip().endswith("\\")
            kept.append("")
        else:
            kept.append(line)
        branch_of[i] = tuple((group, branch) for group, branch in groups)
    balance = {}
    for i, line in enumerate(kept):
        for key in branch_of[i]:
            balance[key] = balance.get(key, 0) + line.count("{") - line.count("}")
    torn = {group for (group, _), value in balance.items() if value != 0}
    return "\n".join(
        "" if any(group in torn and branch > 0 for group, branch in branch_of[i]) else line
        for i, line in enumerate(kept)
    )


def _without_templates(head):
    """Drops `template<…>` prefixes, whose `class` is no class."""
    while True:
        match = re.search(r"\btemplate\s*<", head)
        if not match:
            return head
        depth, at = 1, match.end()
        while at < len(head) and depth:
            depth += {"<": 1, ">": -1}.get(head[at], 0)
            at += 1
        head = head[:match.start()] + " " + head[at:]


def _without_attributes(head):
    head = re.sub(r"\[\[.*?\]\]", " ", head, flags=re.DOTALL)
    return re.sub(
        r"\b(alignas|__attribute__|__launch_bounds__|requires)\s*\((?:[^()]|\([^()]*\))*\)", " ", head)


_CLASS = re.compile(
    r"^(?:(?:typedef|static|const|constexpr|inline|friend)\s+)*(?:class|struct|union|enum)\b([^()]*)$")
_LAMBDA = re.compile(r"\]\s*(?:<[^>]*>\s*)?(?:\([^{}]*\))?\s*(?:mutable|constexpr|noexcept|->[^{}]*|\s)*$")
_AFTER_PARAMETERS = re.compile(
    r"^(?:\s|(?:const|noexcept|override|final|mutable|try|[A-Z_]+)\b|&|->[^=;]*|requires\b.*)*$",
    re.DOTALL)


def _classify(head, paren_depth):
    """(kind, name) of the scope that a brace after `head` opens."""
    if paren_depth > 0:
        return ("function", "lambda") if _LAMBDA.search(head) else ("initialiser", "")
    head = _without_templates(head)
    head = re.sub(r"^\s*(?:(?:public|private|protected)\s*:\s*)+", "", head)
    plain = _without_attributes(head).strip()
    if re.match(r"(?:inline\s+)?namespace\b", plain) or re.match(r'extern\s*"', plain):
        return "namespace", re.sub(r"^(?:inline\s+)?namespace\b\s*|^extern.*", "", plain)
    match = _CLASS.match(plain)
    if match and not re.search(r"=", match.group(1).split(":")[0]):
        words = re.findall(r"\w+", re.split(r"(?<!:):(?!:)", match.group(1))[0])
        names = [w for w in words if w not in ("class", "struct", "final")]
        return "class", names[-1] if names else ""
    if _LAMBDA.search(head) and "(" in head and "operator[]" not in head:
        return "function", "lambda"
    return _classify_callable(plain)


def _classify_callable(head):
    is_operator = re.search(r"\boperator\b", head) is not None
    outside = re.sub(r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", "()", head)
    if "()" not in outside or (not is_operator and re.search(r"(?<![=!<>])=(?!=)", outside)):
        return "initialiser", ""
    name = re.search(r"([\w~]+|operator\s*\S+)\s*\(\)", outside)
    name = name.group(1) if name else "?"
    constructor = re.search(r"\)\s*(?:noexcept\s*(?:\(\))?\s*)?:(?!:)", outside)
    if constructor:  # member initialisers: `a_{1}` opens no body, `)` or `}` before the brace does
        return ("function", name) if outside.rstrip()[-1] in ")}" else ("initialiser", "")
    tail = outside[outside.rindex("()") + 2:]
    if _AFTER_PARAMETERS.match(tail) or "->" in tail:
        return "function", name
    return "initialiser", ""


def _owner_of(head, name):
    """The class in front of a function's name: `Pool::State` of `void Pool::State::run()`."""
    match = re.search(rf"((?:\w+\s*(?:<[^<>()]*>)?\s*::\s*)+){re.escape(name)}\s*\(", head)
    return re.sub(r"<[^<>]*>|\s", "", match.group(1)).removesuffix("::") if match else ""


class _Scanner:
    """Walks code once; one stack entry per open brace outside functions."""

    def __init__(self, code):
        self.code, self.found, self.statements, self.stack = code, [], [], []
        self.head, self.head_line, self.parens, self.line = "", 0, 0, 1

    def reset(self):
        self.head, self.head_line, self.parens = "", 0, 0

    def skip_function(self, at):
        depth = 1
        while at < len(self.code) and depth:
            character = self.code[at]
            depth += {"{": 1, "}": -1}.get(character, 0)
            self.line += character == "\n"
            at += 1
        return at

    def place(self):
        """The namespace and the classes around what comes next."""
        scopes = [scope for scope, _ in self.stack]
        return tuple("::".join(scope.name for scope in scopes if scope.kind == kind)
                     for kind in ("namespace", "class"))

    def open(self, at):
        kind, name = _classify(self.head, self.parens)
        scope = Scope(kind, name, self.head_line or self.line, self.line)
        scope.depth = sum(1 for outer, _ in self.stack if outer.kind == "class")
        scope.namespace, scope.owner = self.place()
        if kind == "function" and not scope.owner:
            scope.owner = _owner_of(self.head, name)
        self.note_member(self.head)
        if kind == "function":
            at = self.skip_function(at)
            scope.close_line = self.line
            self.found.append(scope)
            if name == "lambda":
                self.head += "{}"
            else:
                self.reset()
            return at
        self.stack.append((scope, (self.head, self.head_line, self.parens)))
        if kind == "class":
            self.found.append(scope)
        self.reset()
        return at

    def close(self):
        if not self.stack:
            return self.reset()
        scope, before = self.stack.pop()
        scope.close_line = self.line
        if scope.kind == "initialiser":
            self.head, self.head_line, self.parens = before
            self.head += "{}"
        else:
            if scope.kind == "class":
                scope.body += " " + self.head
            self.reset()

    def note_member(self, text):
        if self.stack and self.stack[-1][0].kind == "class":
            self.stack[-1][0].body += " " + text + ";"

    def run(self):
        at = 0
        while at < len(self.code):
            character = self.code[at]
            at += 1
            if character == "\n":
                self.line += 1
            if character == "{":
                at = self.open(at)
            elif character == "}":
                self.close()
            elif character == ";" and self.parens == 0:
                self.note_member(self.head)
                if not any(scope.kind == "initialiser" for scope, _ in self.stack):
                    self.statements.append(
                        Statement(self.head.strip(), self.head_line or self.line, *self.place()))
                self.reset()
            else:
                self.parens += {"(": 1, ")": -1}.get(character, 0)
                self.head += character
                if not self.head_line and not character.isspace():
                    self.head_line = self.line
        return self.found, self.statements


def find_scopes(code):
    """Classes and functions (lambdas at namespace scope included) with their lines, and statements."""
    return _Scanner(_blank_directives(code)).run()
