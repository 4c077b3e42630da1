"""Image archives: both kinds of index in one, the same bytes twice, and only what was asked for. No container engine is needed."""
import gzip
import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile

import pytest

TREE = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TREE / "tools"))
import oci  # noqa: E402


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    (folder / "etc").mkdir(parents=True)
    (folder / "etc/motd").write_text("hello\n")
    (folder / "link").symlink_to("etc/motd")
    (folder / "tool").write_text("#!/bin/sh\n")
    (folder / "tool").chmod(0o4755)
    os.mkfifo(folder / "pipe")
    return folder


def make(root, out):
    subprocess.run([TREE / "tools/make-image", out, "--name", "thing:1", "--name", "example.org/team/thing:2", "--root", root, "--entrypoint", "/tool",
                    "--user", "1000"], check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(out) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}


def test_both_indexes_name_the_same_image(root, tmp_path):
    files = make(root, tmp_path / "image.tar")
    index, docker = json.loads(files["index.json"]), json.loads(files["manifest.json"])
    names = [entry["annotations"]["io.containerd.image.name"] for entry in index["manifests"]]
    assert names == docker[0]["RepoTags"] == ["docker.io/library/thing:1", "example.org/team/thing:2"]
    manifest = json.loads(files["blobs/sha256/" + index["manifests"][0]["digest"][7:]])
    assert docker[0]["Config"] == "blobs/sha256/" + manifest["config"]["digest"][7:]
    assert docker[0]["Layers"] == ["blobs/sha256/" + layer["digest"][7:] for layer in manifest["layers"]]


def test_every_blob_is_what_its_name_says(root, tmp_path):
    files = make(root, tmp_path / "image.tar")
    blobs = {name: data for name, data in files.items() if name.startswith("blobs/")}
    assert len(blobs) == 3
    for name, data in blobs.items():
        assert hashlib.sha256(data).hexdigest() == name.rsplit("/", 1)[1]
    docker = json.loads(files["manifest.json"])[0]
    config = json.loads(files[docker["Config"]])
    plain = gzip.decompress(files[docker["Layers"][0]])
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(plain).hexdigest()]
    assert config["config"]["Entrypoint"] == ["/tool"] and config["config"]["User"] == "1000"


def test_the_layer_keeps_modes_and_links_and_no_times(root, tmp_path):
    files = make(root, tmp_path / "image.tar")
    layer = files[json.loads(files["manifest.json"])[0]["Layers"][0]]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        members = {member.name: member for member in tar}
    assert set(members) == {"etc", "etc/motd", "link", "tool"}  # a pipe is in no archive
    assert members["tool"].mode == 0o4755 and members["link"].linkname == "etc/motd"
    assert {member.mtime for member in members.values()} == {oci.EPOCH}


def test_the_same_files_give_the_same_bytes(root, tmp_path):
    make(root, tmp_path / "a.tar")
    for path in root.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (1, 1))
    make(root, tmp_path / "b.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_a_program_brings_its_libraries(tmp_path):
    out = tmp_path / "image.tar"
    subprocess.run([TREE / "tools/make-image", out, "--name", "env:1", "--program", "/usr/bin/env"], check=True, stdout=subprocess.DEVNULL)
    root = tmp_path / "root"
    with tarfile.open(out) as archive:
        layer = json.load(archive.extractfile("manifest.json"))[0]["Layers"][0]
        with tarfile.open(fileobj=archive.extractfile(layer)) as tar:
            names = tar.getnames()
            tar.extractall(root)
    assert "env" in names and any(name.endswith("libc.so.6") for name in names)
    if os.geteuid() == 0:
        done = subprocess.run(["chroot", root, "/env", "-i", "A=1"], capture_output=True, text=True)
        assert done.stdout == "A=1\n", done.stderr
