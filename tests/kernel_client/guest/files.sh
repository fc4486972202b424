# shellcheck shell=sh disable=SC2012,SC2154,SC2164
# What one guest does with files, without locks. Each check runs under `set -e`, from a shell of its own.

M=/mnt

unpack() { cd $M; mkdir tree; tar xf /guest/tree.tar -C tree; }

same_as_in_memory() {
    mkdir /tmp/tree
    tar xf /guest/tree.tar -C /tmp/tree
    diff -r /tmp/tree $M/tree
    # Names, kinds, modes, sizes and times, each relative to the tree.
    for tree in /tmp/tree $M/tree; do
        (cd "$tree"; find . -type f -exec stat -c '%n %F %a %s %Y' {} + | sort) >/tmp/list
        sha256sum </tmp/list
    done | uniq | wc -l | grep -qx 1
}

build() {
    cd $M/tree
    cp /guest/small.c .
    tcc -Wall -o small small.c
    ./small $M/tree/small.out
    grep -q 'written by a program on the mount' small.out
    # A shared program's pages come from the file: another one in its place is another file.
    cp small small2
    mv small2 small
    ./small $M/tree/small.out
}

copy() { cp -a $M/tree $M/copy; diff -r $M/tree $M/copy; }

move() {
    cd $M
    mv copy moved
    succeeds_not test -e copy
    mkdir deep
    mv moved deep/moved
    diff -r tree deep/moved
    echo old >one; echo new >two
    mv two one
    grep -qx new one
    succeeds_not test -e two
}

links() {
    cd $M
    echo text >first
    ln first second
    test "$(stat -c %h first)" = 2
    test "$(stat -c %i first)" = "$(stat -c %i second)"
    echo more >>second
    grep -qx more first
    rm first
    test "$(stat -c %h second)" = 1
    ln -s second symbolic
    test "$(readlink symbolic)" = second
    grep -qx text symbolic
    ln -s nowhere dangling
    succeeds_not cat dangling
    mkfifo fifo; test -p fifo
    mknod null c 1 3; echo gone >null; test -c null
}

attributes() {
    cd $M
    echo text >attributes
    chmod 4751 attributes
    chown 1000:1000 attributes
    touch -d '2001-02-03 04:05:06' attributes
    truncate -s 5000000000 attributes
    echo 3 >/proc/sys/vm/drop_caches
    test "$(stat -c '%u %g %s' attributes)" = '1000 1000 5000000000'
    touch -d '2001-02-03 04:05:06' attributes
    test "$(stat -c '%y' attributes | cut -c1-19)" = '2001-02-03 04:05:06'
    test "$(df -P $M | awk 'END { print ($2 > 0) }')" = 1
}

permissions() {
    cd $M
    mkdir -m 700 closed; echo secret >closed/file
    echo secret >private; chmod 600 private
    mkdir -m 777 open
    as() { su user -s /bin/sh -c "$*"; }
    succeeds_not as cat $M/private
    succeeds_not as ls $M/closed
    succeeds_not as touch $M/closed/new
    as "echo mine > $M/open/mine"
    test "$(stat -c '%u %g' open/mine)" = '1000 1000'
    succeeds_not as chown 0 $M/open/mine
}

# A file that is open and removed stays readable: the kernel gives it another name until it is closed.
removed_while_open() {
    cd $M
    mkdir busy
    echo text >busy/file
    exec 5<busy/file
    rm busy/file
    test "$(find busy -name '.nfs*' | wc -l)" = 1
    grep -qx text <&5
    exec 5<&-
    rmdir busy
}

appends() {
    cd $M
    i=0
    while [ $i -lt 300 ]; do echo "line $i" >>log; i=$((i + 1)); done
    echo 3 >/proc/sys/vm/drop_caches
    seq 0 299 | sed 's/^/line /' | diff - log
}

large() {
    cd $M
    dd if=/dev/urandom of=/tmp/large bs=1M count=200
    sum=$(sha256sum </tmp/large)
    cp /tmp/large large
    sync
    rm /tmp/large
    echo 3 >/proc/sys/vm/drop_caches
    test "$(sha256sum <large)" = "$sum"
    test "$(stat -c %s large)" = 209715200
}

many_names() {
    mkdir $M/many; cd $M/many
    i=0
    while [ $i -lt 2000 ]; do : >file-with-a-rather-long-name-$i; i=$((i + 1)); done
    echo 3 >/proc/sys/vm/drop_caches
    test "$(ls | wc -l)" = 2000
    test "$(ls | sort -u | wc -l)" = 2000
    ls -l | awk 'END { exit NR != 2001 }'
    # Removed while it is listed.
    find . -type f -name '*7' -exec rm {} ';'
    test "$(ls | wc -l)" = 1800
    cd $M; rm -r many
}

exercise() { fsx -q -f /guest/fsx.toml -P /tmp -S 1 -N "$operations" $M/fsx-file; }

# With blocks that are none of the gateway's favourites, and each write waited for.
exercise_small() {
    mount_export /tmp/small nolock,sync,rsize=4096,wsize=4096
    grep -q ' /tmp/small nfs .*wsize=4096' /proc/mounts
    fsx -q -f /guest/fsx.toml -P /tmp -S 2 -N $((operations / 20)) /tmp/small/fsx-small
    umount.nfs /tmp/small
}

remove() {
    cd $M
    rm -rf -- *
    test -z "$(ls -A)"
}

check 'mount, nolock' mount_export $M nolock
check 'tar x of a source tree' unpack
check 'the tree is the same as in memory' same_as_in_memory
check 'a C program built and run there' build
check 'cp -a of the tree' copy
check 'mv of trees and over files' move
check 'hard links, symbolic links, special files' links
check 'modes, owners, sizes, times' attributes
check 'what users may' permissions
check 'a file removed while open' removed_while_open
check 'appending' appends
check '200 MiB written, dropped from the cache, read' large
check 'a directory of 2,000 files' many_names
check "fsx, $operations operations" exercise
check 'fsx, blocks of 4 KiB, synchronous' exercise_small
check 'rm -rf of all' remove
check 'umount' umount.nfs $M
