//! What a FUSE file system can reach on this machine: libfuse's example `passthrough_ll` over a
//! directory in memory, in each of the modes that it has here. Owns how it is found, started and
//! ended; the figures are taken by whoever takes ours.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::host::mounts;
use crate::load::ScratchDir;

/// The program, on the `PATH`.
pub(super) const PROGRAM: &str = "passthrough_ll";
/// Where it is, for those who have it elsewhere.
const FILE_VARIABLE: &str = "AZEKURA_PASSTHROUGH_LL";
/// A mount is there within this time, or not at all.
const START_TIMEOUT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// A mode of it: what it is called, and its options.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode {
    /// What the mode is called in results.
    pub(super) name: &'static str,
    options: &'static [&'static str],
}

/// All modes; a version that does not have one says so and ends.
pub(super) const MODES: [Mode; 4] = [
    Mode { name: "one thread", options: &["-s"] },
    Mode { name: "threads", options: &[] },
    Mode { name: "threads, clone_fd", options: &["-o", "clone_fd"] },
    Mode { name: "io_uring", options: &["-o", "io_uring"] },
];

/// One that runs.
pub(super) struct Passthrough {
    child: Child,
    mount_point: PathBuf,
    // The directory that is shown, and where; goes last.
    _scratch: ScratchDir,
}

/// The program, if it is there.
pub(super) fn program() -> Option<PathBuf> {
    if let Some(file) = std::env::var_os(FILE_VARIABLE).filter(|file| !file.is_empty()) {
        return Some(file.into());
    }
    let dirs = std::env::var_os("PATH")?;
    std::env::split_paths(&dirs).map(|dir| dir.join(PROGRAM)).find(|file| file.is_file())
}

impl Passthrough {
    /// Mounts it.
    ///
    /// # Errors
    /// If it does not mount: without rights, or without this mode.
    pub(super) fn start(program: &Path, mode: Mode) -> Result<Self> {
        let scratch = ScratchDir::make(PROGRAM)?;
        let [source, mount_point] =
            ["source", "mount"].map(|name| PathBuf::from(scratch.path(name)));
        for dir in [&source, &mount_point] {
            std::fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        let mut source_option = OsString::from("source=");
        source_option.push(&source);
        let child = Command::new(program)
            .arg("-f")
            .args(mode.options)
            .arg("-o")
            .arg(source_option)
            .arg(&mount_point)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let mut started = Self { child, mount_point, _scratch: scratch };
        started.wait_for_mount(&source)?;
        Ok(started)
    }

    fn wait_for_mount(&mut self, source: &Path) -> Result<()> {
        let began = Instant::now();
        let device = source.metadata()?.dev();
        loop {
            if self.mount_point.metadata().is_ok_and(|found| found.dev() != device) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended at once ({status})");
            }
            if began.elapsed() > START_TIMEOUT {
                bail!("it did not mount within {} s", START_TIMEOUT.as_secs());
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Where it shows the directory.
    pub(super) fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Its process.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Passthrough {
    fn drop(&mut self) {
        // It ends by itself when its mount has gone.
        if mounts::detach(&self.mount_point, true).is_err() {
            let _ = self.child.kill();
        }
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if began.elapsed() > START_TIMEOUT {
                let _ = self.child.kill();
            }
            std::thread::sleep(PAUSE);
        }
    }
}
