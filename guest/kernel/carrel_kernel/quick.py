"""Where ipykernel and IPython do the same thing twice, or for nothing, at every cell. The results are theirs; tests compare them.

- The kernel transforms a cell to see whether it is asynchronous, then the shell transforms it to run it: now once.
- The kernel asks for the signature of the same method at each cell: now it remembers.
- A result is offered to a dozen formatters in turn. Numbers, text and containers of Python itself have no _repr_html_ and the like;
  unless somebody registered a printer for them, only text/plain can say something."""

import functools

from IPython.core import formatters
from ipykernel import ipkernel

PLAIN = frozenset((int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, range))


class QuickFormatter(formatters.DisplayFormatter):
    def format(self, obj, include=None, exclude=None):
        kind = type(obj)
        if kind not in PLAIN or include or exclude or self._has_printer(kind):
            return super().format(obj, include=include, exclude=exclude)
        data = self.formatters["text/plain"](obj)
        return ({"text/plain": data}, {}) if isinstance(data, str) else super().format(obj)

    def _has_printer(self, kind):
        kinds = kind.__mro__
        for name, formatter in self.formatters.items():
            if name != "text/plain" and has_printer(formatter, kinds):
                return True
        return has_printer(self.ipython_display_formatter, kinds) or has_printer(self.mimebundle_formatter, kinds)


def has_printer(formatter, kinds):
    """Or might have: one that is not IPython's own is asked."""
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


class OnceTransformed:
    """Of a shell: the next transformation of the same text has been done."""

    _transformed = None

    def transform_cell(self, raw_cell):
        kept, self._transformed = self._transformed, None
        if kept is not None and kept[0] is raw_cell:
            return kept[1]
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
