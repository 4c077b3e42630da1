"""A small storm on an API server whose etcd is Debian 12's (3.4), which breaks watches off and cannot tell how far they are: slower, and nothing else."""
import subprocess

import pytest
from test_storm import kwok, storm


@pytest.fixture(scope="module")
def old_etcd(tmp_path_factory):
    folder = tmp_path_factory.mktemp("etcd")
    subprocess.run(["apt-get", "download", "--quiet=2", "etcd-server"], cwd=folder, check=True)
    package, = folder.glob("etcd-server_3.4.*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
    return folder / "usr/bin/etcd"


def test_an_etcd_that_breaks_watches_off_loses_nothing(old_etcd, tmp_path):
    with kwok("old-etcd", CARREL_CLUSTER_ETCD=str(old_etcd)) as fake:
        storm(fake, tmp_path / "controller.log", 60, kill_controller=30, kill_server=100)
