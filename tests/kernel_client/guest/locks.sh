# shellcheck shell=sh disable=SC2154
# What two guests do with locks. Each goes through all of it, and they meet before each step: `one` holds
# what `two` then tries to get.

M=/mnt
F=$M/locked
EAGAIN=11
EINTR=4
EDEADLK=35

start_daemons() {
    rpcbind -w
    sleep 1
    rpc.statd --no-notify
    sleep 1
}

build() { tcc -Wall -o /tmp/locks /guest/locks.c; }

# meet STEP: waits, half a minute at most, until the other guest has come to this step, too.
meet() {
    : >"$M/$1-$guest"
    tries=0
    until [ -e "$M/$1-$other" ]; do
        tries=$((tries + 1))
        [ $tries -lt 300 ]
        usleep 100000
    done
}

# gives CODE COMMAND...: the command ends with this code.
gives() {
    wanted=$1
    shift
    code=0
    "$@" || code=$?
    echo "$*: $code"
    [ $code = "$wanted" ]
}

# start_holding COMMAND...: comes back once it holds the lock. It holds it until file descriptor 7 closes.
start_holding() {
    rm -f /tmp/until /tmp/held
    mkfifo /tmp/until
    "$@" </tmp/until >/tmp/held 7>&- &
    holder=$!
    exec 7>/tmp/until
    tries=0
    until grep -q . /tmp/held; do
        tries=$((tries + 1))
        [ $tries -lt 600 ]
        usleep 100000
    done
    cat /tmp/held
    grep -qx held /tmp/held
}

stop_holding() { exec 7>&-; wait "$holder"; }

# waiting HOW: `one` holds a lock for four seconds, and then leaves it in the way that HOW says. `two`
# has to wait for it, not much longer (a kernel that is not called back asks again after 30 s), and to
# see what was written under it.
waiting() {
    how=$1
    if [ "$guest" = one ]; then
        echo before >$F
        start_holding /tmp/locks "$how" $F 0 0
        meet "$how-held"
        meet "$how-seen"
        sleep 4
        echo "written under $how" >$F
        stop_holding
    else
        meet "$how-held"
        gives $EAGAIN /tmp/locks try $F 0 0
        gives $EAGAIN /tmp/locks try-shared $F 0 0
        started=$(cut -d. -f1 /proc/uptime)
        meet "$how-seen"
        gives 0 timeout 60 /tmp/locks wait $F 0 0
        took=$(($(cut -d. -f1 /proc/uptime) - started))
        echo "waited $took s"
        grep -qx "written under $how" $F
        [ $took -ge 3 ]
        [ $took -le 12 ]
    fi
    meet "$how-end"
}

ranges() {
    if [ "$guest" = one ]; then
        start_holding /tmp/locks hold $F 100 100
        meet ranges-held
        meet ranges-tried
        stop_holding
    else
        meet ranges-held
        gives 0 /tmp/locks try $F 0 100
        gives 0 /tmp/locks try $F 200 0
        gives $EAGAIN /tmp/locks try $F 199 1
        gives $EAGAIN /tmp/locks try $F 50 51
        meet ranges-tried
    fi
    meet ranges-end
}

sharing() {
    start_holding /tmp/locks hold-shared $F 0 0
    meet shared-held
    gives $EAGAIN /tmp/locks try $F 0 0
    meet shared-tried
    stop_holding
    meet shared-end
    if [ "$guest" = one ]; then gives 0 /tmp/locks try $F 0 0; fi
}

flocks() {
    if [ "$guest" = one ]; then
        start_holding /tmp/locks hold $F 0 0
        meet flock-held
        meet flock-tried
        stop_holding
        meet flock-free
    else
        meet flock-held
        gives $EAGAIN /tmp/locks try-flock $F
        meet flock-tried
        meet flock-free
        gives 0 /tmp/locks try-flock $F
    fi
    meet flock-end
}

# Who gives up waiting has no lock afterwards that nobody knows of.
giving_up() {
    if [ "$guest" = one ]; then
        start_holding /tmp/locks hold $F 0 0
        meet given-held
        meet given-up
        stop_holding
        sleep 1
        gives 0 /tmp/locks try $F 0 0
    else
        meet given-held
        gives $EINTR /tmp/locks wait-a-second $F 0 0
        meet given-up
    fi
    meet given-end
}

excluding() {
    if [ "$guest" = one ]; then echo 0 >$M/number; fi
    meet count-start
    gives 0 timeout 100 /tmp/locks count $M/number "$counts"
    meet count-end
    gives 0 /tmp/locks try $M/number 0 1
    grep -qx $((2 * counts)) $M/number
}

crosswise() {
    mine=1 theirs=2
    if [ "$guest" = two ]; then mine=2 theirs=1; fi
    start_holding /tmp/locks cross $F $mine $theirs
    meet cross-held
    exec 7>&-
    code=0
    wait "$holder" || code=$?
    echo $code >"$M/cross-code-$guest"
    meet cross-end
    cat "$M/cross-code-one" "$M/cross-code-two"
    test "$(cat "$M/cross-code-one" "$M/cross-code-two" | sort -n | xargs)" = "0 $EDEADLK"
}

check 'port mapper and status daemon' start_daemons
# Without a cache of names, as the guests look for each other's files.
check 'mount with locks' mount_export $M lookupcache=none
check 'the lock program built' build
check 'fcntl: who waits gets the lock' waiting hold
check 'fcntl: who waits gets the lock of one that ended' waiting hold-and-exit
check 'fcntl: ranges' ranges
check 'fcntl: shared locks' sharing
check 'flock against fcntl' flocks
check 'fcntl: giving up' giving_up
check "fcntl: $counts times each, excluding each other" excluding
check 'fcntl: waiting crosswise' crosswise
check 'umount' umount.nfs $M
