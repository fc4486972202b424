//! Programs that this library cannot serve are handed over to a mount of the container, which
//! `azekura run` makes for them. Owns that program's command line.

use std::collections::HashMap;
use std::ffi::{CString, c_int};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use azekura_posix::{Errno, OFlags, Result};

use super::{Plan, Program, Request, environment};
use crate::descriptors::{Backing, Description, table};
use crate::settings::Settings;

/// The descriptors of ours that a program is to start with.
pub(crate) struct Inherited {
    numbers: Vec<(c_int, Arc<Description>)>,
}

fn survives_exec(fd: c_int) -> bool {
    // SAFETY: a number that is not open fails in the kernel like any other.
    rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) })
        .is_ok_and(|flags| !flags.contains(rustix::io::FdFlags::CLOEXEC))
}

impl Inherited {
    /// Those that an exec of this process leaves open.
    pub(crate) fn now() -> Self {
        let mut all = table::all();
        all.retain(|(fd, file)| file.backing() == Backing::Reserved && survives_exec(*fd));
        Self { numbers: all }
    }

    /// The number stands for something else now, or for nothing of ours.
    pub(crate) fn set(&mut self, fd: c_int, file: Option<Arc<Description>>) {
        self.numbers.retain(|(number, _)| *number != fd);
        self.numbers.extend(file.map(|file| (fd, file)));
    }

    /// What the number stands for.
    pub(crate) fn get(&self, fd: c_int) -> Option<Arc<Description>> {
        let found = self.numbers.iter().find(|(number, _)| *number == fd);
        found.map(|(_, file)| Arc::clone(file)).or_else(|| table::get(fd))
    }

    /// The numbers from `first` on are closed.
    pub(crate) fn close_from(&mut self, first: c_int) {
        self.numbers.retain(|(number, _)| *number < first);
    }

    /// As the options of the command line have them.
    fn options(&self, settings: &Settings) -> Vec<Vec<u8>> {
        let mut files: HashMap<*const Description, (&Description, Vec<String>)> = HashMap::new();
        for (fd, file) in &self.numbers {
            let place = files.entry(Arc::as_ptr(file)).or_insert_with(|| (&**file, Vec::new()));
            place.1.push(fd.to_string());
        }
        files
            .values()
            .filter(|(file, _)| !file.path().is_empty())
            .map(|(file, numbers)| {
                let once = OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC;
                let flags = file.shown_flags() & !(once.bits() as i32);
                let offset = file.position().locked(|place| place.offset().to_string());
                let front = format!("{}:{flags}:{offset}:", numbers.join(","));
                [front.as_bytes(), &settings.prefix, file.path()].concat()
            })
            .collect()
    }
}

/// Plans the handing over of `program` with `argv`.
///
/// # Safety
/// As `super::plan`.
pub(super) unsafe fn plan(
    settings: &Settings,
    request: &Request<'_>,
    program: &[u8],
    argv: &[CString],
) -> Result<Plan> {
    let binary = settings.binary.clone().ok_or(Errno::NOENT)?;
    let mut words: Vec<Vec<u8>> = vec![
        b"azekura".to_vec(),
        b"run".to_vec(),
        b"--via=fuse".to_vec(),
        [b"--pool=", settings.pool.as_bytes()].concat(),
        [b"--container=", settings.container.as_bytes()].concat(),
        [b"--prefix=", settings.prefix.as_slice()].concat(),
    ];
    if let Some(name) = argv.first() {
        words.push([b"--argv0=", name.to_bytes()].concat());
    }
    if let Some(path) = &request.directory {
        words.push([b"--cwd=", settings.prefix.as_slice(), path].concat());
    }
    for option in request.inherited.options(settings) {
        words.push([b"--reopen=", option.as_slice()].concat());
    }
    words.push(b"--".to_vec());
    words.push(program.to_vec());
    words.extend(argv.iter().skip(1).map(|argument| argument.to_bytes().to_vec()));
    let words: Vec<CString> = words.into_iter().map(super::c_string).collect::<Result<_>>()?;
    // SAFETY: the caller says so.
    let environment = unsafe { environment::cleared(settings, request.environment) };
    Ok(Plan::new(Program::Path(binary), words, environment))
}
