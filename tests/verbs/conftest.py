"""Sessions of the scripted agent, attached by real processes."""

import pytest

from clew.lease.lease import Holder
from clew.verbs.leases import HELD
from live_world import HOST, World
from record_making import own_schema


@pytest.fixture
def folder(tmp_path):
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request):
    """Where the records lie: in the folder, or on a server."""
    if request.param == "sqlite":
        yield None
        return
    with own_schema() as made:
        yield made


@pytest.fixture
def world(folder, url):
    made = World(folder, url=url)
    yield made
    made.close()


@pytest.fixture
def another(folder, url):
    """Makes further views of the same folder: other processes, as far as leases go."""
    made = []

    def make(script=None, **options):
        # Another process by name: this very one would hold what it started.
        options.setdefault("holder", Holder(options.get("host", HOST), 1))
        own = World(folder, script, url=url, **options)
        made.append(own)
        return own

    yield make
    for one in made:
        one.close()
    HELD.clear()
