"""Names that an interface file finds without importing them."""

import inspect


class Names:
    def __init__(self, models):
        self.models = dict(models)
        self.exposed = {}
        names = self

        def expose(function=None, *, name=None):
            """Marks a function that may be called from outside. The function stays as it is."""
            if function is None:
                return lambda f: expose(f, name=name)
            if not callable(function) or isinstance(function, type):
                raise TypeError("@expose is for functions, not for %r" % (function,))
            shown = name or getattr(function, "__name__", "")
            if not str(shown).isidentifier():
                raise TypeError("@expose needs a function with a name, or name=...")
            known = names.exposed.get(shown)
            if known is not None and known is not function:
                raise ValueError("a function %r is exposed already (line %d)" % (shown, line_of(known)))
            names.exposed[shown] = function
            return function

        def get_model_path(model_name):
            """The directory of a model that was configured for this service."""
            if model_name not in names.models:
                configured = ", ".join(repr(m) for m in sorted(names.models)) or "none"
                raise ValueError("Model %r is not configured. Configured models: %s" % (model_name, configured))
            return names.models[model_name]

        def list_configured_models():
            """The configured models: of each name its directory."""
            return dict(names.models)

        self.expose, self.get_model_path, self.list_configured_models = expose, get_model_path, list_configured_models


def line_of(function):
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_firstlineno if code is not None else 0
