"""A fixture that the suites of attack, works and family share."""
import os
import pathlib
import tempfile

import pytest


@pytest.fixture
def tmp_path():
    """Not below pytest's own folder: another pytest that starts closes that for other users."""
    with tempfile.TemporaryDirectory(prefix="carrel-test-", ignore_cleanup_errors=True) as above:
        os.chmod(above, 0o755)
        path = pathlib.Path(above, "folder")
        path.mkdir()
        yield path
