//! `--via auto`: finds the program that a command line means, as the kernel would, and chooses the
//! way that works for it. The preload library is the faster way, but only the dynamic loader loads
//! it. Reads the first bytes of files and nothing more.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use azekura_executable::Script;
use azekura_posix::{CachePolicy, Credentials, Namespace, OpenOptions};

use super::program::{Own, Program, classify};
use crate::connect;
use crate::names::ContainerName;
use crate::reading::ReadArgs;

/// The kernel follows interpreters of interpreters this far.
const DEPTH_MAX: usize = 5;
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const SET_ID: u32 = 0o6000;

/// A way for a program to reach the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The preload library.
    Preload,
    /// A mount in a namespace.
    Fuse,
}

/// What was chosen, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) way: Way,
    /// A sentence's end that says what the program is.
    pub(super) why: String,
    /// Whether there is such a program at all.
    pub(super) is_there: bool,
    /// What to run instead of the command's first word, where the kernel itself would not find it:
    /// the interpreter of a script in the container, and the script.
    pub(super) instead: Option<Vec<OsString>>,
}

impl Choice {
    fn new(way: Way, why: impl Into<String>) -> Self {
        Self { way, why: why.into(), is_there: true, instead: None }
    }
}

/// Where a program is.
enum Found {
    Host(PathBuf),
    Container(PathBuf),
    Nowhere,
}

/// The container as far as it has been looked into.
enum Container {
    Unasked,
    Open(Namespace),
    Silent,
}

/// Chooses the way for commands that find a container below a prefix.
pub(super) struct Chooser<'a> {
    /// The prefix and the container below it, if there is one.
    place: Option<(&'a Path, &'a ContainerName)>,
    /// Where the command will start.
    cwd: PathBuf,
    /// This program; `None` if its own file cannot be read.
    own: Option<Own>,
    container: Container,
}

impl<'a> Chooser<'a> {
    pub(super) fn new(name: &'a ContainerName, prefix: &'a Path, cwd: Option<&Path>) -> Self {
        Self { place: Some((prefix, name)), ..Self::of_machine(cwd) }
    }

    /// For commands that find no container.
    pub(super) fn of_machine(cwd: Option<&Path>) -> Self {
        let here = || std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        let own = File::open("/proc/self/exe").ok();
        let own = own.and_then(|own| Own::read(&|at, into: &mut [u8]| own.read_at(into, at)));
        let cwd = cwd.map_or_else(here, Path::to_owned);
        Self { place: None, cwd, own, container: Container::Unasked }
    }

    /// The way for the command `program`.
    pub(super) fn choose(&mut self, program: &OsStr) -> Choice {
        match self.find(program) {
            Found::Nowhere => {
                let choice = Choice::new(Way::Preload, "it was not found");
                Choice { is_there: false, ..choice }
            }
            Found::Host(path) => self.on_host(&path, 0),
            Found::Container(path) => self.in_container(&path),
        }
    }

    /// Whether there is such a program on this host.
    pub(super) fn is_on_host(&mut self, program: &OsStr) -> bool {
        matches!(self.find(program), Found::Host(_))
    }

    /// Finds a program as `execvp` does.
    fn find(&mut self, program: &OsStr) -> Found {
        if program.as_bytes().contains(&b'/') {
            return self.locate(self.cwd.join(program));
        }
        let dirs = std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
        for dir in std::env::split_paths(&dirs) {
            match self.locate(self.cwd.join(dir).join(program)) {
                Found::Nowhere => {}
                found => return found,
            }
        }
        Found::Nowhere
    }

    /// Whether there is a program at this path, and on which side.
    fn locate(&mut self, path: PathBuf) -> Found {
        if let Ok(metadata) = std::fs::metadata(&path)
            && metadata.is_file()
            && metadata.permissions().mode() & 0o111 != 0
        {
            return Found::Host(path);
        }
        let Some(inside) = self.below_prefix(&path) else { return Found::Nowhere };
        let is_there = self.container().is_some_and(|names| {
            names.metadata(in_container(&inside)).is_ok_and(|attr| {
                attr.mode & 0o111 != 0 && attr.kind == azekura_posix::FileKind::Regular
            })
        });
        if is_there { Found::Container(path) } else { Found::Nowhere }
    }

    fn below_prefix(&self, path: &Path) -> Option<PathBuf> {
        path.strip_prefix(self.place?.0).ok().map(Path::to_owned)
    }

    /// The container, opened when it is first needed; `None` if it does not answer.
    fn container(&mut self) -> Option<&Namespace> {
        if matches!(self.container, Container::Unasked) {
            let opened = self.place.and_then(|(_, name)| open(name));
            self.container = opened.map_or(Container::Silent, Container::Open);
        }
        match &self.container {
            Container::Open(names) => Some(names),
            Container::Unasked | Container::Silent => None,
        }
    }

    fn on_host(&mut self, path: &Path, depth: usize) -> Choice {
        let kind = File::open(path).and_then(|file| {
            classify(&|at, into: &mut [u8]| file.read_at(into, at), self.own.as_ref())
        });
        let Ok(kind) = kind else {
            return Choice::new(Way::Preload, "it cannot be read, so most likely dynamic");
        };
        if gives_privileges(path) {
            return Choice::new(
                Way::Fuse,
                "it gives privileges, and such programs preload nothing",
            );
        }
        self.by_kind(kind, depth)
    }

    fn by_kind(&mut self, kind: Program, depth: usize) -> Choice {
        match kind {
            Program::Dynamic => Choice::new(Way::Preload, "it is a dynamic program"),
            Program::Static => Choice::new(Way::Fuse, "it is a static program"),
            Program::Go => Choice::new(Way::Fuse, "it is a Go program"),
            Program::OtherLoader(loader) => {
                Choice::new(Way::Fuse, format!("it is loaded by {loader}"))
            }
            Program::OtherMachine => Choice::new(Way::Fuse, "it is for another kind of processor"),
            Program::Unknown => Choice::new(Way::Preload, "it is no ELF program, so the shell's"),
            Program::Script(script) => {
                let shown = String::from_utf8_lossy(&script.interpreter).into_owned();
                let choice = self.script(&script, depth);
                Choice { why: format!("it is a script of {shown}, and {}", choice.why), ..choice }
            }
        }
    }

    fn script(&mut self, script: &Script, depth: usize) -> Choice {
        if depth >= DEPTH_MAX {
            return Choice::new(Way::Preload, "too many interpreters follow");
        }
        let found = match script.env_target() {
            Some(name) => self.find(OsStr::from_bytes(name)),
            None => self.locate(PathBuf::from(OsStr::from_bytes(&script.interpreter))),
        };
        match found {
            Found::Nowhere => Choice::new(Way::Preload, "that was not found"),
            Found::Container(_) => Choice::new(Way::Fuse, "that lies in the container"),
            Found::Host(path) => self.on_host(&path, depth + 1),
        }
    }

    /// The kernel finds nothing in the container unless it is mounted. Only of a script is there
    /// another way: to run its interpreter.
    fn in_container(&mut self, path: &Path) -> Choice {
        let fuse = || Choice::new(Way::Fuse, "it lies in the container");
        let Some(inside) = self.below_prefix(path) else { return fuse() };
        let own = self.own.clone();
        let kind = self.container().and_then(|names| {
            let file = names.open(in_container(&inside), &OpenOptions::read_only()).ok()?;
            classify(&|at, into: &mut [u8]| file.read_at(into, at), own.as_ref()).ok()
        });
        let Some(Program::Script(script)) = kind else { return fuse() };
        let words = [Some(script.interpreter.clone()), script.argument.clone()];
        let choice = self.by_kind(Program::Script(script), 0);
        if choice.way == Way::Fuse {
            return choice;
        }
        let words = words.into_iter().flatten();
        let mut words: Vec<OsString> = words.map(OsString::from_vec).collect();
        words.push(path.into());
        Choice { instead: Some(words), ..choice }
    }
}

fn open(name: &ContainerName) -> Option<Namespace> {
    let pool = connect::pool(&name.pool).ok()?;
    let fs = connect::file_system(pool, name.container(), CachePolicy::None, &ReadArgs::default())
        .ok()?;
    Some(Namespace::new(fs, Credentials::of_process()))
}

/// A path below the prefix as the container has it.
fn in_container(inside: &Path) -> Vec<u8> {
    [b"/", inside.as_os_str().as_bytes()].concat()
}

/// Whether the program runs with more rights than its caller, as another user or by capabilities.
fn gives_privileges(path: &Path) -> bool {
    let has_capabilities = || {
        let mut value = [0_u8; 64];
        rustix::fs::getxattr(path, "security.capability", &mut value).is_ok_and(|bytes| bytes > 0)
    };
    std::fs::metadata(path).is_ok_and(|metadata| metadata.mode() & SET_ID != 0)
        || has_capabilities()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(program: &Path) -> Choice {
        let name: ContainerName = "no-such-pool".parse().unwrap();
        Chooser::new(&name, Path::new("/azekura"), None).choose(program.as_os_str())
    }

    fn make(dir: &Path, name: &str, text: &[u8], mode: u32) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn programs_of_the_machine_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        assert_eq!(choose(&own).way, Way::Preload);
        let text = format!("#!{}\n", own.display());
        let script = make(dir.path(), "script", text.as_bytes(), 0o755);
        let choice = choose(&script);
        assert_eq!(choice.way, Way::Preload);
        assert!(choice.why.contains("script"), "{choice:?}");
        // A static program: the same file without its program headers.
        let mut head = std::fs::read(&own).unwrap();
        head.truncate(64 << 10);
        let whole = head.clone();
        head[56..58].fill(0);
        let program = make(dir.path(), "static", &head, 0o755);
        assert_eq!(choose(&program).way, Way::Fuse);
        let text = format!("#!{}\n", program.display());
        assert_eq!(choose(&make(dir.path(), "script", text.as_bytes(), 0o755)).way, Way::Fuse);
        let program = make(dir.path(), "set-id", &whole, 0o4755);
        assert_eq!(choose(&program).way, Way::Fuse);
    }

    #[test]
    fn what_is_not_there_is_left_to_the_kernel() {
        let choice = choose(Path::new("no-such-program"));
        assert_eq!((choice.way, choice.why.as_str()), (Way::Preload, "it was not found"));
        assert_eq!(choose(Path::new("/azekura/no-such-program")).way, Way::Preload);
        let dir = tempfile::tempdir().unwrap();
        let ring = dir.path().join("ring");
        make(dir.path(), "ring", format!("#!{}\n", ring.display()).as_bytes(), 0o755);
        assert_eq!(choose(&ring).way, Way::Preload);
    }
}
