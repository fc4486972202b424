"""How NFS gateways show to whoever keeps a pool alive: in `status`, `down` and metrics, and at the port
mapper."""

import os
import shutil
import socket
import subprocess
import urllib.request

import nfs_protocol as p
import pytest
from gateways import OPEN, Gateway, export
from pools import wait_until


def gateways_of(pool):
    return pool.status()["gateways"]


def test_status_shows_gateways_and_their_clients(pool):
    gateway = Gateway(pool.world, pool, exports=OPEN + export("/data"))
    try:
        with gateway.share() as share:
            (shown,) = gateways_of(pool)
            assert shown["address"] == f"{gateway.host}:{gateway.port}"
            assert shown["pid"] == gateway.child.pid
            assert shown["container"] == "default"
            assert shown["exports"] == ["/", "/data"]
            assert shown["clients"] == ["127.0.0.1"]
            assert shown["connections"] >= 1
            root = share.root()

            def is_busy():
                for _ in range(200):
                    assert share.getattr(root)[0] == p.OK
                return gateways_of(pool)[0]["rates"]["calls_per_s"] > 0

            wait_until(is_busy, "the gateway is busy")
            assert gateways_of(pool)[0]["calls"] >= shown["calls"] + 200
        text = pool.world.run("status", pool.name).stdout
        assert f"{gateway.host}:{gateway.port}" in text and "/data" in text
        assert gateway.stop() == (0, "")
        assert gateways_of(pool) == []
    finally:
        gateway.kill()


def test_a_gateway_that_was_killed_is_not_shown(pool):
    gateway = Gateway(pool.world, pool)
    assert [shown["pid"] for shown in gateways_of(pool)] == [gateway.child.pid]
    gateway.kill()
    assert gateways_of(pool) == []


def test_a_pool_does_not_go_from_under_a_gateway_unsaid(world):
    pool = world.pool()
    of = ["--pool", pool.name]
    world.run("container", "create", "scratch", *of)
    gateway = Gateway(world, pool, exports=OPEN)
    try:
        end = f"kill {gateway.child.pid}"
        refused = pool.down("--destroy", "--yes", check=False)
        assert refused.returncode != 0 and end in refused.stderr
        refused = world.run("container", "destroy", "default", "--yes", *of, check=False)
        assert refused.returncode != 0 and end in refused.stderr
        world.run("container", "destroy", "scratch", "--yes", *of)
        said = pool.down().stderr
        assert f"process {gateway.child.pid} serves pool" in said and end in said
        pool.up()
        with gateway.share() as share:
            assert share.getattr(share.root())[0] == p.OK
        assert gateway.stop()[0] == 0
        pool.down("--destroy", "--yes")
    finally:
        gateway.kill()


def test_metrics_are_served(pool):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    gateway = Gateway(pool.world, pool, "--metrics", f"127.0.0.1:{port}")
    try:
        with gateway.share() as share:
            share.root()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                text = answer.read().decode()
        assert 'azekura_nfs_calls_total{program="mount",procedure="MNT"} 1\n' in text
    finally:
        gateway.kill()


# Port 111 and the files of rpcbind are a host's only ones, so each test has a host of its own.
NAMESPACES = ["unshare", "--net", "--mount"]
START = """
set -e
ip link set lo up
mount -t tmpfs none /run
trap 'kill $gateway $mapper 2> /dev/null; wait' EXIT
"""
SERVE = """
"$@" --portmap > /run/ready &
gateway=$!
for _ in $(seq 300); do [ -s /run/ready ] && break; kill -0 $gateway; sleep 0.1; done
"""
RPCBIND = """
rpcbind -f &
mapper=$!
for _ in $(seq 100); do rpcinfo -p > /dev/null 2>&1 && break; sleep 0.1; done
"""
ASK = """
rpcinfo -p 127.0.0.1
rpcinfo -t 127.0.0.1 nfs 3
rpcinfo -t 127.0.0.1 nlockmgr 4
rpcinfo -u 127.0.0.1 status 1
showmount -e 127.0.0.1
"""


def on_its_own_host(pool, script):
    needed = ["unshare", "rpcbind", "rpcinfo", "showmount", "ip"]
    missing = [tool for tool in needed if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    listen = ["--listen", "127.0.0.1:2049", "--mount-port", "20048"]
    command = pool.world.command("nfs", pool.name, *listen)
    done = subprocess.run(
        [*NAMESPACES, "bash", "-c", START + script, "host", *map(str, command)],
        env=pool.world.environment | {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def check_answers(lines):
    listed = {tuple(line[:4]) for line in lines if line and line[0].isdecimal()}
    assert ("100003", "3", "tcp", "2049") in listed
    assert ("100005", "3", "tcp", "20048") in listed
    assert ("100021", "4", "tcp", "2049") in listed
    ready = [line for line in lines if line[-3:] == ["ready", "and", "waiting"]]
    assert [line[1] for line in ready] == ["100003", "100021", "100024"]
    assert ["/", "::1/128,127.0.0.0/8"] in lines or ["/", "127.0.0.0/8,::1/128"] in lines


@pytest.mark.root
def test_a_gateway_is_the_port_mapper_where_there_is_none(pool):
    check_answers(on_its_own_host(pool, SERVE + ASK))


@pytest.mark.root
def test_a_gateway_is_known_to_the_port_mapper_of_its_host(pool):
    end = "echo END\nkill $gateway\nwait $gateway\nrpcinfo -p\n"
    lines = on_its_own_host(pool, RPCBIND + SERVE + ASK + end)
    ended = lines.index(["END"])
    check_answers(lines[:ended])
    left = {line[0] for line in lines[ended:] if line and line[0].isdecimal()}
    assert left == {"100000"}, "it takes its entries away"
