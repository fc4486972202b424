#!/bin/busybox sh
# shellcheck shell=sh disable=SC1090,SC1091,SC2154
# The first process of a guest: makes it a host of the network, runs the script that the kernel's command
# line names (role=), and switches the machine off, whatever came of it. The command line's other words
# are variables here as well: guest, other, address, server, port, operations.
/bin/busybox mount -t devtmpfs devtmpfs /dev
exec </dev/console >/dev/console 2>&1
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /tmp
while read -r module; do modprobe "$module"; done </etc/modules
hostname "$guest"
echo "$address $guest" >>/etc/hosts
ip link set lo up
ip link set eth0 up
ip address add "$address/24" dev eth0
. /guest/checks.sh
echo; echo "KERNEL $(uname -r)"
. "/guest/$role.sh"
echo "END $failures"
sync
poweroff -f
