"""Shortcuts where ipykernel and IPython do work twice, or for nothing, at every cell. The results are the same; tests compare them.

- The kernel transforms a cell to see whether it is asynchronous, then the shell transforms it to run it: now once.
- The kernel asks for the signature of the same method at each cell: now it remembers.
- A result is offered to a dozen formatters in turn. Numbers, text and containers of Python itself have no _repr_html_ and the like;
unless a printer is registered for them, only text/plain has a result; and that is the repr of a number or a text.
- A cell is taken apart into tokens, in Python, to find what is not Python. In many there is no character that could begin such a thing.
- The JSON encoder is made again for each object.

In a forked kernel each function that is called, and its code, are pages to copy: what is left out here is left out of the first cell."""

import functools
import re

from IPython.core import formatters, inputtransformer2
from IPython.core.autocall import IPyAutocall
from IPython.core.macro import Macro
from IPython.lib import pretty
from ipykernel import ipkernel

PLAIN = frozenset((int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, range))
SAID_BY_REPR = frozenset((int, str, bytes))


class QuickFormatter(formatters.DisplayFormatter):
    def format(self, obj, include=None, exclude=None):
        kind = type(obj)
        if kind not in PLAIN or include or exclude or self._has_printer(kind):
            return super().format(obj, include=include, exclude=exclude)
        formatter = self.formatters["text/plain"]
        if kind in SAID_BY_REPR and type(formatter) is formatters.PlainTextFormatter:
            values = formatter._trait_values
            if values.get("type_printers", {}).get(kind) is pretty._repr_pprint and id(obj) not in values.get("singleton_printers", ()):
                try:
                    return {"text/plain": repr(obj)}, {}
                except ValueError:
                    pass                # a number of too many digits: IPython knows how to say so
        data = formatter(obj)
        return ({"text/plain": data}, {}) if isinstance(data, str) else super().format(obj)

    def _has_printer(self, kind):
        kinds = kind.__mro__
        for name, formatter in self.formatters.items():
            if name != "text/plain" and has_printer(formatter, kinds):
                return True
        return has_printer(self.ipython_display_formatter, kinds) or has_printer(self.mimebundle_formatter, kinds)


def has_printer(formatter, kinds):
    """Or might have: a transformer that is not IPython's own is called."""
    if type(formatter).__module__ != formatters.__name__:
        return True
    values = formatter._trait_values        # where a table is not, nothing was registered
    if values.get("singleton_printers"):
        return True
    by_type, by_name = values.get("type_printers"), values.get("deferred_printers")
    for kind in kinds:
        if (by_type and kind in by_type) or (by_name and ("builtins", kind.__name__) in by_name):
            return True
    return False


# Characters that begin IPython's syntax, prompts, unusual line ends; an indentation, whose errors are found by tokens.
NOT_PLAIN = re.compile(r"[%!?\\\r\v\f\x1c-\x1e\x85\u2028\u2029]|>>>|\.\.\.|\[\d+\]:|^[ \t,;/]|\A\n|\A\Z", re.MULTILINE)
FIRST_WORD = re.compile(r"[\w.*]*")
STOCK = inputtransformer2.TransformerManager()
CHECKERS = 7


def transform_plain(shell, cell):
    """IPython's transformation if that is obvious, or None."""
    manager = shell.input_transformer_manager
    if (NOT_PLAIN.search(cell) or shell.input_transformers_post or type(manager) is not type(STOCK)
            or manager.cleanup_transforms != STOCK.cleanup_transforms or manager.line_transforms != STOCK.line_transforms
            or manager.token_transformers != STOCK.token_transformers):
        return None
    end = cell.find("\n")
    if end in (-1, len(cell) - 1):
        # A line of its own may be a magic, an alias or a macro.
        prefilter, word = shell.prefilter_manager, FIRST_WORD.match(cell).group()
        if (prefilter._transformers or len(prefilter._checkers) != CHECKERS or shell.autocall or cell.rstrip("\n").endswith("# PYTHON-MODE")
                or isinstance(shell.user_ns.get(word), (Macro, IPyAutocall)) or (shell.automagic and shell.find_magic(word))):
            return None
        shell._last_input_line = cell.rstrip("\n")
    return cell if cell.endswith("\n") else cell + "\n"


class OnceTransformed:
    """Of a shell: the next transformation of the same text has been done."""

    _transformed = None

    def transform_cell(self, raw_cell):
        kept, self._transformed = self._transformed, None
        if kept is not None and kept[0] is raw_cell:
            return kept[1]
        cell = transform_plain(self, raw_cell)
        if cell is None:
            cell = super().transform_cell(raw_cell)
        self._transformed = (raw_cell, cell)
        return cell

    def run_cell(self, raw_cell, *args, **kwargs):
        try:
            return super().run_cell(raw_cell, *args, **kwargs)
        finally:
            self._transformed = None


def remember_signatures():
    for name in ("_accepts_parameters", "_accepts_cell_id"):
        ask = getattr(ipkernel, name, None)
        if ask is not None and not hasattr(ask, "answers"):
            setattr(ipkernel, name, remembering(ask))


def remembering(ask):
    @functools.wraps(ask)
    def answer(method, *names):
        key = (getattr(method, "__func__", method), *map(tuple, names))
        if key not in answer.answers:
            if len(answer.answers) > 100:
                answer.answers.clear()
            answer.answers[key] = ask(method, *names)
        return answer.answers[key]

    answer.answers = {}
    return answer
