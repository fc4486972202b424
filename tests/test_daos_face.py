"""The DAOS interface: programs that are written for it, built as they would be, on a pool."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from pools import TARGET, CommandError

SOURCES = Path(__file__).resolve().parent / "material" / "daos"
STRICT = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
RANKS = 4
PIECE = 100 * 1000 + 7
PIECES = 12

pytestmark = [
    pytest.mark.skipif(
        not (TARGET / "release/libdaos.so").exists() and "AZEKURA_BINARY" not in os.environ,
        reason="libdaos.so is not built",
    ),
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
]


@pytest.fixture(scope="module")
def prefix(module_world):
    """A prefix as `dev daos-prefix` lays it out."""
    place = module_world.base / "prefix"
    module_world.run("dev", "daos-prefix", place)
    return place


@pytest.fixture(scope="module")
def build(module_world, prefix):
    """Builds a program of this directory against the prefix."""

    def build(name, *sources, compiler="cc", flags=()):
        program = module_world.base / name
        command = [
            compiler,
            *STRICT,
            *flags,
            f"-I{prefix}/include",
            *(SOURCES / source for source in sources),
            *("-o", program),
            f"-L{prefix}/lib64",
            f"-Wl,-rpath,{prefix}/lib64",
            *("-lgurt", "-ldaos_common", "-ldaos", "-ldfs", "-lpthread"),
        ]
        run(command)
        return program

    return build


def run(command, environment=None, limit_s=100):
    done = subprocess.run(
        list(map(str, command)),
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=limit_s,
        check=False,
    )
    if done.returncode != 0:
        raise CommandError(done)
    return done


def mpirun(ranks):
    """The command that starts MPI ranks here, whoever we are and however few the cores."""
    command = ["mpirun", "-np", str(ranks)]
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False)
    if "Open MPI" in version.stdout:
        command += ["--oversubscribe", "--mca", "btl_vader_single_copy_mechanism", "none"]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
    return command


needs_mpi = pytest.mark.skipif(
    shutil.which("mpirun") is None or shutil.which("mpicc") is None, reason="needs MPI"
)


def expected(file, pieces=PIECES):
    """What a file of the job program holds."""
    bytes_of_file = pieces * PIECE
    return bytes((at * 131 + at // 251 + file * 17) & 0xFF for at in range(bytes_of_file))


def layout(world, place):
    [found] = world.json("fs", "get-attr", place)["files"]
    return found["class"], found["chunk_bytes"]


# -- the prefix


def test_the_prefix_has_what_build_systems_look_for(prefix):
    for name in ["daos.h", "daos_fs.h", "daos_uns.h", "gurt/common.h", "gurt/hash.h"]:
        assert (prefix / "include" / name).is_file()
    source = Path(__file__).resolve().parents[1] / "crates/daos/include"
    ours = {header.relative_to(source) for header in source.rglob("*.h")}
    include = prefix / "include"
    assert {header.relative_to(include) for header in include.rglob("*.h")} == ours
    whole = (prefix / "lib64/libdaos.so").resolve()
    for part in ["daos", "dfs", "duns", "gurt", "cart", "daos_common"]:
        name = f"lib{part}.so"
        for directory in ["lib", "lib64"]:
            assert (prefix / directory / name).resolve() == whole


def exported(prefix):
    """The functions of the library."""
    listed = run(["nm", "-D", "--defined-only", prefix / "lib64/libdaos.so"]).stdout
    return {line.split()[2] for line in listed.splitlines() if line.split()[1] == "T"}


def test_each_function_of_the_library_is_declared(prefix, tmp_path):
    """In the headers: each one can be named by a program, and all that they declare is there."""
    headers = sorted((prefix / "include").rglob("*.h"))
    names = exported(prefix)
    source = tmp_path / "all.c"
    lines = [f"#include <{header.relative_to(prefix / 'include')}>" for header in headers]
    lines += ["void (*const all[])(void) = {", *(f"(void (*)(void)){name}," for name in sorted(names))]
    source.write_text("\n".join([*lines, "};", ""]))
    # Functions of all types are put into one array.
    lenient = [flag for flag in STRICT if flag != "-Wextra"]
    run(["cc", *lenient, f"-I{prefix}/include", "-c", source, "-o", tmp_path / "all.o"])
    declared = set()
    for header in headers:
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL)
        prototype = r"^(?!static|typedef)[a-z][\w ]*[ *]\**((?:d|daos|dfs|duns)_\w+)\([^;{]*\);"
        declared.update(re.findall(prototype, text, flags=re.MULTILINE))
    assert declared == names


def test_the_page_names_every_function_and_its_state(prefix):
    page = (Path(__file__).resolve().parents[1] / "docs/DAOS.md").read_text()
    table = page.split("| Functions | State |\n|---|---|\n")[1].split("\n\n")[0]
    states = {}
    for row in table.splitlines():
        _, names, state, _ = row.split("|")
        for name in re.findall(r"`(\w+)`", names):
            assert name not in states, f"{name} stands there twice"
            states[name] = state.split()[0].strip(",:;")
    assert set(states.values()) <= {"served", "refused", "missing"}
    assert {name for name, state in states.items() if state != "missing"} == exported(prefix)


def test_each_header_stands_alone(prefix, tmp_path):
    for header in sorted((prefix / "include").rglob("*.h")):
        name = header.relative_to(prefix / "include")
        source = tmp_path / "one.c"
        source.write_text(f"#include <{name}>\n#include <{name}>\n#include <uuid/uuid.h>\nint one;\n")
        if not Path("/usr/include/uuid/uuid.h").exists():
            source.write_text(f"#include <{name}>\n#include <{name}>\nint one;\n")
        run(["cc", *STRICT, f"-I{prefix}/include", "-c", source, "-o", tmp_path / "one.o"])


def test_a_program_loads_the_library_once(build):
    program = build("hash-loads", "hash.c")
    text = run(["ldd", program]).stdout
    assert text.count("libdaos.so") >= 1
    assert "libdfs.so" not in text and "libgurt.so" not in text


# -- our own programs


def test_hash_tables_keep_their_rules(build):
    done = run([build("hash", "hash.c")])
    assert (done.stdout, done.stderr) == ("", "")


def test_every_call_and_its_errors(build, module_world, pool):
    done = run([build("calls", "calls.c"), pool.name], module_world.environment)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize(
    "name", ["arrays", "directories", "events", "families", "objects", "paths", "versions"]
)
def test_what_calls_give(build, module_world, pool, name):
    done = run([build(name, f"{name}.c"), pool.name, f"of-{name}"], module_world.environment)
    assert (done.stdout, done.stderr) == ("", "")
    pool.check()
    module_world.run("container", "destroy", f"of-{name}", "--yes", "--pool", pool.name)
    pool.check()


@pytest.mark.parametrize("name", ["arrays", "directories", "events", "families", "versions"])
def test_calls_give_the_same_over_the_network(build, world, name):
    engines = world.engines(2, targets=2)
    run([build(f"{name}-far", f"{name}.c"), engines.pool.name, "far"], world.environment)


@pytest.mark.parametrize(("name", "chunk_bytes"), [("S1", 65536), ("S2", 4096), ("SX", 262144)])
def test_processes_share_handles_and_files(build, module_world, pool, tmp_path, name, chunk_bytes):
    container = f"job-{name}"
    program = build("job", "job.c", "crew.c")
    done = run([program, pool.name, container, name, chunk_bytes], module_world.environment)
    assert (done.stdout, done.stderr) == ("", "")
    place = f"{pool.name}/{container}:"
    for file, path in enumerate(["/shared"] + [f"/own/file.{rank}" for rank in range(1, RANKS)]):
        assert layout(module_world, place + path) == (name, chunk_bytes)
        local = tmp_path / f"file{file}"
        module_world.run("fs", "get", place + path, local)
        wanted = hashlib.sha256(expected(file)).hexdigest()
        assert hashlib.sha256(local.read_bytes()).hexdigest() == wanted, path
    module_world.run("container", "destroy", container, "--yes", "--pool", pool.name)


def test_a_pool_is_found_by_what_people_call_it(build, module_world, pool):
    program = build("calls-named", "calls.c")
    state = Path(module_world.environment["XDG_STATE_HOME"])
    file = state / "azekura/pools" / f"{pool.name}.toml"
    text = file.read_text().split('pool = "')[1][:32]
    uuid = "-".join([text[:8], text[8:12], text[12:16], text[16:20], text[20:]])
    for label in [file, uuid]:
        run([program, label], module_world.environment)
    elsewhere = {**module_world.environment, "XDG_STATE_HOME": "/nonexistent"}
    run([program, pool.name], {**elsewhere, "AZEKURA_POOL": str(file)})


def test_a_pool_that_is_down_is_unreachable(build, world, tmp_path):
    pool = world.pool(memory=True, targets=1)
    source = tmp_path / "down.c"
    source.write_text(
        "#include <daos.h>\n"
        "int main(int argc, char **argv)\n"
        "{\n"
        "\tdaos_handle_t pool;\n"
        "\tif (argc != 2 || daos_init() != 0)\n"
        "\t\treturn 1;\n"
        "\treturn daos_pool_connect(argv[1], NULL, DAOS_PC_RW, &pool, NULL, NULL) != -DER_UNREACH;\n"
        "}\n"
    )
    program = build("down", source)
    state = Path(world.environment["XDG_STATE_HOME"])
    kept = tmp_path / "kept.toml"
    shutil.copy(state / "azekura/pools" / f"{pool.name}.toml", kept)
    pool.kill()
    run([program, kept], world.environment)


def test_processes_reach_engines_over_the_network(build, world):
    engines = world.engines(2, targets=2)
    program = build("job-far", "job.c", "crew.c")
    run([program, engines.pool.name, "job", "SX", 65536], world.environment)
    assert layout(world, f"{engines.pool.name}/job:/shared") == ("SX", 65536)


@needs_mpi
def test_ranks_of_mpi_share_handles_and_files(build, module_world, pool):
    program = build("job-mpi", "job.c", "crew.c", compiler="mpicc", flags=["-DWITH_MPI"])
    command = [*mpirun(RANKS), program, pool.name, "job-mpi", "SX", 131072]
    run(command, module_world.environment)
    place = f"{pool.name}/job-mpi:/shared"
    assert layout(module_world, place) == ("SX", 131072)


# -- IOR and mdtest, fio, dcp and dsync, where somebody has built them with a prefix


def beside(environment, prefix):
    """An environment in which programs load the library of this prefix, and others as they do here."""
    places = [str(prefix / "lib64"), os.environ.get("LD_LIBRARY_PATH", "")]
    return {**environment, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, places))}


def benchmark(name):
    """A program that has a DFS backend."""
    found = os.environ.get(f"AZEKURA_{name.upper()}") or shutil.which(name)
    if found is None or shutil.which("mpirun") is None:
        return None
    linked = subprocess.run(["ldd", found], capture_output=True, text=True, check=False)
    return found if "libdaos.so" in linked.stdout else None


def test_ior_verifies_what_it_wrote(module_world, pool, prefix):
    program = benchmark("ior")
    if program is None:
        pytest.skip("needs an ior that was built with a prefix")
    environment = beside(module_world.environment, prefix)
    fixed = ["-a", "DFS", "--dfs.pool", pool.name, "--dfs.cont", "ior", "-w", "-r", "-W", "-R", "-e"]
    for number, (name, chunk_bytes, more) in enumerate(
        [
            ("S1", 1 << 20, ["-F"]),
            ("SX", 1 << 16, []),
            ("S2", 1 << 18, ["-C", "-s", "4"]),
            ("SX", 1 << 20, ["-F", "-z", "--random-offset-seed=5", "-t", "4k"]),
        ]
    ):
        file = f"/f{number}"
        options = ["--dfs.oclass", name, "--dfs.chunk_size", chunk_bytes, "-o", file, "-k"]
        sizes = ["-b", "2m", "-t", "256k", *more]
        done = run([*mpirun(RANKS), program, *fixed, *options, *sizes], environment)
        said = done.stdout + done.stderr
        assert "Finished" in said
        assert "ERROR" not in said and "WARNING: Incorrect data" not in said, said
        first = file + (".00000000" if "-F" in more else "")
        assert layout(module_world, f"{pool.name}/ior:{first}") == (name, chunk_bytes)


def test_mdtest_finds_what_it_made(module_world, pool, prefix):
    program = benchmark("mdtest")
    if program is None:
        pytest.skip("needs an mdtest that was built with a prefix")
    environment = beside(module_world.environment, prefix)
    command = [*mpirun(RANKS), program, "-a", "DFS", "--dfs.pool", pool.name, "--dfs.cont", "mdtest"]
    for more in [["-u"], ["-z", "2", "-b", "2", "-w", "3901", "-e", "3901"]]:
        options = ["--dfs.dir_oclass", "S1", "-n", "64", "-i", "2", "-d", "/md", *more]
        done = run([*command, *options], environment)
        assert "finished at" in done.stdout
        assert "ERROR" not in done.stdout + done.stderr
    assert module_world.run("fs", "ls", f"{pool.name}/mdtest:/").stdout.strip() in ("", "md")
    pool.check()


@pytest.mark.parametrize("more", [["--rw=randwrite"], ["--rw=randrw", "--thread", "--numjobs=2"]])
def test_fio_verifies_what_it_wrote(module_world, pool, prefix, tmp_path, more):
    program = benchmark("fio")
    if program is None:
        pytest.skip("needs a fio that was built with a prefix")
    environment = beside(module_world.environment, prefix)
    container = f"fio-{len(more)}"
    module_world.run("container", "create", container, "--pool", pool.name)
    place = ["--ioengine=dfs", f"--pool={pool.name}", f"--cont={container}", "--size=16m"]
    kind = ["--bs=32k", "--iodepth=8", "--verify=crc32c", "--verify_fatal=1", "--chunk_size=65536"]
    report = tmp_path / "report.json"
    output = ["--output-format=json", f"--output={report}", "--filename_format=f.$jobnum"]
    # Nothing is left in the directory that the tests run in.
    output.append("--verify_state_save=0")
    run([program, "--name=job", *place, *kind, *output, *more], environment)
    # It may say something about its options before.
    text = report.read_text()
    for job in json.loads(text[text.index("{") :])["jobs"]:
        assert job["error"] == 0
        assert job["iodepth_level"]["8"] > 50
    assert layout(module_world, f"{pool.name}/{container}:/f.0")[1] == 65536


def tree(place):
    """Everything below a directory: kinds, modes, sizes, texts and contents."""
    found = {}
    for path in sorted(place.rglob("*")):
        stat = path.lstat()
        text = os.readlink(path) if path.is_symlink() else None
        data = path.read_bytes() if path.is_file() and text is None else None
        mode = None if text is not None else stat.st_mode
        found[str(path.relative_to(place))] = (mode, text, data)
    return found


@pytest.mark.parametrize("name", ["dcp", "dsync"])
def test_trees_are_copied_in_and_out(module_world, pool, prefix, tmp_path, name):
    program = benchmark(name)
    if program is None:
        pytest.skip(f"needs a {name} that was built with a prefix")
    environment = beside(module_world.environment, prefix)
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "data").write_bytes(expected(1))
    (source / "deep" / "empty").touch()
    (source / "program").write_bytes(b"text")
    (source / "program").chmod(0o750)
    (source / "link").symlink_to("deep/empty")
    module_world.run("container", "create", name, "--pool", pool.name)
    place = f"daos://{pool.name}/{name}/tree"
    command = [*mpirun(2), program, "--preserve"] if name == "dcp" else [*mpirun(2), program]
    run([*command, source, place], environment)
    run([*command, place, tmp_path / "back"], environment)
    assert tree(tmp_path / "back") == tree(source)
    if name == "dsync":
        (source / "program").write_bytes(b"changed")
        (source / "deep" / "empty").unlink()
        (source / "link").unlink()
        run([*command, "--delete", "--contents", source, place], environment)
        run([*command, "--delete", "--contents", place, tmp_path / "back"], environment)
        assert tree(tmp_path / "back") == tree(source)
    pool.check()
