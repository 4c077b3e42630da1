#!/bin/bash
# PID 1 of the test machine once it has its root: makes it a plausible Debian host with a pure cgroup v2 tree, runs the
# one suite that the kernel's command line names (carrel.suite=user:limits), prints "<carrel.mark> <exit status>" and
# ends the machine. The mark is random, so that nothing a test prints can pass for it.
export PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin HOME=/root LANG=C.UTF-8 LC_ALL=C.UTF-8 TERM=dumb
for word in $(< /proc/cmdline); do
    case $word in
    carrel.suite=*) suite=${word#*=} ;;
    carrel.mark=*) mark=${word#*=} ;;
    carrel.timeout=*) limit=${word#*=} ;;
    esac
done

finish() {
    echo
    echo "$mark $1"
    stty -F /dev/console sane       # returns when the line has left the machine, which is then ended from outside
    sleep 10
    echo b > /proc/sysrq-trigger
}

setup_host() {
    mkdir -p /dev/pts /dev/shm /dev/mqueue /usr/local 2>/dev/null
    mount -t devpts -o mode=620,ptmxmode=666,gid=5 devpts /dev/pts && mount -t tmpfs -o mode=1777 shm /dev/shm &&
    mount -t tmpfs -o mode=755,nosuid,nodev run /run && mount -t tmpfs -o mode=1777,nosuid,nodev tmp /tmp &&
    mount -t mqueue mqueue /dev/mqueue && mount -t securityfs securityfs /sys/kernel/security &&
    mount -t cgroup2 -o nosuid,nodev,noexec,nsdelegate cgroup2 /sys/fs/cgroup || return 1
    mount --make-rshared /
    ln -sfn /proc/self/fd /dev/fd; ln -sfn fd/0 /dev/stdin; ln -sfn fd/1 /dev/stdout; ln -sfn fd/2 /dev/stderr
    cp -a /carrel/alternatives /etc/alternatives
    printf '%s\n' root:x:0:0:root:/root:/bin/bash daemon:x:1:1::/:/usr/sbin/nologin \
        user:x:1000:1000::/home/user:/bin/bash nobody:x:65534:65534::/:/usr/sbin/nologin > /etc/passwd
    printf '%s\n' root:x:0: daemon:x:1: tty:x:5: user:x:1000: nogroup:x:65534: > /etc/group
    printf 'user:100000:65536\n' | tee /etc/subuid > /etc/subgid
    printf '127.0.0.1 localhost\n' > /etc/hosts
    printf 'passwd: files\ngroup: files\nhosts: files\n' > /etc/nsswitch.conf
    printf 'include /etc/ld.so.conf.d/*.conf\n/usr/local/lib\n/usr/lib/x86_64-linux-gnu\n' > /etc/ld.so.conf
    ldconfig
    mkdir -p /run/lock; install -d -o 1000 -g 1000 -m 750 /home/user; install -d -o 1000 -g 1000 -m 700 /run/user/1000
    ip link set lo up 2>/dev/null
    hostname testhost
    echo 1 > /proc/sys/kernel/panic_on_oops
}

# As systemd leaves it: the suite runs in a scope of its own; for an ordinary user the slice around it is delegated.
setup_cgroup() {
    local base=/sys/fs/cgroup owner=$1
    echo '+memory +pids +cpu' > $base/cgroup.subtree_control || return 1
    mkdir -p $base/test.slice && echo '+memory +pids +cpu' > $base/test.slice/cgroup.subtree_control || return 1
    mkdir -p $base/test.slice/suite.scope || return 1
    if [ "$owner" = user ]; then
        chown 1000:1000 $base/test.slice{,/suite.scope}{,/cgroup.{procs,threads,subtree_control}} || return 1
    fi
}

run_suite() {
    local owner=${suite%%:*} name=${suite#*:} target enter=() command
    case $name in
    limits) target=/carrel/tests/qemu/test_limits.py ;;
    boot) target=/carrel/tests/qemu/test_boot.py ;;
    fork) target=/carrel/tests/attack; export CARREL_WAY=fork ;;
    *) target=/carrel/tests/$name ;;
    esac
    setup_cgroup "$owner" || return 97
    if [ "$owner" = user ]; then
        enter=(setpriv --reuid 1000 --regid 1000 --init-groups --inh-caps=-all)
        export HOME=/home/user USER=user XDG_RUNTIME_DIR=/run/user/1000
    fi
    export CARREL=/carrel/build/carrel CARREL_PROBE=/carrel/build/probe CARREL_ZYGOTE=/carrel/build/zygote
    export CARREL_RACE=40 CARREL_CHURN=20
    export CARREL_TEST_SLOW=8  # for deadlines; nothing is decided by time
    export TMPDIR=/var/tmp      # a disk, not a tmpfs
    export PYTHONPATH=/carrel/site PYTHONDONTWRITEBYTECODE=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
    cd /carrel || return 97
    (
        echo $BASHPID > /sys/fs/cgroup/test.slice/suite.scope/cgroup.procs || exit 97
        [ "$name" != boot ] || "${enter[@]}" $CARREL doctor
        # INT, so that pytest still tells what has failed.
        command=(/usr/bin/python3 -m pytest -v --tb=short -rs --durations=5 "$target")
        [ "$name" != engine ] || command=(/carrel/build/test_engine host)
        cd "$HOME" && exec timeout -s INT -k 20 "$limit" "${enter[@]}" "${command[@]}"
    )
}

# The units of packaging/, as they are installed, under a systemd that is this machine's own. It ends the machine itself.
start_systemd() {
    local units=/etc/systemd/system
    mount -t tmpfs -o mode=755 local /usr/local && mkdir -p $units /usr/local/bin /usr/local/libexec /etc/carrel &&
    cp /carrel/build/carrel /usr/local/bin/ && cp /carrel/build/carrel-server /carrel/build/carrel-egress /usr/local/libexec/ &&
    cp /carrel/packaging/*.service /carrel/packaging/*.socket $units/ && cp /carrel/packaging/carrel.yaml /etc/carrel/ || finish 98
    head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n' > /etc/machine-id
    printf '[Unit]\nWants=units.service\n' > $units/units.target
    printf '%s\n' '[Unit]' 'Wants=carrel.service' 'After=carrel.service' '[Service]' Type=oneshot StandardOutput=tty \
        StandardError=tty TTYPath=/dev/console "Environment=MARK=$mark" "TimeoutStartSec=$limit" \
        'ExecStart=/bin/bash /carrel/tests/qemu/units.sh' > $units/units.service
    exec /usr/lib/systemd/systemd --unit=units.target --show-status=false
}

setup_host || finish 98
echo "guest: $(uname -r), suite $suite, cgroup v2: $(< /sys/fs/cgroup/cgroup.controllers)"
[ "$suite" != root:units ] || start_systemd
run_suite
finish $?
