//! What only the caller itself can do: run a program of a map, work in a directory of one, hold a descriptor of a
//! symlink. Owns which descriptor stands for the path then, so that a program finds its neighbours by its own name
//! where that can be.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use azekura_proto::staging::local::LocalRequest;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::caller::{Caller, errno};
use super::calls::Named;
use super::look::follows;
use super::maps::{Maps, Settled, open, open_within};
use super::open::{open_program, open_settled};
use super::places::Place;
use super::remote::{Outcome, Remote, Running, Untrapped};
use super::scripts::{self, Interpreter};
use crate::sys::notify;

/// For how long a program waits that is written to, as by one that was forked while its parent wrote it. Longer,
/// and it is the programs' own affair (`ETXTBSY`).
const WRITTEN_TRIES: u32 = 100;
const WRITTEN_PAUSE: Duration = Duration::from_millis(5);

/// What the call is.
#[derive(Clone, Copy)]
pub(super) struct Execution<'a> {
    pub(super) at: Named,
    /// The path as the caller has it in its memory.
    pub(super) text: &'a [u8],
    pub(super) argv: u64,
    pub(super) envp: u64,
    pub(super) flags: i32,
}

/// What is to be done with a call that stands for the path of a map.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// The kernel comes to the same file by the path itself.
    AsItStands,
    /// It has been answered.
    Done,
}

/// A file to run, as execveat(2) takes it.
struct Program {
    fd: OwnedFd,
    /// Where the path in the caller's memory begins that leads from the descriptor to the file; at its end if
    /// the descriptor is the file.
    offset: usize,
}

/// A call, with its number.
type Numbered = (i64, [u64; 6]);

/// What a caller does in place of its own call.
struct Calls {
    call: Numbered,
    /// What takes back what was made for it, if the caller is still there afterwards.
    after: Vec<Numbered>,
}

impl Calls {
    /// A call that takes a descriptor, which is closed then.
    fn with(fd: i32, call: Numbered) -> Self {
        Self { call, after: vec![(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0])] }
    }
}

/// Has a program come, and the caller run it.
pub(super) fn execute(
    maps: &Maps,
    running: &Running,
    caller: &Caller,
    place: &Place,
    execution: Execution,
) -> Result<Way, Errno> {
    let follow = follows(execution.flags);
    let file = open_program(maps, caller, place, follow)?;
    let natural = natural_path(caller, execution.at, execution.text);
    if let Some(interpreter) = interpreter(maps, caller, place, execution, &file)?
        && (interpreter.file.is_some() || !is_same(&file, &natural))
    {
        return run_script(running, caller, execution, &interpreter);
    }
    if is_same(&file, &natural) {
        wait_while_written(&file);
        return Ok(Way::AsItStands);
    }
    let program = program_of(maps, caller, execution, file);
    let given = caller.listener.give(caller.call.id, program.fd.as_fd(), true);
    let fd = given.map_err(|error| errno(&error))?;
    let path = execution.at.address + program.offset as u64;
    let flags = if program.offset == execution.text.len() { libc::AT_EMPTY_PATH } else { 0 };
    let args = [fd as u64, path, execution.argv, execution.envp, flags as u64, 0];
    Ok(make(caller, Some(running.enter(caller)), |_| {
        Ok(Calls::with(fd, (libc::SYS_execveat, args)))
    }))
}

/// What runs a script, by the name that the caller has for it.
fn interpreter(
    maps: &Maps,
    caller: &Caller,
    place: &Place,
    execution: Execution,
    file: &OwnedFd,
) -> Result<Option<Interpreter>, Errno> {
    let is_by_name = execution.at.dir == libc::AT_FDCWD || execution.text.first() == Some(&b'/');
    let name = if is_by_name { execution.text.to_vec() } else { maps.path(place) };
    scripts::interpreter(maps, caller, execution.argv, name, file)
}

/// Has the caller run what runs a script.
fn run_script(
    running: &Running,
    caller: &Caller,
    execution: Execution,
    interpreter: &Interpreter,
) -> Result<Way, Errno> {
    let give = |file: &OwnedFd| caller.listener.give(caller.call.id, file.as_fd(), true);
    let fd = interpreter.file.as_ref().map(give).transpose().map_err(|error| errno(&error))?;
    Ok(make(caller, Some(running.enter(caller)), |remote| {
        let put = interpreter.put(caller, remote)?;
        let words = [put.argv, execution.envp];
        let mut calls = if let Some(fd) = fd {
            let flags = libc::AT_EMPTY_PATH as u64;
            let args = [fd as u64, put.nothing, words[0], words[1], flags, 0];
            Calls::with(fd, (libc::SYS_execveat, args))
        } else {
            let args = [put.first, words[0], words[1], 0, 0, 0];
            Calls { call: (libc::SYS_execve, args), after: Vec::new() }
        };
        calls.after.push((libc::SYS_munmap, [put.argv, put.bytes, 0, 0, 0, 0]));
        Ok(calls)
    }))
}

/// Has the caller open a symlink itself (`O_PATH`), as no such descriptor can be handed over. `None` if it is none.
pub(super) fn open_link(
    maps: &Maps,
    running: &Running,
    caller: &Caller,
    place: &Place,
    (at, text): (Named, &[u8]),
    flags: u64,
) -> Result<Option<Way>, Errno> {
    let settled = maps.settle(place, |path| LocalRequest::Open { path, follow: false })?;
    let Settled::Local(path) = settled else { return Ok(None) };
    let Some(end) = path.iter().rposition(|byte| *byte == b'/') else { return Ok(None) };
    let (above, name) = (&path[..end], &path[end + 1..]);
    if rustix::fs::readlink(&path[..], Vec::new()).is_err() || !text.ends_with(name) {
        return Ok(None);
    }
    let dir = open(above, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
    let given = caller.listener.give(caller.call.id, dir.as_fd(), true);
    let fd = given.map_err(|error| errno(&error))?;
    let name = at.address + (text.len() - name.len()) as u64;
    let args = [fd as u64, name, flags, 0, 0, 0];
    Ok(Some(make(caller, Some(running.enter(caller)), |_| {
        Ok(Calls::with(fd, (libc::SYS_openat, args)))
    })))
}

/// Where the kernel can say it beforehand.
fn wait_while_written(file: &OwnedFd) {
    for _ in 0..WRITTEN_TRIES {
        match notify::check_execution(file.as_fd()) {
            Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => {
                std::thread::sleep(WRITTEN_PAUSE);
            }
            _ => return,
        }
    }
}

/// Has the caller work in a directory of a map.
pub(super) fn enter(
    maps: &Maps,
    caller: &Caller,
    place: &Place,
    at: Named,
    text: &[u8],
) -> Result<Way, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let dir = match maps.open_in_tree(place, flags) {
        Some(dir) => dir,
        None => {
            open_settled(caller, flags, maps.settle(place, |path| LocalRequest::List { path })?)?
        }
    };
    if is_same(&dir, &natural_path(caller, at, text)) {
        return Ok(Way::AsItStands);
    }
    let given = caller.listener.give(caller.call.id, dir.as_fd(), true);
    let fd = given.map_err(|error| errno(&error))?;
    let call = (libc::SYS_fchdir, [fd as u64, 0, 0, 0, 0, 0]);
    Ok(make(caller, None, |_| Ok(Calls::with(fd, call))))
}

/// Has the caller make other calls in place of its own, `untrapped` if programs' calls of that kind are trapped;
/// `prepare` may have it make some before.
fn make(
    caller: &Caller,
    untrapped: Option<Untrapped>,
    prepare: impl FnOnce(&mut Remote) -> io::Result<Calls>,
) -> Way {
    let mut remote = match Remote::stop(caller, untrapped) {
        Ok(Some(remote)) => remote,
        Ok(None) => return Way::Done,
        Err(error) => {
            let tid = caller.call.tid;
            tracing::warn!(tid, %error, "a program cannot be given a file to run or a directory to \
                work in (is it under a debugger?): it goes by the path as it stands");
            return Way::AsItStands;
        }
    };
    let finish = || -> io::Result<()> {
        let Calls { call: (number, args), after } = match prepare(&mut remote) {
            Ok(calls) => calls,
            Err(error) => return remote.finish(-i64::from(errno(&error).raw_os_error())),
        };
        let mut outcome = remote.call(number, args)?;
        for _ in 0..WRITTEN_TRIES {
            if outcome != Outcome::Result(-i64::from(libc::ETXTBSY)) {
                break;
            }
            std::thread::sleep(WRITTEN_PAUSE);
            outcome = remote.call(number, args)?;
        }
        match outcome {
            Outcome::Left => remote.let_go(),
            Outcome::Result(result) => {
                for (number, args) in after {
                    if remote.call(number, args)? == Outcome::Left {
                        remote.let_go();
                        return Ok(());
                    }
                }
                remote.finish(result)?;
            }
        }
        Ok(())
    };
    if let Err(error) = finish() {
        tracing::warn!(tid = caller.call.tid, %error, "a call in a program's name did not come to its end");
    }
    Way::Done
}

/// Where the kernel would look.
fn natural_path(caller: &Caller, at: Named, text: &[u8]) -> Vec<u8> {
    if text.first() == Some(&b'/') {
        return caller.path_here(text);
    }
    [caller.base_link(at.dir).as_bytes(), b"/", text].concat()
}

fn is_same(file: &OwnedFd, path: &[u8]) -> bool {
    let (Ok(one), Ok(other)) = (rustix::fs::fstat(file), rustix::fs::stat(OsStr::from_bytes(path)))
    else {
        return false;
    };
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// The descriptor by which to run a file: of a directory of the tree from which the end of the caller's path
/// leads to it, so that scripts find what is beside them, or else of the file.
fn program_of(maps: &Maps, caller: &Caller, execution: Execution, file: OwnedFd) -> Program {
    let text = execution.text;
    if let Some((dir, offset)) = neighbourhood(maps, caller, execution)
        && let Some(found) = open_within(&dir, &text[offset..], OFlags::PATH)
        && same_file(&found, &file)
    {
        return Program { fd: dir, offset };
    }
    Program { fd: file, offset: text.len() }
}

fn same_file(one: &OwnedFd, other: &OwnedFd) -> bool {
    is_same(one, &super::maps::own_path(other))
}

/// A directory of a tree, and where the caller's path goes on from there.
fn neighbourhood(maps: &Maps, caller: &Caller, execution: Execution) -> Option<(OwnedFd, usize)> {
    let text = execution.text;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let (base, offset) = if text.first() == Some(&b'/') {
        let place = maps.find(text)?;
        // Only if the map's directory stands there in so many letters.
        let offset = text.len().checked_sub(place.below.len())?;
        let start = text[..offset].strip_suffix(b"/")?;
        (maps.find(start).filter(|base| base.below.is_empty())?, offset)
    } else {
        (maps.find(&caller.base(execution.at.dir)?)?, 0)
    };
    let dir = maps.open_in_tree(&base, flags)?;
    (offset < text.len()).then_some((dir, offset))
}
