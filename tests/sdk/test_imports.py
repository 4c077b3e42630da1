"""Which part of the package may know which: the parts below never import those above, not even when a function runs."""
import ast

from support import SDK

PACKAGE = SDK / "carrel"
# From the bottom up. "" is what lies in the package itself: boxes, commands, files, and what all share.
LAYERS = ["", "pybox", "workspace", "environment", "execution", "harness", "integrations"]


def imported(path):
    """(line, names of the package's modules) of every import but those for type checkers alone."""
    tree = ast.parse(path.read_text())
    skipped = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
               for inner in ast.walk(node)}
    inside = path.relative_to(PACKAGE).parts[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level and id(node) not in skipped:
            base = inside[:len(inside) - node.level + 1]
            for name in ([node.module] if node.module else [n.name for n in node.names]):
                yield node.lineno, (*base, *name.split("."))


def part_of(names):
    return names[0] if names and names[0] in LAYERS else ""


def test_no_part_of_the_package_imports_one_above_it():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        own = part_of(path.relative_to(PACKAGE).parts[:-1])
        for line, names in imported(path):
            if LAYERS.index(part_of(names)) > LAYERS.index(own):
                wrong.append(f"{path.relative_to(SDK)}:{line} imports {'.'.join(names)}")
    assert not wrong, "\n".join(wrong)


def test_only_integrations_and_pybox_stand_beside_the_others():
    """What agents use does not need the kernels of pppybox's interface."""
    users = {own for path in PACKAGE.rglob("*.py") for own in [part_of(path.relative_to(PACKAGE).parts[:-1])]
             for _, names in imported(path) if part_of(names) == "pybox" and own != "pybox"}
    assert users == set(), users
