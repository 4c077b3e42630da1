"""The server of tests/api, which has its own conftest."""
import importlib.util
import pathlib

_spec = importlib.util.spec_from_file_location("carrel_api_conftest", pathlib.Path(__file__).parents[1] / "api" / "conftest.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
BUILD, Server, wait_for, free_port = _module.BUILD, _module.Server, _module.wait_for, _module.free_port
