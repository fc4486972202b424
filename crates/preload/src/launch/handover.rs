//! Programs that this library cannot serve are handed over to a mount of the container, which
//! `azekura run` makes for them. Owns that program's command line.

use std::ffi::{CString, c_int};

use azekura_posix::{Errno, OFlags, Result};

use super::c_strings::c_string;
use super::environment;
use super::inherited::Inherited;
use super::request::{Launch, Program, Request};
use crate::settings::Settings;

/// An option of the command line for each file that the program is to start with.
fn reopen_options(inherited: &Inherited, settings: &Settings) -> Vec<Vec<u8>> {
    let files = inherited.by_description();
    let named = files.iter().filter(|(file, _)| !file.path().is_empty());
    named
        .map(|(file, numbers)| {
            let numbers: Vec<String> = numbers.iter().map(c_int::to_string).collect();
            let once = OFlags::CREATE | OFlags::EXCL | OFlags::TRUNC;
            let flags = file.shown_flags() & !(once.bits() as i32);
            let offset = file.position().locked(|position| position.offset().to_string());
            let front = format!("--reopen={}:{flags}:{offset}:", numbers.join(","));
            [front.as_bytes(), &settings.prefix, file.path()].concat()
        })
        .collect()
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
) -> Result<Launch> {
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
    words.extend(reopen_options(&request.inherited, settings));
    words.push(b"--".to_vec());
    words.push(program.to_vec());
    words.extend(argv.iter().skip(1).map(|argument| argument.to_bytes().to_vec()));
    let words: Vec<CString> = words.into_iter().map(c_string).collect::<Result<_>>()?;
    // SAFETY: the caller says so.
    let environment = unsafe { environment::cleared(&settings.handed_on, request.environment) };
    Ok(Launch::new(Program::Path(binary), words, environment))
}
