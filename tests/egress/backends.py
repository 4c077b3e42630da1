"""Real servers in the tests' outside world: nginx with TLS and git's http-backend, PostgreSQL, redis."""

import pathlib
import pwd
import shutil
import subprocess
import tempfile

from support.waiting import wait_for

ADDRESS = "203.0.113.12"
NGINX = """
daemon off; error_log {folder}/nginx.err; pid {folder}/nginx.pid; user root;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  ssl_certificate {folder}/certificate.pem; ssl_certificate_key {folder}/key.pem;
  server {{
    listen {address}:80; listen {address}:443 ssl http2; listen [2001:db8:77::12]:443 ssl;
    root {folder}/www;
    location ~ ^/git(/.*)$ {{
      fastcgi_pass unix:{folder}/fcgi.sock;
      include /etc/nginx/fastcgi_params;
      fastcgi_param SCRIPT_FILENAME /usr/lib/git-core/git-http-backend;
      fastcgi_param GIT_PROJECT_ROOT {folder}/git;
      fastcgi_param GIT_HTTP_EXPORT_ALL "";
      fastcgi_param REMOTE_USER box;
      fastcgi_param PATH_INFO $1;
    }}
  }}
}}
"""


def let_in(folder):
    """Every user may pass to it: pytest's folders are the user's own."""
    for one in (folder, *folder.parents):
        if one == pathlib.Path(tempfile.gettempdir()):
            return
        one.chmod(one.stat().st_mode | 0o055)


class Backends:
    def __init__(self, world):
        self.world, self.folder, self.children = world, world.folder / "backends", []
        self.folder.mkdir(mode=0o755)
        let_in(self.folder)
        try:
            self.start_all()
        except BaseException:
            self.close()
            raise

    def start_all(self):
        world = self.world
        world.world.ip(f"addr add {ADDRESS}/24 dev inside\n-6 addr add 2001:db8:77::12/64 dev inside nodad")
        for name in ("certificate.pem", "key.pem"):
            shutil.copy(world.folder / name, self.folder / name)
        (self.folder / "www").mkdir()
        (self.folder / "www" / "hello.txt").write_text("hello\n")
        self.repository()
        self.start("fcgiwrap", "-f", "-s", f"unix:{self.folder}/fcgi.sock")
        configuration = self.folder / "nginx.conf"
        configuration.write_text(NGINX.format(folder=self.folder, address=ADDRESS))
        self.start("nginx", "-c", configuration)
        self.start("redis-server", "--bind", ADDRESS, "--port", "6379", "--save", "", "--protected-mode", "no", "--dir", self.folder)
        self.database()
        for port in (80, 443, 6379, 5432):
            wait_for(lambda: world.host.run("nc", "-z", "-w1", ADDRESS, port, check=False).returncode == 0, f"port {port}")

    def start(self, *command, **options):
        self.children.append(self.world.world.start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options))

    def repository(self):
        bare, work = self.folder / "git" / "project.git", self.folder / "work"
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
        for command in (["init", "-q", work], ["-C", work, "commit", "-q", "--allow-empty", "-m", "first"],
                        ["clone", "-q", "--bare", work, bare], ["-C", bare, "config", "http.receivepack", "true"]):  # fmt: skip
            subprocess.run([*git, *map(str, command)], check=True, capture_output=True)

    def database(self):
        programs = max(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
        data, owner = self.folder / "data", pwd.getpwnam("postgres")
        data.mkdir(mode=0o700)
        shutil.chown(data, owner.pw_uid, owner.pw_gid)
        as_owner = ["runuser", "-u", "postgres", "--"]
        subprocess.run([*as_owner, programs / "initdb", "-D", data, "-A", "trust", "-U", "box"], check=True, capture_output=True, cwd="/")
        with open(data / "pg_hba.conf", "a") as rules:
            rules.write("host all all 0.0.0.0/0 trust\n")
        for name in ("certificate.pem", "key.pem"):
            shutil.copy(self.folder / name, data / name)
            shutil.chown(data / name, owner.pw_uid, owner.pw_gid)
            (data / name).chmod(0o600)
        self.start(*as_owner, programs / "postgres", "-D", data, "-h", ADDRESS, "-k", "", "-c", "ssl=on", "-c", f"ssl_cert_file={data}/certificate.pem",
                   "-c", f"ssl_key_file={data}/key.pem", cwd="/")  # fmt: skip

    def close(self):
        for child in self.children:
            child.terminate()
        for child in self.children:
            child.wait(30)
