"""From annotations to JSON Schema, and from JSON to the types of a function's annotations.

`Converter(annotation)` has `.schema` and `.convert(value, where)`; a value that does not fit raises Unfit with its path
("arguments.points[2].x"). An annotation without a JSON form of its own (Any, a class of the author's) accepts everything."""

import collections.abc
import dataclasses
import enum
import inspect
import sys
import types
import typing

UNION = {typing.Union, getattr(types, "UnionType", typing.Union)}
NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
LISTS = {list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection, collections.abc.MutableSequence}
SETS = {set, frozenset, collections.abc.Set, collections.abc.MutableSet}
DICTS = {dict, collections.abc.Mapping, collections.abc.MutableMapping}


class Unfit(Exception):
    def __init__(self, where, message):
        super().__init__(message)
        self.where = where


def kind(value):
    """The name of a JSON value's kind, for messages."""
    if value is None:
        return "null"
    for type_, name in ((bool, "a boolean"), (int, "an integer"), (float, "a number"), (str, "a string"), (list, "a list"), (dict, "an object")):
        if isinstance(value, type_):
            return name
    return type(value).__name__


def _article(name):
    return {"integer": "an integer", "array": "a list", "object": "an object", "null": "null"}.get(name, "a " + name)


def _anything(value, where):
    return value


class Bare:
    """An annotation that is a text, shown without quotes."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


def text_of(signature):
    """The text of a signature. With `from __future__ import annotations` each annotation is a text."""
    def bare(annotation):
        return Bare(annotation) if isinstance(annotation, str) else annotation

    parameters = [p.replace(annotation=bare(p.annotation)) for p in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=bare(signature.return_annotation)))


class Converter:
    """One annotation. schema: JSON Schema; convert: checks and converts."""

    def __init__(self, schema, convert, label):
        self.schema, self.convert, self.label = schema, convert, label


ANY = Converter({}, _anything, "anything")


def _scalar(type_):
    name = NAMES[type_]
    label = _article(name)

    def convert(value, where):
        if type_ is float:
            fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        elif type_ is int:
            fits = (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())
        else:
            fits = isinstance(value, type_)
        if not fits:
            raise Unfit(where, "must be %s, not %s" % (label, kind(value)))
        if type_ is float or (type_ is int and isinstance(value, float)):
            try:
                return type_(value)
            except OverflowError:
                raise Unfit(where, "is too large for a number") from None
        return value

    return Converter({"type": name}, convert, label)


def _moment(kind):
    def read(text):
        # Before 3.11 Python does not know the Z of UTC.
        return kind.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)

    return read


def written(cls):
    """The converter of a class whose values are texts in JSON; None: it is another one. Its module is there if there is an annotation with it."""
    def module(name, member):
        found = getattr(sys.modules.get(name), member, None)
        return found if isinstance(found, type) else None

    form = None
    if cls in (bytes, bytearray):
        import base64

        schema, words = {"type": "string", "contentEncoding": "base64"}, "bytes in base64"
        form = lambda text: cls(base64.b64decode(text, validate=True))  # noqa: E731
    elif cls is module("datetime", "datetime"):
        schema, words, form = {"type": "string", "format": "date-time"}, "a date and time (2026-01-31T12:00:00)", _moment(cls)
    elif cls is module("datetime", "date"):
        schema, words, form = {"type": "string", "format": "date"}, "a date (2026-01-31)", cls.fromisoformat
    elif cls is module("datetime", "time"):
        schema, words, form = {"type": "string", "format": "time"}, "a time (12:00:00)", _moment(cls)
    elif cls is module("uuid", "UUID"):
        schema, words, form = {"type": "string", "format": "uuid"}, "a UUID", cls
    elif module("pathlib", "PurePath") and issubclass(cls, module("pathlib", "PurePath")):
        schema, words, form = {"type": "string"}, "a path", cls
    elif cls is module("decimal", "Decimal"):
        schema, words, form = {"type": ["string", "number"]}, "a decimal number", lambda text: cls(str(text))
    if form is None:
        return None

    def convert(value, where):
        fits = isinstance(value, str) or ("number" in schema["type"] and isinstance(value, (int, float)) and not isinstance(value, bool))
        if not fits:
            raise Unfit(where, "must be %s, not %s" % (words, kind(value)))
        try:
            return form(value)
        except (ValueError, ArithmeticError):
            raise Unfit(where, "must be %s, not %r" % (words, str(value)[:100])) from None

    return Converter(schema, convert, words)


class Maker:
    """Makes converters; tracks the classes in progress, so that one that contains itself ends in a $ref."""

    def __init__(self):
        self.defs = {}
        self.known = {}

    def make(self, annotation):
        if annotation is inspect.Parameter.empty or annotation is typing.Any:
            return ANY
        if annotation is None:
            annotation = type(None)
        try:
            if annotation in NAMES:
                return _scalar(annotation)
        except TypeError:
            return ANY
        if hasattr(typing, "NewType") and hasattr(annotation, "__supertype__"):
            return self.make(annotation.__supertype__)
        origin, args = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is not None and origin is getattr(typing, "Annotated", None) or hasattr(annotation, "__metadata__"):
            return self._annotated(annotation)
        if origin in UNION:
            return self._union([self.make(a) for a in args])
        if origin is typing.Literal:
            return self._literal(args)
        base = origin or annotation
        if base in LISTS or base in SETS:
            return self._list(base, self.make(args[0]) if args and not isinstance(args[0], typing.TypeVar) else ANY)
        if base is tuple:
            return self._tuple(args)
        if base in DICTS:
            return self._dict(args)
        if isinstance(base, type):
            return written(base) or self._class(base)
        return ANY

    def _annotated(self, annotation):
        inner = self.make(annotation.__origin__)
        words = [m for m in annotation.__metadata__ if isinstance(m, str)]
        if not words:
            return inner
        return Converter(dict(inner.schema, description=words[0]), inner.convert, inner.label)

    def _union(self, parts):
        schema = {"anyOf": [p.schema for p in parts]}
        plain = [p.schema["type"] for p in parts if set(p.schema) == {"type"}]
        if len(plain) == len(parts):
            schema = {"type": plain}
        elif any(p.schema == {} for p in parts):
            schema = {}
        label = " or ".join(p.label for p in parts)

        def convert(value, where):
            deeper = None
            # An exact fit first, so that True stays True in Union[int, bool] and 1 stays 1 in Union[float, int].
            for exact in (True, False):
                for part in parts:
                    try:
                        result = part.convert(value, where)
                    except Unfit as e:
                        if e.where != where:
                            deeper = e
                        continue
                    if not exact or type(result) is type(value):
                        return result
            if deeper is not None and len(parts) <= 2:
                raise deeper
            raise Unfit(where, "must be %s, not %s" % (label, kind(value)))

        return Converter(schema, convert, label)

    def _literal(self, values):
        shown = [v.value if isinstance(v, enum.Enum) else v for v in values]
        label = "one of " + ", ".join(repr(v) for v in shown)

        def convert(value, where):
            for literal, plain in zip(values, shown):
                if type(value) is type(plain) and value == plain:
                    return literal
            raise Unfit(where, "must be %s" % label)

        return Converter({"enum": shown}, convert, label)

    def _list(self, base, item):
        is_set = base in SETS
        schema = {"type": "array"}
        if item.schema:
            schema["items"] = item.schema
        if is_set:
            schema["uniqueItems"] = True
        make = (frozenset if base is frozenset else set) if is_set else None

        def convert(value, where):
            if not isinstance(value, list):
                raise Unfit(where, "must be a list, not %s" % kind(value))
            if item is not ANY:
                value = [item.convert(v, "%s[%d]" % (where, i)) for i, v in enumerate(value)]
            if make is None:
                return value
            try:
                return make(value)
            except TypeError:
                raise Unfit(where, "has members that cannot be in a set") from None

        return Converter(schema, convert, "a list")

    def _tuple(self, args):
        if not args or (len(args) == 2 and args[1] is Ellipsis):
            inner = self._list(list, self.make(args[0]) if args else ANY)
            return Converter(inner.schema, lambda value, where: tuple(inner.convert(value, where)), "a list")
        if args == ((),):
            args = ()
        items = [self.make(a) for a in args]

        def convert(value, where):
            if not isinstance(value, list):
                raise Unfit(where, "must be a list, not %s" % kind(value))
            if len(value) != len(items):
                raise Unfit(where, "must have %d members, not %d" % (len(items), len(value)))
            return tuple(item.convert(v, "%s[%d]" % (where, i)) for i, (item, v) in enumerate(zip(items, value)))

        schema = {"type": "array", "prefixItems": [i.schema for i in items], "minItems": len(items), "maxItems": len(items)}
        return Converter(schema, convert, "a list")

    def _dict(self, args):
        key = self.make(args[0]) if args else ANY
        value_of = self.make(args[1]) if len(args) == 2 else ANY
        schema = {"type": "object"}
        if value_of.schema:
            schema["additionalProperties"] = value_of.schema

        def name(text, where):
            if key.schema == {"type": "integer"}:
                try:
                    return int(text)
                except ValueError:
                    raise Unfit(where, "must have integers as names, not %r" % text) from None
            if key.schema == {"type": "number"}:
                try:
                    return float(text)
                except ValueError:
                    raise Unfit(where, "must have numbers as names, not %r" % text) from None
            return key.convert(text, where)

        def convert(value, where):
            if not isinstance(value, dict):
                raise Unfit(where, "must be an object, not %s" % kind(value))
            return {name(k, where): value_of.convert(v, "%s[%r]" % (where, k)) for k, v in value.items()}

        return Converter(schema, convert, "an object")

    def _class(self, cls):
        if cls in self.known:
            return self.known[cls]
        if issubclass(cls, enum.Enum):
            return self._enum(cls)
        if dataclasses.is_dataclass(cls):
            fields = {f.name: f for f in dataclasses.fields(cls) if f.init}
            optional = {n for n, f in fields.items() if f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING}
            return self._record(cls, hints(cls), fields, optional, lambda values: cls(**values))
        if issubclass(cls, dict) and hasattr(cls, "__required_keys__"):
            types_ = hints(cls)
            return self._record(cls, types_, types_, set(cls.__optional_keys__), dict)
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            return self._record(cls, hints(cls), cls._fields, set(cls._field_defaults), lambda values: cls(**values))
        return ANY

    def _enum(self, cls):
        inner = self._literal(tuple(cls))
        inner.schema["title"] = cls.__name__
        return inner

    def _record(self, cls, types_, names, optional, make):
        title = cls.__name__        # of two classes with one name, the second one's is another
        while title in self.defs:
            title += "_"
        reference = Converter({"$ref": "#/$defs/" + title}, None, "an object")
        self.known[cls] = reference
        members = {}
        schema = {"type": "object", "properties": {}, "additionalProperties": False}
        self.defs[title] = schema
        for name in names:
            members[name] = self.make(types_.get(name, typing.Any))
            schema["properties"][name] = members[name].schema
        required = [n for n in names if n not in optional]
        if required:
            schema["required"] = required

        def convert(value, where):
            if not isinstance(value, dict):
                raise Unfit(where, "must be an object (%s), not %s" % (cls.__name__, kind(value)))
            for name in value:
                if name not in members:
                    raise Unfit(where, "has an unknown member %r; %s has %s" % (name, cls.__name__, ", ".join(members)))
            for name in required:
                if name not in value:
                    raise Unfit(where, "lacks the member %r of %s" % (name, cls.__name__))
            return make({n: members[n].convert(v, "%s.%s" % (where, n)) for n, v in value.items()})

        reference.convert = convert
        return reference


def hints(thing):
    """Annotations with strings resolved; an unresolvable one is Any."""
    try:
        return typing.get_type_hints(thing, include_extras=True) if sys.version_info >= (3, 9) else typing.get_type_hints(thing)
    except Exception:
        found = {}
        own = getattr(thing, "__annotations__", {})
        space = getattr(thing, "__globals__", None) or vars(sys.modules.get(getattr(thing, "__module__", ""), types)).copy()
        for name, annotation in own.items():
            if isinstance(annotation, str):
                try:
                    annotation = eval(annotation, dict(space))  # noqa: S307: the author's own annotation
                except Exception:
                    annotation = typing.Any
            found[name] = annotation
        return found


def default_of(value):
    """The default as JSON, or None and False if it has none."""
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and value == value and abs(value) != float("inf")):
        return value, True
    if isinstance(value, (list, tuple)):
        parts = [default_of(v) for v in value]
        return [p for p, _ in parts], all(good for _, good in parts)
    if isinstance(value, dict) and all(isinstance(k, str) for k in value):
        parts = {k: default_of(v) for k, v in value.items()}
        return {k: p for k, (p, _) in parts.items()}, all(good for _, good in parts.values())
    return None, False


class Function:
    """A function that may be called: its description for callers, and the conversion of JSON to its arguments."""

    def __init__(self, function, name=None):
        self.function = function
        self.name = name or function.__name__
        self.is_async = inspect.iscoroutinefunction(function)
        self.signature = inspect.signature(function)
        types_ = hints(function)
        maker = Maker()
        self.converters = {}
        schema = {"type": "object", "properties": {}}
        required, closed = [], True
        for p in self.signature.parameters.values():
            converter = self.converters[p.name] = maker.make(types_.get(p.name, inspect.Parameter.empty))
            if p.kind is p.VAR_KEYWORD:
                closed = False
                if converter.schema:
                    schema["additionalProperties"] = converter.schema
                continue
            if p.kind is p.VAR_POSITIONAL:
                schema["properties"][p.name] = {"type": "array", "items": converter.schema} if converter.schema else {"type": "array"}
                continue
            shown = dict(converter.schema)
            if p.default is p.empty:
                required.append(p.name)
            else:
                value, is_json = default_of(p.default)
                if is_json:
                    shown["default"] = value
            schema["properties"][p.name] = shown
        if required:
            schema["required"] = required
        if closed:
            schema["additionalProperties"] = False
        if maker.defs:
            schema["$defs"] = maker.defs
        self.makes_records = bool(maker.defs)
        self.schema = schema
        result = maker_schema(types_.get("return", inspect.Parameter.empty))
        self.output_schema = result if result else None

    def describe(self):
        shown = {
            "name": self.name,
            "doc": inspect.getdoc(self.function) or "",
            "signature": text_of(self.signature),
            "async": self.is_async,
            "input_schema": self.schema,
        }
        if self.output_schema:
            shown["output_schema"] = self.output_schema
        return shown

    def bind(self, args, kwargs):
        """Arguments in the types that the function wants; Unfit names the one that does not fit."""
        variable = next((p for p in self.signature.parameters.values() if p.kind is p.VAR_POSITIONAL), None)
        # A caller that only knows names (a tool) passes *args by its name.
        if variable is not None and not args and isinstance(kwargs.get(variable.name), list):
            kwargs = dict(kwargs)
            spread = kwargs.pop(variable.name)
            before = [p for p in self.signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
            for p in before:
                if p.name in kwargs:
                    args = [*args, kwargs.pop(p.name)]
                elif p.default is not p.empty and spread:
                    args = [*args, p.default]
            args = [*args, *spread]
        positional = [p for p in self.signature.parameters.values() if p.kind is p.POSITIONAL_ONLY]
        if positional and not args and any(p.name in kwargs for p in positional):
            kwargs = dict(kwargs)
            args = [kwargs.pop(p.name) for p in positional if p.name in kwargs]
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as e:
            raise Unfit("", "%s() %s" % (self.name, e)) from None
        for name, value in bound.arguments.items():
            convert = self.converters[name].convert
            p = self.signature.parameters[name]
            if p.kind is p.VAR_POSITIONAL:
                bound.arguments[name] = tuple(convert(v, "%s[%d]" % (name, i)) for i, v in enumerate(value))
            elif p.kind is p.VAR_KEYWORD:
                bound.arguments[name] = {k: convert(v, k) for k, v in value.items()}
            else:
                bound.arguments[name] = convert(value, name)
        return bound.args, bound.kwargs


def maker_schema(annotation):
    """The schema of a result; None if it is unknown."""
    maker = Maker()
    schema = maker.make(annotation).schema
    if schema and maker.defs:
        schema = dict(schema)
        schema["$defs"] = maker.defs
    return schema
