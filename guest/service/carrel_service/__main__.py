"""The program: `python GUEST/carrel_service` serves the link on descriptor 0.

It is run by its path, not installed, so that a box's own packages stay as they are: this directory leaves sys.path before anything
else is imported, and the package is loaded by hand under its name."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def load_package():
    import importlib.util

    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != HERE]
    spec = importlib.util.spec_from_file_location("carrel_service", os.path.join(HERE, "__init__.py"), submodule_search_locations=[HERE])
    package = importlib.util.module_from_spec(spec)
    sys.modules["carrel_service"] = package
    spec.loader.exec_module(package)


def give_up():
    """Before anything that such an interpreter does not understand."""
    import json

    import proto            # this directory is still in sys.path

    said = {proto.ERROR_KEY: "%s is Python %d.%d, which is too old for a service" % ((sys.executable,) + sys.version_info[:2]), proto.HINT_KEY: "use 3.9 or newer"}
    sys.stderr.write(json.dumps(said) + "\n")
    return proto.UNFIT


def main():
    if sys.version_info < (3, 8):
        return give_up()
    load_package()
    from carrel_service import worker

    return worker.main()


if __name__ == "__main__":
    sys.exit(main())
