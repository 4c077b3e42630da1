import pytest

from support.server import Server
from workspaces import Person


@pytest.fixture(scope="module")
def people():
    """Starts servers and persons; ends what they leave."""
    made = []

    def keep(one):
        made.append(one)
        return one

    yield keep
    for one in reversed(made):
        if isinstance(one, Person):
            one.close()
    for one in reversed(made):
        if isinstance(one, Server):
            one.stop()
