"""Volumes through the SDK."""
import asyncio
import os
import subprocess
import sys

import pytest

from support import USER

pytestmark = pytest.mark.skipif(os.geteuid() == 0 and not USER and not os.access("/dev/loop-control", os.R_OK), reason="needs loop devices")


@pytest.fixture
def volumes(carrel):
    yield carrel
    for box in carrel.list():
        box.delete()
    for v in carrel.volumes():
        v.delete()


def test_files_stay_when_the_box_is_gone(volumes):
    v = volumes.create_volume("data", size="64M")
    assert (v.name, v.size, v.raw["owner"], repr(v)) == ("data", 64 << 20, volumes.me()["identity"], "<Volume data ready>")
    with volumes.create(volumes={"data": "/data"}) as box:
        box.files.write("/data/model", b"weights")
        assert v.refresh().raw["boxes"] == [{"id": box.id, "name": None, "read_only": False}]
    with volumes.create(volumes=["data:/m:ro"]) as box:
        assert box.files.read("/m/model") == b"weights"
        assert box.shell("touch /m/x").exit_code != 0
    assert v.resize("128M").size == 128 << 20
    assert v.share("all").raw["shared_with"] == "all" and v.share([]).raw["shared_with"] == []
    assert [one.id for one in volumes.volumes()] == [v.id] and volumes.volume("data").id == volumes.volume(v.id).id == v.id


def test_refusals_are_typed_and_say_what_to_do(volumes):
    from carrel import Conflict, InvalidRequest, NotFound
    v = volumes.create_volume("data", size="64M")
    with volumes.create(volumes={"data": "/data"}, name="writer"):
        with pytest.raises(Conflict, match="writer.*many") as e:
            volumes.create(volumes={"data": "/data"})
        assert e.value.code == "in_use"
        for change in (lambda: v.resize("1G"), v.delete):
            with pytest.raises(Conflict, match="writer"):
                change()
    with pytest.raises(Conflict, match="exists"):
        volumes.create_volume("data")
    with pytest.raises(InvalidRequest, match="16M"):
        volumes.create_volume("small", size="1M")
    with pytest.raises(NotFound, match="nope"):
        volumes.create(volumes={"nope": "/data"})
    for name in ("nope", "nobody/nope"):
        with pytest.raises(NotFound):
            volumes.volume(name)
    for wrong in ("data:data", "data"):
        with pytest.raises(ValueError, match="NAME:/PATH"):
            volumes.create(volumes={"data": "data"} if ":" in wrong else {"": "/data"})
    with pytest.raises(TypeError, match="mapping"):
        volumes.create(volumes="data:/data")
    for name in ("../x", "a//b", ""):
        with pytest.raises(ValueError, match="not the name"):
            volumes.volume(name)


def test_asyncio_has_the_same(volumes, shared):
    from carrel import AsyncCarrel

    async def go():
        async with AsyncCarrel(shared.url) as server:
            v = await server.create_volume("data", size="64M", many=True)
            first, second = [await server.create(volumes={"data": "/data"}) for _ in range(2)]
            await first.files.write("/data/f", b"x")
            assert await second.files.read("/data/f") == b"x"
            await first.delete()
            await second.delete()
            assert (await v.resize("128M")).raw["size"] == 128 << 20 and (await v.share(["bob"])).raw["shared_with"] == ["bob"]
            assert (await server.volume("data")).id == (await v.refresh()).id == (await server.volumes())[0].id
            await v.delete()
            assert await server.volumes() == []
    asyncio.run(go())


def test_a_private_server_keeps_none(environment, tmp_path):
    program = "from carrel import Carrel\ntry:\n    Carrel().create_volume('data')\nexcept Exception as e:\n    print(type(e).__name__, e)"
    done = subprocess.run([sys.executable, "-c", program], env={**environment, "HOME": str(tmp_path), "CARREL_URL": ""}, capture_output=True, text=True)
    assert done.stdout.startswith("Unsupported") and "carrel serve" in done.stdout, done
