//! What becomes of a trapped call: passed on untouched, or answered from a map. Owns the quick decision, which
//! all calls of the programs pay for, and the way in which a result gets to the caller.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::CWD;
use rustix::io::Errno;

use super::caller::{Caller, errno};
use super::calls::{self, Call, Named, Room};
use super::change::{self, End};
use super::exec::{self, Execution, Way};
use super::look;
use super::maps::Maps;
use super::open::{self, Wanted};
use super::places::Place;
use super::remote::Running;

/// The least and the most that openat2(2) is told: `struct open_how`.
const HOW_BYTES: std::ops::RangeInclusive<u64> = 24..=4096;
const RESOLVE_NO_SYMLINKS: u64 = 4;
const RESOLVE_BENEATH: u64 = 8;
const RESOLVE_IN_ROOT: u64 = 16;

/// What serves calls.
pub(super) struct Server {
    pub(super) maps: Maps,
    running: Running,
}

/// How a call ends.
enum Reply {
    /// The kernel does it.
    Pass,
    Result(i64),
    Descriptor(OwnedFd, bool),
    /// It has been answered.
    Done,
}

/// A path in a map, with what the caller said for it.
struct Target {
    at: Named,
    text: Vec<u8>,
    place: Place,
}

impl Server {
    pub(super) fn new(maps: Maps) -> Self {
        Self { maps, running: Running::default() }
    }

    /// Answers a call, or has the kernel carry it out.
    pub(super) fn serve(&self, caller: &Caller) {
        let call = &caller.call;
        let reply = match calls::decode(call.number, call.args) {
            Some(wanted) => self.reply(caller, wanted),
            None => Ok(Reply::Pass),
        };
        let listener = caller.listener;
        match reply {
            Ok(Reply::Pass) => listener.let_pass(call.id),
            Ok(Reply::Result(result)) => listener.answer(call.id, Ok(result)),
            Ok(Reply::Descriptor(fd, closes)) => {
                if let Err(error) = listener.answer_descriptor(call.id, fd.as_fd(), closes) {
                    // The caller has no room for it, or is gone.
                    listener.answer(call.id, Err(errno(&error).raw_os_error()));
                }
            }
            Ok(Reply::Done) => {}
            Err(error) => listener.answer(call.id, Err(error.raw_os_error())),
        }
    }

    /// The place that a path names, if it is one of a map. A directory of ours that the caller has open
    /// looks as it does by its path.
    fn target(&self, caller: &Caller, call: Call, at: Named) -> Option<Target> {
        let text = caller.text(at.address)?;
        let place = if text.is_empty() && looks_at_descriptor(call) {
            self.maps.find_list(&caller.base(at.dir)?)?
        } else {
            self.maps.find(&caller.absolute(at, &text)?)?
        };
        (caller.still_waits() && caller.is_own_user()).then_some(Target { at, text, place })
    }

    fn reply(&self, caller: &Caller, call: Call) -> Result<Reply, Errno> {
        match call {
            Call::WorkingDirectory { into } => return self.working_directory(caller, into),
            Call::DescriptorStat { fd, into } => return self.stat_descriptor(caller, fd, into),
            Call::Rename { from, to, .. } | Call::Link { from, to, .. } => {
                return self.with_two_paths(caller, call, from, to);
            }
            Call::Execute { .. } | Call::Open { .. } if self.running.has(caller.call.tid) => {
                return Ok(Reply::Pass);
            }
            _ => {}
        }
        let Some(at) = path_of(call) else { return Ok(Reply::Pass) };
        let Some(target) = self.target(caller, call, at) else {
            return self.look_at_descriptor(caller, call);
        };
        let (maps, place) = (&self.maps, &target.place);
        match call {
            Call::Open { flags, mode, .. } => self.open(caller, &target, Wanted { flags, mode }),
            Call::OpenHow { how, .. } => self.open_how(caller, &target, how),
            Call::Change { change, .. } => {
                change::serve(maps, caller, place, change)?;
                Ok(Reply::Result(0))
            }
            Call::Enter { at } => Ok(reply_of(exec::enter(maps, caller, place, at, &target.text)?)),
            Call::Execute { argv, envp, flags, .. } => {
                let (at, text) = (target.at, target.text.as_slice());
                let execution = Execution { at, text, argv, envp, flags };
                let way = exec::execute(maps, &self.running, caller, place, execution)?;
                Ok(reply_of(way))
            }
            _ => self.look(caller, place, with_end(call, &target.text)).map(Reply::Result),
        }
    }

    fn look(&self, caller: &Caller, place: &Place, call: Call) -> Result<i64, Errno> {
        let maps = &self.maps;
        match call {
            Call::Stat { into, flags, .. } => {
                let (follow, mask) = (look::follows(flags), libc::STATX_BASIC_STATS);
                let found = look::attributes(maps, caller, place, follow, mask)?;
                caller.put(into, &look::stat_of(&found))?;
            }
            Call::Statx { into, flags, mask, .. } => {
                let follow = look::follows(flags);
                caller.put(into, &look::attributes(maps, caller, place, follow, mask)?)?;
            }
            Call::Access { mode, flags, .. } => {
                look::access(maps, caller, place, mode, look::follows(flags))?;
            }
            Call::ReadLink { into, .. } => {
                if into.bytes as i32 <= 0 {
                    return Err(Errno::INVAL);
                }
                let text = look::read_link(maps, caller, place)?;
                let text = &text[..text.len().min(into.bytes as usize)];
                caller.put_bytes(into.address, text)?;
                return Ok(text.len() as i64);
            }
            Call::GetAttribute { follow, name, into, .. } => {
                let name = caller.text(name).ok_or(Errno::FAULT)?;
                let value = look::extended(maps, caller, place, follow, Some(&name))?;
                return look::put_sized(caller, into, &value);
            }
            Call::ListAttributes { follow, into, .. } => {
                let names = look::extended(maps, caller, place, follow, None)?;
                return look::put_sized(caller, into, &names);
            }
            Call::FileSystem { into, .. } => {
                caller.put(into, &look::file_system(maps, caller, place)?)?;
            }
            _ => return Err(Errno::NOSYS),
        }
        Ok(0)
    }

    fn open(&self, caller: &Caller, target: &Target, wanted: Wanted) -> Result<Reply, Errno> {
        let Target { at, text, place } = target;
        if wanted.may_be_of_symlink() {
            let named = (*at, text.as_slice());
            let flags = wanted.flags;
            if let Some(way) =
                exec::open_link(&self.maps, &self.running, caller, place, named, flags)?
            {
                return Ok(reply_of(way));
            }
        }
        let fd = open::serve(&self.maps, caller, place, wanted)?;
        Ok(Reply::Descriptor(fd, wanted.closes_on_exec()))
    }

    /// fstat(2) of a file that is read as it comes.
    fn stat_descriptor(&self, caller: &Caller, fd: i32, into: u64) -> Result<Reply, Errno> {
        let Some(found) = self.arriving(caller, fd, libc::STATX_BASIC_STATS) else {
            return Ok(Reply::Pass);
        };
        caller.put(into, &look::stat_of(&found))?;
        Ok(Reply::Result(0))
    }

    /// The other ways to ask the same.
    fn look_at_descriptor(&self, caller: &Caller, call: Call) -> Result<Reply, Errno> {
        let (at, mask) = match call {
            Call::Stat { at, .. } => (at, libc::STATX_BASIC_STATS),
            Call::Statx { at, mask, .. } => (at, mask),
            _ => return Ok(Reply::Pass),
        };
        let is_empty =
            || at.address == 0 || caller.text(at.address).is_some_and(|text| text.is_empty());
        if at.dir < 0 || !looks_at_descriptor(call) || !self.maps.have_arriving() || !is_empty() {
            return Ok(Reply::Pass);
        }
        let Some(found) = self.arriving(caller, at.dir, mask) else { return Ok(Reply::Pass) };
        match call {
            Call::Statx { into, .. } => caller.put(into, &found)?,
            Call::Stat { into, .. } => caller.put(into, &look::stat_of(&found))?,
            _ => return Ok(Reply::Pass),
        }
        Ok(Reply::Result(0))
    }

    /// What is told of a descriptor of the caller, if it is one of a file that is read as it comes.
    fn arriving(&self, caller: &Caller, fd: i32, mask: u32) -> Option<libc::statx> {
        if fd < 0 || !self.maps.have_arriving() {
            return None;
        }
        let found = look::statx_at(CWD, caller.base_link(fd).as_bytes(), 0, mask).ok()?;
        let found = self.maps.as_in_tree(found)?;
        (caller.still_waits() && caller.is_own_user()).then_some(found)
    }

    /// openat2(2). What it must not lead out of is the directory that the path starts from; so nothing goes
    /// up from there.
    fn open_how(&self, caller: &Caller, target: &Target, how: Room) -> Result<Reply, Errno> {
        if !HOW_BYTES.contains(&how.bytes) {
            return Ok(Reply::Pass);
        }
        let [mut flags, mode, resolve] = caller.numbers(how.address)?;
        let is_absolute = target.text.first() == Some(&b'/');
        let goes_up = target.text.split(|byte| *byte == b'/').any(|name| name == b"..");
        if resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT) != 0 && (is_absolute || goes_up) {
            return Err(Errno::XDEV);
        }
        if resolve & RESOLVE_NO_SYMLINKS != 0 {
            flags |= libc::O_NOFOLLOW as u64;
        }
        self.open(caller, target, Wanted { flags, mode: mode as u32 })
    }

    /// A program that works in a directory of ours is told the map's own name for it.
    fn working_directory(&self, caller: &Caller, into: Room) -> Result<Reply, Errno> {
        let base = caller.base(libc::AT_FDCWD);
        let Some(mut name) = base.and_then(|path| self.maps.name_of(&path)) else {
            return Ok(Reply::Pass);
        };
        if !caller.is_own_user() {
            return Ok(Reply::Pass);
        }
        name.push(0);
        if name.len() as u64 > into.bytes {
            return Err(Errno::RANGE);
        }
        caller.put_bytes(into.address, &name)?;
        Ok(Reply::Result(name.len() as i64))
    }

    fn with_two_paths(
        &self,
        caller: &Caller,
        call: Call,
        from: Named,
        to: Named,
    ) -> Result<Reply, Errno> {
        let (Some(from), Some(to)) = (self.end(caller, from), self.end(caller, to)) else {
            return Ok(Reply::Pass);
        };
        let is_mapped = |end: &End| matches!(end, End::Mapped(_));
        let is_ours = is_mapped(&from) || is_mapped(&to);
        if !is_ours || !caller.still_waits() || !caller.is_own_user() {
            return Ok(Reply::Pass);
        }
        match call {
            Call::Rename { flags, .. } => change::rename(&self.maps, caller, &from, &to, flags)?,
            Call::Link { flags, .. } => change::link(&self.maps, caller, &from, &to, flags)?,
            _ => return Ok(Reply::Pass),
        }
        Ok(Reply::Result(0))
    }

    fn end(&self, caller: &Caller, named: Named) -> Option<End> {
        let path = caller.absolute(named, &caller.text(named.address)?)?;
        Some(match self.maps.find(&path) {
            Some(place) => End::Mapped(place),
            None => End::Elsewhere(path),
        })
    }
}

fn reply_of(way: Way) -> Reply {
    match way {
        Way::AsItStands => Reply::Pass,
        Way::Done => Reply::Done,
    }
}

fn looks_at_descriptor(call: Call) -> bool {
    matches!(call, Call::Stat { flags, .. } | Call::Statx { flags, .. } if flags & libc::AT_EMPTY_PATH != 0)
}

/// A descriptor of a symlink stands for the symlink.
fn with_end(mut call: Call, text: &[u8]) -> Call {
    if text.is_empty()
        && let Call::Stat { flags, .. } | Call::Statx { flags, .. } = &mut call
    {
        *flags |= libc::AT_SYMLINK_NOFOLLOW;
    }
    call
}

/// The path of a call that has one.
fn path_of(call: Call) -> Option<Named> {
    match call {
        Call::Open { at, .. }
        | Call::OpenHow { at, .. }
        | Call::Stat { at, .. }
        | Call::Statx { at, .. }
        | Call::Access { at, .. }
        | Call::ReadLink { at, .. }
        | Call::GetAttribute { at, .. }
        | Call::ListAttributes { at, .. }
        | Call::FileSystem { at, .. }
        | Call::Enter { at }
        | Call::Execute { at, .. }
        | Call::Change { at, .. } => Some(at),
        Call::WorkingDirectory { .. }
        | Call::DescriptorStat { .. }
        | Call::Rename { .. }
        | Call::Link { .. } => None,
    }
}
