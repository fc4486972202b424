//! `nfs-build`: how long a source tree takes to be unpacked, built and removed, on local disk, in memory,
//! on a FUSE mount and on a gateway's mount (the paper's figure 3). The last takes the kernel's NFS
//! client: where there is none its points are left out, and the page says so.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use azekura::host::programs;
use azekura::load::ScratchDir;
use azekura_proto::ObjectClass;

use super::fixture::Gateway;
use crate::chart::Scale;
use crate::experiment::frame::{
    Cells, Experiment, Figure, Line, Measure, Parameter, Point, Settings, Value,
};
use crate::experiment::scratch_pool::ScratchPool;

const TARGETS: u16 = 2;
const CHUNK_BYTES: u32 = 1 << 20;
const PLACE: Parameter = Parameter { name: "place", title: "place", cells: Cells::Plain };
const JOBS: Parameter = Parameter { name: "jobs", title: "jobs of make", cells: Cells::Plain };
const VALUES: [Value; 3] = [
    Value { name: "unpack_s", title: "unpack, s" },
    Value { name: "make_s", title: "make, s" },
    Value { name: "remove_s", title: "remove, s" },
];
/// Names another tree: a directory in which `make` builds something.
const TREE_VARIABLE: &str = "AZEKURA_SOURCE_TREE";
/// The tree that cargo has left where this program was built: those files that are compiled by
/// themselves.
const USUAL: &str = "libmimalloc-sys-";
const MAKEFILE: &str = "\
WHOLE := $(filter-out src/static.c src/alloc-override.c src/free.c src/page-queue.c \\\n\
\tsrc/arena-abandon.c,$(wildcard src/*.c)) src/prim/prim.c\n\
libtree.a: $(WHOLE:.c=.o)\n\
\t$(AR) rcs $@ $^\n\
%.o: %.c\n\
\t$(CC) -O2 -Iinclude -Isrc -c -o $@ $<\n";

/// Where the tree is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Disk,
    Memory,
    Fuse,
    Gateway,
}

impl Place {
    const ALL: [Self; 4] = [Self::Disk, Self::Memory, Self::Fuse, Self::Gateway];

    fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Memory => "memory",
            Self::Fuse => "fuse",
            Self::Gateway => "gateway",
        }
    }

    fn named(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|place| place.name() == name).context("no such place")
    }

    fn is_there(self) -> bool {
        self != Self::Gateway || has_nfs_client()
    }
}

/// Whether this machine's kernel can mount NFS as it is now.
fn has_nfs_client() -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.split_whitespace().last() == Some("nfs"))
}

pub(super) struct Build;

/// Runs a command to its end.
fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().with_context(|| {
        format!("cannot run {name}: the experiment takes tar, make, a C compiler and mount")
    })?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
        bail!("{name} ended with {}, and said: {last}", done.status);
    }
    Ok(())
}

fn seconds_of(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    work()?;
    Ok(started.elapsed().as_secs_f64())
}

/// The usual tree, below cargo's directory.
fn usual_tree() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from).or(home)?;
    let registries = std::fs::read_dir(cargo.join("registry/src")).ok()?;
    let mut found: Vec<PathBuf> = registries
        .flatten()
        .filter_map(|registry| std::fs::read_dir(registry.path()).ok())
        .flat_map(|crates| crates.flatten().map(|one| one.path()))
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(USUAL)))
        .map(|path| path.join("c_src/mimalloc/v2"))
        .filter(|path| path.join("src").is_dir())
        .collect();
    found.sort();
    found.pop()
}

/// Packs the tree, with its Makefile, into a file of a scratch directory.
fn pack(scratch: &ScratchDir) -> Result<PathBuf> {
    let tree = PathBuf::from(scratch.path("tree"));
    let (source, makefile) = match std::env::var_os(TREE_VARIABLE) {
        Some(named) => (PathBuf::from(named), None),
        None => (usual_tree().with_context(no_tree)?, Some(MAKEFILE)),
    };
    run(Command::new("cp").arg("-R").arg(&source).arg(&tree))?;
    if let Some(text) = makefile {
        std::fs::write(tree.join("Makefile"), text).context("cannot write the Makefile")?;
    }
    let packed = PathBuf::from(scratch.path("tree.tar"));
    run(Command::new("tar").arg("-cf").arg(&packed).args(["-C", &scratch.dir(), "tree"]))?;
    Ok(packed)
}

fn no_tree() -> String {
    format!(
        "there is no source tree to build: {TREE_VARIABLE}=DIR names one in which 'make' works (cargo's \
         directory, where the usual one lies, has none)"
    )
}

/// Something mounted, taken away when dropped.
struct Mount {
    at: PathBuf,
    take_away: Command,
}

impl Drop for Mount {
    fn drop(&mut self) {
        // What cannot be taken away stays until the machine ends; nothing more can be done here.
        let _ = run(&mut self.take_away);
    }
}

/// The places, each made when the first point wants it.
struct Places {
    // Mounts go before what serves them.
    fuse: Option<Mount>,
    nfs: Option<Mount>,
    gateway: Option<Gateway>,
    disk: ScratchDir,
    scratch: ScratchDir,
    container: String,
    _pool: ScratchPool,
}

impl Places {
    fn start() -> Result<Self> {
        let mut pool = ScratchPool::start(TARGETS)?;
        let container = pool.container(ObjectClass::SX, CHUNK_BYTES)?.to_string();
        let (scratch, gateway) = (pool.scratch()?, None);
        let disk = ScratchDir::make_in(Path::new("/var/tmp"), "build")?;
        Ok(Self { fuse: None, nfs: None, gateway, disk, scratch, container, _pool: pool })
    }

    /// A directory at that place.
    fn dir(&mut self, place: Place) -> Result<PathBuf> {
        match place {
            Place::Disk => Ok(self.disk.dir().into()),
            Place::Memory => Ok(self.scratch.dir().into()),
            Place::Fuse => self.fuse_dir(),
            Place::Gateway => self.gateway_dir(),
        }
    }

    fn fuse_dir(&mut self) -> Result<PathBuf> {
        if self.fuse.is_none() {
            let (azekura, at) = (programs::beside("azekura")?, self.make_dir("fuse")?);
            run(Command::new(&azekura).args(["mount", &self.container]).arg(&at))?;
            let mut take_away = Command::new(&azekura);
            take_away.arg("umount").arg(&at);
            self.fuse = Some(Mount { at, take_away });
        }
        Ok(self.fuse.as_ref().context("there is no mount")?.at.clone())
    }

    fn gateway_dir(&mut self) -> Result<PathBuf> {
        if self.nfs.is_none() {
            let (container, address) = (&self.container, "127.0.0.1:0");
            let spawn = |command: &mut Command| Ok(command.spawn()?);
            let gateway = Gateway::start(container, address, &[], &self.scratch, "gateway", spawn)?;
            let at = self.make_dir("nfs")?;
            let (port, mount_port) = ports_of(&gateway.url).with_context(|| {
                format!("cannot understand the gateway's address {}", gateway.url)
            })?;
            let options = format!("vers=3,proto=tcp,nolock,port={port},mountport={mount_port}");
            run(Command::new("mount").args(["-t", "nfs", "-o", &options, "127.0.0.1:/"]).arg(&at))
                .context("cannot mount by NFS (Debian: nfs-common)")?;
            let mut take_away = Command::new("umount");
            take_away.arg(&at);
            self.gateway = Some(gateway);
            self.nfs = Some(Mount { at, take_away });
        }
        Ok(self.nfs.as_ref().context("there is no mount")?.at.clone())
    }

    fn make_dir(&self, name: &str) -> Result<PathBuf> {
        let dir = PathBuf::from(self.scratch.path(name));
        std::fs::create_dir(&dir)
            .with_context(|| format!("cannot make the directory {}", dir.display()))?;
        Ok(dir)
    }
}

/// The ports in `nfs://ADDRESS:PORT/EXPORT?mountport=PORT`.
fn ports_of(url: &str) -> Option<(u16, u16)> {
    let (place, mount_port) = url.strip_prefix("nfs://")?.split_once("?mountport=")?;
    let (authority, _) = place.split_once('/')?;
    let (_, port) = authority.rsplit_once(':')?;
    Some((port.parse().ok()?, mount_port.parse().ok()?))
}

/// Unpacks, builds and removes the tree in a directory: the seconds of each.
fn build(packed: &Path, dir: &Path, jobs: &str) -> Result<Vec<f64>> {
    let tree = dir.join("tree");
    let unpack = || run(Command::new("tar").arg("-xf").arg(packed).arg("-C").arg(dir));
    let make = || run(Command::new("make").arg("-C").arg(&tree).args(["-j", jobs]));
    let remove = || run(Command::new("rm").arg("-rf").arg(&tree));
    let measured = || Ok(vec![seconds_of(unpack)?, seconds_of(make)?, seconds_of(remove)?]);
    let measured = measured();
    if measured.is_err() {
        let _ = std::fs::remove_dir_all(&tree);
    }
    measured
}

impl Experiment for Build {
    fn name(&self) -> &'static str {
        "nfs-build"
    }

    fn about(&self) -> &'static str {
        "Seconds to unpack, build and remove a source tree on local disk, in memory, by FUSE and by NFS"
    }

    fn method(&self, settings: &Settings) -> String {
        let gateway = if has_nfs_client() {
            "*gateway* is the kernel's NFS client on a gateway of the same pool, all on this host."
        } else {
            "The gateway is left out: the kernel of this machine has no NFS client (no nfs in \
             /proc/filesystems; `modprobe nfs`, where that is built, and nfs-common for mount)."
        };
        format!(
            "A tree of C sources (those of mimalloc, which cargo has for this program, unless \
             {TREE_VARIABLE} names another) is unpacked with tar, built with make, and removed with rm, \
             each from its first call to its last. *disk* is a directory in /var/tmp, *memory* one in \
             /dev/shm, *fuse* a mount of a pool with {TARGETS} targets in memory. {gateway} {}",
            settings.repetition(),
        )
    }

    fn parameters(&self) -> &'static [Parameter] {
        const { &[PLACE, JOBS] }
    }

    fn values(&self) -> &'static [Value] {
        &VALUES
    }

    fn points(&self, settings: &Settings) -> Vec<Point> {
        let jobs: &[u16] = if settings.quick { &[2] } else { &[1, 2, 4] };
        let places = Place::ALL.into_iter().filter(|place| place.is_there());
        places
            .flat_map(|place| {
                jobs.iter().map(move |jobs| Point::of([place.name().into(), jobs.to_string()]))
            })
            .collect()
    }

    fn figures(&self, _settings: &Settings) -> Vec<Figure> {
        let places = Place::ALL.into_iter().filter(|place| place.is_there());
        let line = |place: Place| Line {
            title: place.name().to_owned(),
            value: VALUES[1].name,
            only: vec![(PLACE.name, place.name().to_owned())],
        };
        vec![Figure {
            file: "make",
            title: "make by its jobs",
            x: JOBS.name,
            x_title: JOBS.title,
            x_scale: Scale::Powers,
            y_title: "seconds",
            y_scale: Scale::Linear,
            lines: places.map(line).collect(),
        }]
    }

    fn start(&self, settings: &Settings) -> Result<Measure> {
        let (mut places, rounds) = (Places::start()?, settings.rounds());
        let packed = pack(&places.scratch)?;
        Ok(Box::new(move |point| {
            let [place, jobs] = point.cells()?;
            let dir = places.dir(Place::named(place)?)?;
            let mut mean = vec![0.0; VALUES.len()];
            for _ in 0..rounds {
                for (sum, seconds) in mean.iter_mut().zip(build(&packed, &dir, jobs)?) {
                    *sum += seconds / rounds as f64;
                }
            }
            Ok(mean)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_stand_in_the_address() {
        assert_eq!(ports_of("nfs://127.0.0.1:4711/?mountport=12"), Some((4711, 12)));
        assert_eq!(ports_of("nfs://[::1]:4711/data?mountport=12"), Some((4711, 12)));
        assert_eq!(ports_of("nfs://127.0.0.1/"), None);
    }
}
