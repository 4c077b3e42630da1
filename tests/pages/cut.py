"""Pages as they are, and what is cut out of them."""
import os
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent


def folder():
    """The folder with the pages; without CARREL_PAGES, short ones of our own."""
    return pathlib.Path(os.environ.get("CARREL_PAGES") or HERE)


def page(name):
    """The page whose file begins with this name; None if it is not there."""
    found = sorted(folder().glob(f"{name}*"))
    return found[0] if found else None


def lines(name, first, last, begins=None):
    """Lines of a page, the first one is 1. What they begin with is checked: a page that has changed must not be cut in the wrong places."""
    text = page(name).read_text().splitlines()[first - 1:last]
    if begins is not None and not text[0].strip().startswith(begins):
        raise AssertionError(f"{name}, line {first}: {text[0]!r} does not begin with {begins!r}; the table of blocks does not fit this page")
    return "\n".join(text) + "\n"


def renamed(code):
    """The one repair that every block of Python needs: the package is called carrel."""
    return re.sub(r"^(\s*from )src\.", r"\1carrel.", code, flags=re.M)
