"""The pages that users come from, and the commands on them. CARREL_PAGES names a folder with the pages themselves (their file names begin with
their numbers); without it, short ones with the same commands are read."""
import os
import pathlib
import re

FOLDER = pathlib.Path(os.environ.get("CARREL_PAGES") or pathlib.Path(__file__).with_name("pages"))
COMMAND = re.compile(r"(go version|(make|python3|docker|kind) --version|kubectl |docker |kind |export |git clone |cd )")


def text(number):
    return next(FOLDER.glob(f"{number}_*")).read_text()


def between(number, begin, end):
    """The part of a page from one line to another."""
    page = text(number)
    start = page.index(begin)
    return page[start:page.index(end, start + len(begin))]


def commands(part):
    """The lines of a part that are commands, without what the page says beside them."""
    return [line.split(" # ")[0].strip() for line in part.splitlines() if COMMAND.match(line)]


def blocks(number, language):
    """The fenced blocks of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", text(number), re.M | re.S)
