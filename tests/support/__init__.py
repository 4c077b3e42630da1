"""Shared by the Python suites: a server of the test's own, a client with nothing between it and the wire, waiting, users, ports.

tests/pytest.ini puts it on the path; a program beside pytest does that itself."""
import os
import pathlib

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CARREL_BUILD", REPOSITORY / "build"))
SDK = REPOSITORY / "sdk/python"
# CARREL_LONG=1: the long cut, of `make proof`.
IS_LONG = os.environ.get("CARREL_LONG") == "1"
# CARREL_AS=NAME: servers run as that ordinary user (it is made if it is not there), and hold what can be held without root.
USER = os.environ.get("CARREL_AS") or None
