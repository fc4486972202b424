# shellcheck shell=sh disable=SC2154
# How a guest tells what it found: a line for each check, which the driver reads on the console.

failures=0

# check NAME COMMAND...: runs the command, and says how it went; its output only where it failed.
check() {
    name=$1
    shift
    started=$(cut -d' ' -f1 /proc/uptime)
    ( set -e; "$@" ) >/tmp/output 2>&1 </dev/null
    code=$?
    took=$(echo "$started $(cut -d' ' -f1 /proc/uptime)" | awk '{ printf "%.1f", $2 - $1 }')
    if [ $code = 0 ]; then
        echo "CHECK ok $took $name"
    else
        failures=$((failures + 1))
        echo "CHECK FAILED $took $name: exit code $code"
        tail -n 40 /tmp/output | sed 's/^/    /'
        dmesg | grep -E -i 'nfs|lockd|rpc|BUG|hung' | tail -n 5 | sed 's/^/    kernel: /'
    fi
}

# succeeds_not COMMAND...: for use in checks, where set -e does not see failures behind `!`.
succeeds_not() {
    if "$@"; then
        echo "succeeded, and should not have: $*"
        return 1
    fi
}

# mount_export DIRECTORY OPTIONS
mount_export() {
    mkdir -p "$1"
    mount.nfs "$server:/" "$1" -o "vers=3,tcp,port=$port,mountport=$port,$2"
}
