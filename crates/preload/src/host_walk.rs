//! The walk along a path of the host that the kernel could not follow, to see whether it leads into
//! the container, or below a map of a staging job: through a symlink, or through `..`. Done only after a call has failed, so that
//! calls that succeed pay nothing.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use azekura_posix::{Errno, below_prefix};
use rustix::fs::{AtFlags, CWD, FileType, readlinkat, statat};

const SYMLINKS_MAX: u32 = 40;

fn descriptor<'a>(dirfd: c_int) -> Option<BorrowedFd<'a>> {
    if dirfd == libc::AT_FDCWD {
        return Some(CWD);
    }
    // SAFETY: a number that is not open fails in the kernel like any other.
    (dirfd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(dirfd) })
}

/// Whether the name is simply not there, in a directory that is: the usual case.
fn is_plainly_missing(at: BorrowedFd<'_>, path: &[u8]) -> bool {
    let trimmed = path.len() - path.iter().rev().take_while(|b| **b == b'/').count();
    // The kernel follows a symlink before a slash. Of the root there is nothing else.
    let name = if trimmed > 0 { &path[..trimmed] } else { path };
    match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => FileType::from_raw_mode(stat.st_mode) != FileType::Symlink,
        Err(Errno::NOENT) => match name.iter().rposition(|byte| *byte == b'/') {
            None => true,
            Some(cut) => statat(at, &path[..=cut], AtFlags::empty()).is_ok(),
        },
        Err(_) => false,
    }
}

/// The directories that a walk looks for, which need not exist on the host.
pub(crate) trait Goal {
    /// Whether this absolute path is one of them.
    fn is_at(&self, dir: &[u8]) -> bool;
    /// Whether one lies below it.
    fn is_below(&self, dir: &[u8]) -> bool;
    /// Whether the path of one has this name in it.
    fn has_component(&self, name: &[u8]) -> bool;
}

/// A container stands at one directory.
pub(crate) struct Prefix<'a>(pub(crate) &'a [u8]);

impl Goal for Prefix<'_> {
    fn is_at(&self, dir: &[u8]) -> bool {
        below_prefix(self.0, dir) == Some(b"")
    }

    fn is_below(&self, dir: &[u8]) -> bool {
        below_prefix(dir, self.0).is_some()
    }

    fn has_component(&self, name: &[u8]) -> bool {
        self.0.split(|byte| *byte == b'/').any(|part| part == name)
    }
}

/// Whether a path could lead to a goal from a directory above it, where it begins or where a symlink leads to: the
/// host has nothing of that name there.
fn may_name(goal: &impl Goal, path: &[u8]) -> bool {
    let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    names.any(|name| goal.has_component(name))
}

fn push_front(rest: &mut VecDeque<Vec<u8>>, path: &[u8]) {
    for component in path.split(|byte| *byte == b'/').rev().filter(|c| !c.is_empty()) {
        rest.push_front(component.to_vec());
    }
}

/// The goal that `path` leads to, if it does, and the path below it.
pub(crate) fn leads_in(goal: &impl Goal, dirfd: c_int, path: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let at = descriptor(dirfd)?;
    if path.is_empty() || is_plainly_missing(at, path) && !may_name(goal, path) {
        return None;
    }
    let mut done = if path[0] == b'/' {
        Vec::new()
    } else {
        use std::os::fd::AsRawFd as _;
        let shown = if dirfd == libc::AT_FDCWD {
            "/proc/self/cwd".to_owned()
        } else {
            format!("/proc/self/fd/{}", at.as_raw_fd())
        };
        readlinkat(CWD, shown, Vec::new()).ok()?.into_bytes()
    };
    let mut rest = VecDeque::new();
    push_front(&mut rest, path);
    let slash = path.ends_with(b"/");
    let mut links = 0;
    while let Some(component) = rest.pop_front() {
        match component.as_slice() {
            b"." => continue,
            b".." => {
                let cut = done.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                done.truncate(cut);
                continue;
            }
            _ => {}
        }
        let mut here = done.clone();
        here.push(b'/');
        here.extend_from_slice(&component);
        if goal.is_at(&here) {
            let mut below: Vec<u8> =
                rest.iter().flat_map(|c| [b"/", c.as_slice()].concat()).collect();
            if below.is_empty() || slash {
                below.push(b'/');
            }
            return Some((here, below));
        }
        match statat(CWD, here.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => {
                links += 1;
                if links > SYMLINKS_MAX {
                    return None;
                }
                let text = readlinkat(CWD, here.as_slice(), Vec::new()).ok()?.into_bytes();
                if text.first() == Some(&b'/') {
                    done.clear();
                }
                push_front(&mut rest, &text);
            }
            Ok(_) => done = here,
            // A goal need not exist on the host, nor what is above it.
            Err(_) if goal.is_below(&here) => done = here,
            Err(_) => return None,
        }
    }
    None
}
