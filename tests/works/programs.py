"""Real programs and packages that must work in a plain box, one line each: its name, its origin, what it does there, and what it prints (a regular
expression). Origins: a Debian package, unless the program is there already; "pip PACKAGE", whose line is Python. TEST has those that are in the
quick cut; all are in the proof. `programs.py debian|pip` prints what has to be installed."""
import shutil
import sys

TEST = {"gcc", "git", "make", "node", "perl", "tar", "bash", "curl", "openssl", "tmux", "numpy", "pandas", "matplotlib", "psutil"}

ROWS = [
    # languages and compilers
    ("gcc", "gcc", "echo 'int puts(const char *); int main(void) { puts(\"42\"); }' >a.c && gcc -w a.c && ./a.out", r"^42$"),
    ("g++", "g++", "printf '#include <iostream>\\nint main() { std::cout << 6 * 7; }' >a.cc && g++ a.cc && ./a.out", r"^42$"),
    ("make", "make", "printf 'a: b c\\n\\tcat b c\\n%%:\\n\\techo $@ >$@\\n' >Makefile && make -sj4 a", r"^b\nc$"),
    ("go", "golang-go", "printf 'package main\\nimport (\"fmt\"; \"sync\")\\nfunc main() { var w sync.WaitGroup; for i := 0; i < 99; i++ { w.Add(1); go w.Done() }; w.Wait(); "
                        "fmt.Println(6 * 7) }' >a.go && GO111MODULE=off go run a.go", r"^42$"),
    ("java", "default-jre-headless", "java -XshowSettings:vm -version 2>&1 | grep -c 'Max. Heap'", r"^1$"),
    ("javac", "default-jdk-headless", "echo 'class A { public static void main(String[] a) throws Exception { var t = new Thread(() -> System.out.println(6 * 7)); t.start(); t.join(); } }' "
                                      ">A.java && javac A.java && java A", r"^42$"),
    ("R", "r-base-core", "Rscript -e 'cat(coef(lm(dist ~ speed, cars))[2])'", r"^3\.93"),
    ("ruby", "ruby", "ruby -rjson -e 'puts JSON.parse(\"[6,7]\").reduce(:*)'", r"^42$"),
    ("perl", "perl", "perl -MPOSIX -e 'fork or exit; wait; print floor(42.5)'", r"^42$"),
    ("php", "php-cli", "php -r 'echo json_encode([6 * 7]);'", r"^\[42\]$"),
    ("lua", "lua5.4", "lua5.4 -e 'print(6 * 7)'", r"^42$"),
    ("node", "nodejs", "node -e 'const {Worker} = require(\"worker_threads\"); new Worker(\"console.log(6 * 7)\", {eval: true})'", r"^42$"),
    ("npm", "npm", "npm init -y >/dev/null 2>&1 && npm pkg get name", r"^\"box\"$"),
    ("guile", "guile-3.0", "guile -c '(display (* 6 7))' 2>/dev/null", r"42$"),
    ("ocaml", "ocaml-nox", "echo 'print_int (6 * 7)' >a.ml && ocaml a.ml", r"^42$"),
    ("tcl", "tcl", "echo 'puts [expr 6 * 7]' | tclsh", r"^42$"),
    ("bc", "bc", "echo '6 * 7' | bc", r"^42$"),
    ("cmake", "cmake", "printf 'cmake_minimum_required(VERSION 3.10)\\nproject(a C)\\nadd_executable(a a.c)\\n' >CMakeLists.txt && echo 'int main(void) { return 42; }' >a.c && "
                       "cmake -B b >/dev/null && make -sC b >/dev/null; b/a; echo $?", r"^42$"),
    # shells and tools
    ("bash", "bash", "bash -c 'coproc cat; echo 42 >&${COPROC[1]}; read -r x <&${COPROC[0]}; echo $x; diff <(echo a) <(echo a)'", r"^42$"),
    ("zsh", "zsh", "zsh -fc 'print $((6 * 7))'", r"^42$"),
    ("fish", "fish", "fish -c 'math 6 x 7'", r"^42$"),
    ("git", "git", "git init -q a && cd a && echo x >f && git add f && git commit -qm one && git clone -q . ../b && git -C ../b log --format=%s && git gc -q", r"^one$"),
    ("vim", "vim-tiny", "echo a >f && vim.tiny -Es -c 's/a/42/' -c wq f; cat f", r"^42$"),
    ("emacs", "emacs-nox", "emacs --batch --eval '(princ (* 6 7))'", r"^42$"),
    ("tmux", "tmux", "tmux -S s new -d -s x 'echo 42 >f; tmux -S s wait -S done; sleep 9' && tmux -S s wait done; cat f", r"^42$"),
    ("screen", "screen", "export SCREENDIR=$HOME/s; mkdir -m 700 s; screen -dmS x sh -c 'echo 42 >f'; n=0; until [ -s f ] || [ $((n += 1)) -gt 200 ]; do sleep .05; done; cat f", r"^42$"),
    ("tar", "tar", "mkdir d && echo 42 >d/f && ln -s f d/l && tar cz d | (mkdir e && tar xzC e) && cat e/d/l", r"^42$"),
    ("zip", "zip", "echo 42 >f && zip -q a.zip f && python3 -m zipfile -l a.zip | grep -c '^f '", r"^1$"),
    ("zstd", "zstd", "seq 99999 | zstd -q -T2 | zstd -dq | tail -1", r"^99999$"),
    ("rsync", "rsync", "mkdir a && seq 9 >a/f && rsync -a a/ b && tail -1 b/f", r"^9$"),
    ("jq", "jq", "echo '{\"a\": [6, 7]}' | jq '.a[0] * .a[1]'", r"^42$"),
    ("ripgrep", "ripgrep", "seq 99 >f && rg -c '^4' f", r"^11$"),
    ("parallel", "parallel", "seq 3 | parallel -j2 -k echo 4 2>/dev/null | tr -d '\\n '", r"^414243$"),
    ("curl", "curl", "echo 42 >f && curl -s file://$HOME/f && (python3 -m http.server 8000 --bind 127.0.0.1 2>/dev/null & p=$!; "
                     "curl -s --retry 50 --retry-connrefused --retry-delay 1 http://127.0.0.1:8000/f; kill $p)", r"^42\n42$"),
    ("openssl", "openssl", "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout k -out c -subj /CN=x 2>/dev/null && openssl x509 -in c -noout -subject", r"CN = x"),
    ("gpg", "gpg", "export GNUPGHOME=$HOME/g; mkdir -m 700 g; echo 42 | gpg -q --batch --passphrase x --pinentry-mode loopback -co f && gpg -q --batch --passphrase x --pinentry-mode loopback -d f",
     r"^42$"),
    ("gawk", "gawk", "seq 9 | gawk '{ s += $1 } END { print s }'", r"^45$"),
    ("graphviz", "graphviz", "echo 'digraph { a -> b }' | dot -Tsvg | grep -c '<svg'", r"^1$"),
    ("imagemagick", "imagemagick", "convert -size 6x7 xc:red a.png && identify -format '%wx%h' a.png", r"^6x7$"),
    ("ffmpeg", "ffmpeg", "ffmpeg -v error -f lavfi -i testsrc=d=1:s=64x64:r=10 a.mp4 && ffprobe -v error -show_entries stream=nb_frames -of csv=p=0 a.mp4", r"^10"),
    ("pandoc", "pandoc", "echo '*42*' | pandoc", r"<em>42</em>"),
    ("gdb", "gdb", "gdb --batch -ex 'print 6 * 7' 2>/dev/null", r"42"),      # it runs; another process it cannot trace
    # databases and servers
    ("sqlite", "sqlite3", "sqlite3 a.db 'create table t (a); insert into t values (42); select a from t'", r"^42$"),
    ("postgres", "postgresql", "export PATH=$PATH:$(echo /usr/lib/postgresql/*/bin); initdb -D d >/dev/null 2>&1 && pg_ctl -D d -o \"-k $HOME\" -w start >/dev/null && "
                               "psql -h $HOME -Atc 'select 6 * 7' postgres; pg_ctl -D d -m fast stop >/dev/null", r"^42$"),
    ("redis", "redis-server", "redis-server --port 0 --unixsocket s --daemonize yes >/dev/null; n=0; until redis-cli -s s ping 2>/dev/null | grep -q PONG || [ $((n += 1)) -gt 200 ]; "
                              "do sleep .05; done; redis-cli -s s set a 41 >/dev/null; redis-cli -s s incr a", r"^42$"),
    ("nginx", "nginx-light", "echo 42 >f; printf 'daemon off; pid n.pid; error_log stderr crit; events {} http { access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path q; "
                             "uwsgi_temp_path u; scgi_temp_path v; server { listen 127.0.0.1:8080; root /home/box; } }' >c; PATH=$PATH:/usr/sbin nginx -p $HOME -c $HOME/c 2>/dev/null & "
                             "curl -s --retry 50 --retry-connrefused --retry-delay 1 http://127.0.0.1:8080/f; kill %1 2>/dev/null; kill $!", r"^42"),
    # Python packages
    ("numpy", "pip numpy", "import numpy as n; print(n.linalg.inv(n.eye(500)).sum())", r"^500\.0$"),
    ("scipy", "pip scipy", "from scipy.optimize import brentq; print(round(brentq(lambda x: x * x - 2, 0, 2), 3))", r"^1\.414$"),
    ("pandas", "pip pandas", "import pandas as p; print(p.DataFrame({'a': [1, 1], 'b': [40, 2]}).groupby('a').b.sum().iloc[0])", r"^42$"),
    ("matplotlib", "pip matplotlib", "import matplotlib; matplotlib.use('Agg'); import matplotlib.pyplot as p; p.plot([1, 2]); p.savefig('a.png'); print(open('a.png', 'rb').read(4))", r"PNG"),
    ("psutil", "pip psutil", "import psutil; print(psutil.Process().name())", r"^python"),
    ("scikit-learn", "pip scikit-learn", "from sklearn.ensemble import RandomForestClassifier as F; from sklearn.datasets import load_iris as i\n"
                                         "if __name__ == '__main__': x, y = i(return_X_y=True); print(F(n_jobs=2).fit(x, y).score(x, y) > .9)", r"^True$"),
    ("polars", "pip polars", "import polars as p; print(p.DataFrame({'a': [40, 2]})['a'].sum())", r"^42$"),
    ("pyarrow", "pip pyarrow", "import pyarrow as a, pyarrow.parquet as q; q.write_table(a.table({'a': [42]}), 'f'); print(q.read_table('f')['a'][0])", r"^42$"),
    ("duckdb", "pip duckdb", "import duckdb; print(duckdb.connect().execute('select sum(range) from range(10)').fetchone()[0])", r"^45$"),
    ("numba", "pip numba", "import numba\n@numba.njit(parallel=True)\ndef f(n):\n    s = 0\n    for i in numba.prange(n): s += i\n    return s\nprint(f(10))", r"^45$"),
    ("ray", "pip ray", "import ray; ray.init(num_cpus=2, include_dashboard=False, object_store_memory=90 << 20, _temp_dir='/tmp/r', logging_level='ERROR')\n"
                       "@ray.remote\ndef f(x): return x * 7\nprint(ray.get(f.remote(6))); ray.shutdown()", r"42$"),
    ("dask", "pip dask", "import dask, dask.multiprocessing\nif __name__ == '__main__': print(dask.delayed(sum)([40, 2]).compute(scheduler='processes'))", r"^42$"),
    ("lightgbm", "pip lightgbm", "import lightgbm as l, numpy as n; m = l.LGBMRegressor(n_estimators=5, verbose=-1).fit(n.arange(99).reshape(-1, 1), n.arange(99)); print(len(m.predict([[1]])))", r"1$"),
    ("opencv", "pip opencv-python-headless", "import cv2, numpy as n; print(cv2.resize(n.zeros((8, 8, 3), 'u1'), (6, 7)).shape)", r"^\(7, 6, 3\)$"),
    ("pillow", "pip pillow", "from PIL import Image as i; i.new('RGB', (6, 7)).save('a.jpg'); print(i.open('a.jpg').size)", r"^\(6, 7\)$"),
    ("onnxruntime", "pip onnxruntime", "import onnxruntime as o; print(o.get_available_providers()[-1])", r"^CPUExecutionProvider$"),
    ("tokenizers", "pip tokenizers", "from tokenizers import Tokenizer as t, models as m, trainers as r; a = t(m.BPE()); a.train_from_iterator(['ab ab'] * 9, r.BpeTrainer()); print(len(a.encode('ab').ids))", r"^1$"),
    ("statsmodels", "pip statsmodels", "import statsmodels.api as s, numpy as n; print(round(s.OLS(n.arange(9.), n.arange(9.)).fit().params[0], 3))", r"^1\.0$"),
    ("sympy", "pip sympy", "import sympy as s; x = s.Symbol('x'); print(s.integrate(2 * x, (x, 0, 3)))", r"^9$"),
    ("fastapi", "pip fastapi", "import threading, time, urllib.request as u, uvicorn, fastapi; a = fastapi.FastAPI(); a.get('/')(lambda: 42); s = uvicorn.Server(uvicorn.Config(a, port=8001, log_level='error'))\n"
                               "t = threading.Thread(target=s.run); t.start()\nwhile not s.started: time.sleep(.01)\nprint(u.urlopen('http://127.0.0.1:8001/').read().decode()); s.should_exit = True; t.join()", r"^42$"),
    ("django", "pip django", "import django; from django.conf import settings as s; s.configure(TEMPLATES=[{'BACKEND': 'django.template.backends.django.DjangoTemplates'}]); django.setup()\n"
                             "from django.template import Template as t, Context as c; print(t('{{ a }}').render(c({'a': 42})))", r"^42$"),
    ("cryptography", "pip cryptography", "from cryptography.fernet import Fernet as f; k = f(f.generate_key()); print(k.decrypt(k.encrypt(b'42')).decode())", r"^42$"),
    ("lxml", "pip lxml", "from lxml import etree as e; print(e.fromstring('<a><b>42</b></a>').xpath('//b')[0].text)", r"^42$"),
    ("sqlalchemy", "pip sqlalchemy", "import sqlalchemy as s; print(s.create_engine('sqlite:///a.db').connect().execute(s.text('select 42')).scalar())", r"^42$"),
    ("grpcio", "pip grpcio", "import grpc, concurrent.futures as f; s = grpc.server(f.ThreadPoolExecutor(2)); p = s.add_insecure_port('127.0.0.1:0'); s.start(); c = grpc.insecure_channel('127.0.0.1:%d' % p)\n"
                             "grpc.channel_ready_future(c).result(20); print(42); s.stop(0)", r"^42$"),
    ("pytest", "pip pytest", "import pytest; open('test_a.py', 'w').write('def test_a(tmp_path): (tmp_path / \"x\").touch()'); print(pytest.main(['-q', '-p', 'no:cacheprovider']))", r"1 passed"),
    ("cython", "pip cython", "import os, sys, subprocess, sysconfig; open('a.pyx', 'w').write('print(6 * 7)'); subprocess.run([sys.executable, '-m', 'cython', '-3', '--embed', 'a.pyx'], check=True); print(42, os.path.exists('a.c'))", r"42 True"),
    ("uv", "pip uv", "import subprocess, uv; subprocess.run([uv.find_uv_bin(), 'venv', '-q', '--python', '/usr/bin/python3', 'v'], check=True); print(subprocess.run(['v/bin/python', '-c', 'print(42)'], capture_output=True, text=True).stdout)", r"^42$"),
    ("mypy", "pip mypy", "from mypy import api; open('a.py', 'w').write('x: int = 1'); print(api.run(['a.py', '--cache-dir', '/tmp/m'])[0])", r"Success"),
]

if __name__ == "__main__":
    if sys.argv[1] == "pip":
        print(*sorted({origin.partition(" ")[2] for _, origin, *_ in ROWS if origin.startswith("pip ")}))
    else:
        print(*sorted({origin for name, origin, *_ in ROWS if not origin.startswith("pip ") and not shutil.which(name)}))
