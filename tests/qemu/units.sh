#!/bin/bash
# Suite `units`, started by systemd after carrel.service: a box through the two units, which outlives the front's and ends with the keeper's.
export PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin HOME=/root LC_ALL=C.UTF-8
passed=0

finish() {
    echo
    echo "units: $passed passed, $1 failed in $SECONDS s"
    echo "$MARK $1"
    stty -F /dev/console sane
    sleep 10
    echo b > /proc/sysrq-trigger
}

fail() {
    echo "units: FAILED: $*"
    journalctl --no-pager -n 60 -u carrel.service -u carrel-keeper.service || systemctl --no-pager status carrel.service carrel-keeper.service
    finish 1
}

# check WHAT COMMAND...: the command succeeds, within five minutes; a box is asked for again and again while the front comes up.
check() {
    local what=$1 until=$((SECONDS + 300)) said
    shift
    until said=$(timeout 120 "$@" 2>&1); do
        [ $SECONDS -lt $until ] || fail "$what: $said"
        sleep 0.2
    done
    passed=$((passed + 1))
    echo "units: ok: $what${said:+: ${said:0:200}}"
}

pid_of() { systemctl show -p MainPID --value "$1"; }

check "the keeper's unit is active" systemctl is-active carrel-keeper.service
check "the front's unit is active" systemctl is-active carrel.service
check "a box is made" carrel create --name one --memory 64M --pids 32 --cpus 0.5
check "a command runs in it" carrel exec one -- sh -c 'echo hello; id -u'
keeper=$(pid_of carrel-keeper.service)
check "a box has a cgroup with its limits in the unit's" bash -c 'cat /sys/fs/cgroup/carrel.slice/carrel-keeper.service/carrel-[0-9]*/memory.max | grep -x 67108864'
check "and none outside of it" bash -c '! find /sys/fs/cgroup -maxdepth 2 -type d -name "carrel-[0-9]*" | grep .'
check "a box with a rule reaches a server of this machine" bash -c '
    python3 -m http.server --bind 127.0.0.1 8099 --directory /usr/share/doc >/dev/null 2>&1 & trap "kill $!" EXIT
    carrel create --name online --allow web.localhost:8099 || true
    carrel exec online -- python3 -c "import urllib.request as u; u.urlopen(\"http://web.localhost:8099/\")"'
check "a command stays in the background" carrel exec -d one -- sh -c 'while :; do date +%s; sleep 1; done'
check "the front restarts" systemctl restart carrel.service
check "the box is there again" carrel exec one -- true
check "and its keeper is the same" test "$(pid_of carrel-keeper.service)" = "$keeper"
check "carrel run asks the server for guaranteed memory" carrel run --memory 64M --request-memory 32M -- true
check "a front that is killed comes again" systemctl kill -s KILL carrel.service
check "and serves" carrel exec one -- true
check "the keeper's stop ends everything" systemctl stop carrel-keeper.service
check "no cgroup of a box is left" bash -c '! find /sys/fs/cgroup -type d -name "carrel-[0-9]*" | grep .'
finish 0
