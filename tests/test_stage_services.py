"""Staging jobs whose files are at home in a pool, in a service, or at another local path."""

import contextlib
import getpass
import hashlib
import os
import random
import shutil
import socket
import subprocess
import sys
import threading

import pytest
from pools import BINARY, free_ports, wait_until
from services import S3, Dead, WebDav, WebHdfs, fill, place
from staging import Site

BYTES = random.Random(12).randbytes(3 << 20)
NAMES = ["plain", "with space", "ünïcödé", "100%25", "a+b&c=d", "sub dir/deep/er"]
KINDS = [S3, WebDav, WebHdfs]
# The home as programs see it; no host has it.
SEEN = "/no-such-place/data"


@pytest.fixture(scope="module")
def _services():
    """Skips what needs services where the program was built without them."""
    words = [BINARY, "stage", "run", "--map", f"{SEEN}=ro@gs://b/x"]
    words += ["--cache", "/tmp", "--", "true"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "built without services" in done.stderr:
        pytest.skip("this program was built without services")


@pytest.fixture
def plain_site(world):
    return Site(world)


@pytest.fixture
def site(_services, plain_site):
    return plain_site


def mapped(server, kind, prefix=""):
    return ("--map", f"{SEEN}={kind}@{server.url(prefix)}")


def run(site, server, *words, **more):
    return site.run(*words, env=environment(site, server), **more)


def environment(site, server):
    return {**site.world.environment, "NO_PROXY": "127.0.0.1", **server.environment}


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_any_name_come_and_equal_the_originals(site, kind):
    files = {name: random.Random(name).randbytes(5000 + len(name)) for name in NAMES}
    files["large"] = BYTES
    files["empty"] = b""
    with kind() as server:
        fill(server, files)
        script = (
            "cd $0 && find . -type f | sort && sha256sum * */*/* 2>/dev/null; test ! -e none/x; "
            "stat -c %a plain 'sub dir'"
        )
        done = run(site, server, *mapped(server, "ro"), "--", "sh", "-c", script, SEEN, check=False)
        for name, data in files.items():
            assert f"./{name}\n" in done.stdout, done.stderr
            assert f"{hashlib.sha256(data).hexdigest()}  {name}\n" in done.stdout, done.stderr
        assert "644\n755\n" in done.stdout
        assert done.returncode == 0, done.stderr
    assert site.left() == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_goes_home_under_its_name_and_nothing_else_does(site, kind):
    with kind() as server:
        fill(server, {"old": b"old", "gone": b"gone", "kept": b"kept"})
        script = (
            "cd $0; head -c 3000000 /dev/zero >'big one'; echo new >old; rm gone; "
            "mkdir -p d/e; echo x >d/e/f; : >nothing; cat kept"
        )
        done = run(site, server, *mapped(server, "rw"), "--", "sh", "-c", script, SEEN)
        assert done.stdout == "kept"
        at_home = {path: server.files.get(place(server, path)) for path in ("old", "gone", "d/e/f")}
        assert at_home == {"old": b"new\n", "gone": None, "d/e/f": b"x\n"}
        assert server.files[place(server, "big one")] == bytes(3_000_000)
        assert server.files[place(server, "nothing")] == b""
        assert not [path for path in server.files if "azekura-" in path]


def test_an_absent_name_is_asked_for_once(site):
    with S3() as server:
        fill(server, {"there": b"x"})
        script = "for i in 1 2 3 4; do cat $0/none; done; cat $0/there"
        done = run(site, server, *mapped(server, "ro"), "--", "sh", "-c", script, SEEN)
        assert done.stdout == "x"
        assert done.stderr.count("No such file") == 4
        assert server.count("HEAD", "none") == 0, server.asked


def test_a_listing_of_many_pages_is_whole(site):
    with S3() as server:
        fill(server, {f"set/{number:05}": b"" for number in range(2500)})
        done = run(site, server, *mapped(server, "ro", "set"), "--", "ls", SEEN)
        assert done.stdout.split() == [f"{number:05}" for number in range(2500)]


def test_ranges_are_asked_for_side_by_side(site):
    data = random.Random(3).randbytes(24 << 20)
    at_once, most = [0], [0]
    lock = threading.Lock()
    gate = threading.Barrier(3, timeout=20)

    def wait(_path, begin, _end):
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        # The first ranges are given when three of them were asked for.
        if begin < (2 << 20):
            gate.wait()
        with lock:
            at_once[0] -= 1

    with S3() as server:
        fill(server, {"large": data})
        server.before_get = wait
        done = run(site, server, *mapped(server, "ro"), "--", "sha256sum", f"{SEEN}/large")
        assert done.stdout.split()[0] == hashlib.sha256(data).hexdigest()
        assert most[0] >= 3
        assert 6 <= server.count("GET", "large") <= 16


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_changes_while_it_is_read_is_read_again(site, kind):
    first, second = bytes(9 << 20), b"\1" * (9 << 20)
    with kind() as server:
        fill(server, {"file": first})
        changed = []

        def change(_path, begin, _end):
            if begin > (3 << 20) and not changed:
                changed.append(begin)
                fill(server, {"file": second})

        server.before_get = change
        words = ("--whole", "--", "sha256sum", f"{SEEN}/file")
        done = run(site, server, *mapped(server, "ro"), *words)
        assert changed
        assert done.stdout.split()[0] == hashlib.sha256(second).hexdigest()
        assert "changed while it was read" in done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_dies_is_an_error_and_no_half_file(site, kind):
    def die(_path, begin, _end):
        if begin > (3 << 20):
            raise Dead

    with kind() as server:
        fill(server, {"file": bytes(9 << 20)})
        server.before_get = die
        script = "cat $0/file | wc -c; cat $0/file"
        words = ("--whole", "--", "sh", "-c", script, SEEN)
        done = run(site, server, *mapped(server, "ro"), *words, check=False)
        assert done.stdout.split() == ["0"]
        assert "Input/output error" in done.stderr
        assert "cannot read" in done.stderr or "cannot open" in done.stderr
        assert f"127.0.0.1:{server.port}" in done.stderr or "s3://bucket/" in done.stderr
        assert done.returncode != 0
    assert site.left() == []


@pytest.mark.parametrize("same", [0, 4 << 20], ids=["all of it", "behind what was read"])
def test_who_reads_a_file_while_it_comes_and_changes_gets_one_version(site, same):
    first = bytes(9 << 20)
    second = first[:same] + b"\1" * (len(first) - same)
    with S3() as server:
        fill(server, {"file": first})
        changed = []

        def change(_path, begin, _end):
            # The program may have what comes before that.
            if begin > (3 << 20) and not changed:
                changed.append(begin)
                fill(server, {"file": second})

        server.before_get = change
        script = "sha256sum $0/file; sha256sum $0/file"
        done = run(site, server, *mapped(server, "ro"), "--", "sh", "-c", script, SEEN)
        assert changed
        sums = {line.split()[0] for line in done.stdout.splitlines()}
        assert sums == {hashlib.sha256(second).hexdigest()}, done.stderr
        if same:
            assert "Input/output error" not in done.stderr
            assert len(done.stdout.splitlines()) == 2
        assert "changed while it was read" in done.stderr
    assert site.left() == []


def test_who_reads_a_file_while_its_server_dies_gets_what_came_and_an_error(site):
    data = random.Random(4).randbytes(9 << 20)

    def die(_path, begin, _end):
        if begin > (3 << 20):
            raise Dead

    with S3() as server:
        fill(server, {"file": data})
        server.before_get = die
        script = "cat $0/file >$1; echo $?; cat $0/file >$1.again"
        out = site.world.base / "got"
        words = ("--", "sh", "-c", script, SEEN, out)
        done = run(site, server, *mapped(server, "ro"), *words, check=False)
        assert done.stdout.splitlines()[0] == "1"
        got = out.read_bytes()
        assert len(got) <= 4 << 20
        assert data.startswith(got)
        assert "Input/output error" in done.stderr
        assert done.returncode != 0
    assert site.left() == []


def test_wrong_keys_are_told_of_before_anything_starts(site):
    with S3() as server:
        fill(server, {"x": b"x"})
        server.authorization = "another-key"
        done = run(site, server, *mapped(server, "ro"), "--", "touch", site.home / "ran", check=False)
        assert done.returncode == 1
        for part in ("s3://bucket/", "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"):
            assert part in done.stderr
        assert "test-secret" not in done.stderr
        assert not (site.home / "ran").exists()
    with WebDav() as server:
        server.authorization = "Basic nobody"
        done = run(site, server, *mapped(server, "ro"), "--", "true", check=False)
        assert done.returncode == 1
        for part in ("WebDAV", "who are you", "WEBDAV_USERNAME"):
            assert part in done.stderr


def test_twenty_mebibytes_go_out_in_parts(site):
    data = random.Random(4).randbytes(20 << 20)
    (site.home / "made").write_bytes(data)
    with S3() as server:
        words = ("--", "cp", site.home / "made", f"{SEEN}/result")
        run(site, server, *mapped(server, "out", "new/prefix"), *words)
        assert server.files["new/prefix/result"] == data
        assert server.etags["new/prefix/result"].endswith('-3"')
        assert server.uploads == {}
        # The name of the version says enough: nothing is read back.
        assert server.count("GET", "result") == 0


def test_a_wrong_byte_on_the_service_is_found(site):
    with S3() as server:
        server.spoils = True
        words = ("--manifest", site.home / "m", "--", "sh", "-c", f"echo right >{SEEN}/x")
        done = run(site, server, *mapped(server, "out"), *words, check=False)
        assert done.returncode == 75
        assert "other bytes are there" in done.stderr
        assert "x" not in server.files


def test_what_a_service_cannot_keep_is_said(site):
    with S3() as server:
        script = f"ln -s a {SEEN}/link; echo a >{SEEN}/a; mkdir {SEEN}/empty"
        words = ("--manifest", site.home / "m", "--", "sh", "-c", script)
        done = run(site, server, *mapped(server, "out"), *words, check=False)
        assert done.returncode == 75
        assert "S3 has no symlinks" in done.stderr
        assert server.files == {"a": b"a\n", "empty/": b""}
        # What is left can be sent when there is something else in its place.
        assert "stage resume" in done.stderr


def test_results_that_a_dead_service_did_not_take_are_sent_later(site):
    with S3() as server:
        mark = site.home / "written"
        kill = f"echo kept >{SEEN}/x; touch {mark}; while [ -e {mark} ]; do sleep 0.05; done"
        env = environment(site, server)
        manifest = site.home / "m"
        site.world.environment = env
        job = site.start(*mapped(server, "out"), "--manifest", manifest, "--", "sh", "-c", kill)

        def is_written():
            assert job.child.poll() is None, job.text
            return mark.exists()

        wait_until(is_written, "the command has written")
        server.is_dead = True
        mark.unlink()
        assert job.wait() == 75, job.text
        assert "reachable" in job.text
        server.is_dead = False
        site.world.run("stage", "resume", manifest)
        assert server.files == {"x": b"kept\n"}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (f"{SEEN}=ro@hdfs://h/x", "webhdfs://"),
        (f"{SEEN}=ro@gs://b/x", "s3, webdav"),
        (f"{SEEN}=ro@https://h/x", "webdavs://"),
        (f"{SEEN}=ro@s3://b/x?password=geheim", "AWS_SECRET_ACCESS_KEY"),
        (f"{SEEN}=ro@webdav://me:geheim@h/x", "WEBDAV_PASSWORD"),
        (f"{SEEN}=ro@nothing", "POOL:/path"),
        (f"{SEEN}@s3://b/x", "DIR=ro@s3://"),
    ],
)
def test_homes_that_cannot_be_say_what_to_write(site, value, says):
    done = site.run("--map", value, "--", "true", check=False)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "geheim" not in done.stderr


def test_local_files_are_seen_at_another_path(site):
    (site.home / "a b").mkdir()
    (site.home / "a b" / "file").write_bytes(BYTES)
    (site.home / "a b" / "run").write_text("#!/bin/sh\necho runs\n")
    (site.home / "a b" / "run").chmod(0o755)
    url = f"file://{site.home}/a%20b"
    script = f"sha256sum {SEEN}/file; {SEEN}/run; echo x >{SEEN}/new"
    done = site.run("--map", f"{SEEN}=rw@{url}", "--", "sh", "-c", script)
    assert done.stdout.split()[0] == hashlib.sha256(BYTES).hexdigest()
    assert "runs" in done.stdout
    assert (site.home / "a b" / "new").read_text() == "x\n"


def test_small_files_are_asked_for_side_by_side(site):
    files = {f"f{number:02}": f"{number}".encode() for number in range(40)}
    gate = threading.Barrier(4, timeout=20)
    first = threading.Semaphore(4)

    def wait(_path, _begin, _end):
        # Only when four were asked for the first of them are given.
        if first.acquire(blocking=False):
            gate.wait()

    with S3() as server:
        fill(server, files)
        server.before_get = wait
        script = '"$AZEKURA_BIN" stage in $0 && cat $0/*'
        done = run(site, server, *mapped(server, "ro"), "--", "sh", "-c", script, SEEN)
        assert sorted(done.stdout) == sorted("".join(data.decode() for data in files.values()))


def test_a_small_file_costs_two_requests_of_s3(site):
    with S3() as server:
        fill(server, {"small": b"x", "large": bytes(1 << 20)})
        done = run(site, server, *mapped(server, "ro"), "--", "sh", "-c", "cat $0/small", SEEN)
        assert done.stdout == "x"
        assert (server.count("HEAD", "small"), server.count("GET", "small")) == (1, 1)
        run(site, server, *mapped(server, "ro"), "--", "sh", "-c", "cat $0/large | wc -c", SEEN)
        # Not one for each piece.
        assert server.count("HEAD", "large") == 1


def test_an_answer_that_the_library_cannot_read_is_an_error_of_that_call(site):
    with WebDav() as server:
        fill(server, {"good": b"good", "odd/x": b"x"})
        # It takes this for a number, whatever it is.
        server.lengths[place(server, "odd/x")] = "many"
        script = "ls $0/odd; cat $0/good"
        done = run(site, server, *mapped(server, "ro"), "--", "sh", "-c", script, SEEN)
        assert done.stdout == "good"
        assert "Input/output error" in done.stderr
        assert "cannot read the answer" in done.stderr


def test_a_pool_is_a_home_with_all_that_a_directory_keeps(plain_site):
    site = plain_site
    pool = site.world.pool(memory=True)
    tree = site.home / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "file").write_bytes(BYTES)
    (tree / "sub" / "run").write_text("#!/bin/sh\necho runs\n")
    (tree / "sub" / "run").chmod(0o750)
    (tree / "link").symlink_to("sub/run")
    os.utime(tree / "file", (1_000_000_000, 1_000_000_000))
    site.world.run("fs", "put", "-r", tree, f"{pool.name}:/runs")
    script = (
        f"cd {SEEN}; sha256sum file; ./link; stat -c %a-%Y file sub/run | head -1; test ! -e none; "
        "echo more >sub/new; chmod 640 sub/new; touch -d @1000000001 sub/new; ln -s new sub/l; rm file"
    )
    done = site.run("--map", f"{SEEN}=rw@{pool.name}:/runs", "--", "sh", "-c", script)
    assert done.stdout.split()[0] == hashlib.sha256(BYTES).hexdigest()
    assert "runs\n" in done.stdout
    assert "-1000000000" in done.stdout
    back = site.home / "back"
    site.world.run("fs", "get", "-r", f"{pool.name}:/runs", back)
    assert sorted(str(path.relative_to(back)) for path in back.rglob("*")) == [
        "link",
        "sub",
        "sub/l",
        "sub/new",
        "sub/run",
    ]
    new = (back / "sub" / "new").stat()
    assert (new.st_mode & 0o777, new.st_mtime) == (0o640, 1_000_000_001)
    assert os.readlink(back / "sub" / "l") == "new"
    done = site.run("--map", f"{SEEN}=ro@{pool.name}:/none", "--", "true", check=False)
    assert done.returncode == 1
    assert f"{pool.name}:/none" in done.stderr


def test_python_reads_a_package_from_a_service(site):
    package = {f"pkg/m{number}.py": f"V = {number}\n".encode() for number in range(20)}
    package["pkg/__init__.py"] = b""
    with S3() as server:
        fill(server, package)
        script = (
            f"import importlib, sys; sys.path.insert(0, {SEEN!r}); sys.dont_write_bytecode = True; "
            "print(sum(importlib.import_module(f'pkg.m{n}').V for n in range(20)))"
        )
        done = run(site, server, *mapped(server, "ro"), "--", sys.executable, "-c", script)
        assert done.stdout == "190\n"


class Sshd:
    """An ssh server of this machine for one user and key, and an ssh that knows of no other hosts."""

    def __init__(self, world, program):
        base = world.base / "sshd"
        base.mkdir()
        (self.port,) = free_ports(1)
        # As root it would want a user of its own to be there; and nobody's account is locked for it.
        self.user = "daemon" if os.geteuid() == 0 else getpass.getuser()
        self.files = base / "files"
        self.files.mkdir()
        self.key = base / "key"
        for key in (self.key, base / "host"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        config = base / "config"
        config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {base}/host\nPidFile none\n"
            f"AuthorizedKeysFile {base}/key.pub\nStrictModes no\nUsePAM no\n"
            "Subsystem sftp internal-sftp\nForceCommand internal-sftp\n"
        )
        identity = {}
        if os.geteuid() == 0:
            identity = {"user": "daemon", "group": "daemon", "extra_groups": []}
            world.base.chmod(0o755)
            for path in [base, self.files, base / "host", base / "key.pub"]:
                shutil.chown(path, "daemon", "daemon")
        self.log = (base / "log").open("w")
        words = [program, "-D", "-e", "-f", config]
        self.child = subprocess.Popen(words, stdout=self.log, stderr=self.log, **identity)
        ssh = base / "bin" / "ssh"
        ssh.parent.mkdir()
        ssh.write_text(
            f'#!/bin/sh\nexec {shutil.which("ssh")} -o UserKnownHostsFile={base}/known "$@"\n'
        )
        ssh.chmod(0o755)
        self.environment = {**world.environment, "PATH": f"{ssh.parent}:{os.environ['PATH']}"}

        def listens():
            assert self.child.poll() is None, (base / "log").read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return True

        wait_until(listens, "sshd listens")

    def url(self, key=None):
        where = f"sftp://{self.user}@127.0.0.1:{self.port}{self.files}"
        return f"{where}?key={key or self.key}&known_hosts=add"

    def close(self):
        self.child.kill()
        self.child.wait()
        self.log.close()


@pytest.fixture
def sshd(site):
    program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if not program or not shutil.which("ssh"):
        pytest.skip("there is no sshd on this machine")
    server = Sshd(site.world, program)
    yield server
    server.close()


def test_files_come_from_a_host_and_go_back_by_sftp(site, sshd):
    (sshd.files / "sub dir").mkdir()
    (sshd.files / "sub dir" / "ü 100%").write_bytes(BYTES)
    (sshd.files / "old").write_text("old")
    (sshd.files / "gone").write_text("gone")
    shutil.chown(sshd.files / "sub dir", sshd.user)
    script = (
        "cd $0; sha256sum 'sub dir/ü 100%'; cat none; echo new >old; rm gone; mkdir d; "
        "head -c 3000000 /dev/zero >d/zeros; : >d/empty"
    )
    words = ("--map", f"{SEEN}=rw@{sshd.url()}", "--", "sh", "-c", script, SEEN)
    done = site.run(*words, env=sshd.environment)
    assert done.stdout.split()[0] == hashlib.sha256(BYTES).hexdigest()
    assert (sshd.files / "old").read_text() == "new\n"
    assert not (sshd.files / "gone").exists()
    assert (sshd.files / "d" / "zeros").read_bytes() == bytes(3_000_000)
    assert (sshd.files / "d" / "empty").read_bytes() == b""
    assert not list(sshd.files.rglob("*azekura-*"))


def test_a_wrong_key_for_sftp_is_told_of(site, sshd):
    other = site.world.base / "other-key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    words = ("--map", f"{SEEN}=ro@{sshd.url(other)}", "--", "true")
    done = site.run(*words, env=sshd.environment, check=False)
    assert done.returncode == 1
    for part in ("SFTP", "Permission denied", "BatchMode"):
        assert part in done.stderr


def test_names_that_are_not_text_do_not_end_a_job(site, sshd):
    (sshd.files / "good").mkdir()
    (sshd.files / "good" / "file").write_text("good")
    (sshd.files / "bad").mkdir()
    with open(os.path.join(os.fsencode(sshd.files), b"bad", b"\xff"), "w"):
        pass
    words = ("--map", f"{SEEN}=ro@{sshd.url()}", "--", "sh", "-c", "ls $0/bad; cat $0/good/file", SEEN)
    done = site.run(*words, env=sshd.environment)
    assert done.stdout == "good"
    assert "Input/output error" in done.stderr
    assert "cannot list" in done.stderr
