//! The mounts of this machine that a host starts with. Owns which of them it must not keep: a mount of Azekura ends
//! when the last copy of it is gone, so that whoever unmounts it outside would wait for the lab.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

const KIND: &[u8] = b"fuse.azekura";

/// Has this thread's mounts follow those outside: what is mounted or unmounted there later is so here, but not the
/// other way round. Where those outside tell nobody (they are private), mounts of Azekura are left out.
pub(crate) fn follow_outside() -> io::Result<()> {
    let downstream = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", downstream)?;
    let table = std::fs::read("/proc/thread-self/mountinfo")?;
    for place in deaf(&table) {
        // It may have gone by itself since.
        let _ = rustix::mount::unmount(&place, UnmountFlags::DETACH);
    }
    Ok(())
}

/// Shows `text` as this file, in this thread's mounts alone.
pub(crate) fn put_before(file: &Path, text: &str) -> io::Result<()> {
    // A file in memory that is reached by nothing but this mount.
    let shelf = Path::new("/tmp");
    rustix::mount::mount("netlab", shelf, "tmpfs", MountFlags::empty(), None)?;
    let other = shelf.join("file");
    let done = std::fs::write(&other, text)
        .and_then(|()| rustix::mount::mount_bind(&other, file).map_err(io::Error::from));
    rustix::mount::unmount(shelf, UnmountFlags::DETACH)?;
    done
}

/// Where mounts of Azekura are that would not hear of being unmounted outside, the topmost first. `table` is as of
/// proc(5), `mountinfo`.
fn deaf(table: &[u8]) -> Vec<PathBuf> {
    let mut hears = HashMap::new();
    let mut found = Vec::new();
    for line in table.split(|byte| *byte == b'\n') {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let Some(dash) = fields.iter().position(|field| *field == b"-") else { continue };
        let [id, parent, _, _, place, _, notes @ ..] = &fields[..dash] else { continue };
        hears.insert(*id, notes.iter().any(|note| note.starts_with(b"master:")));
        if fields.get(dash + 1) == Some(&KIND) {
            found.push((*parent, *place));
        }
    }
    // What happens to a mount is told by the one that it lies on.
    found.retain(|(parent, _)| !hears.get(parent).copied().unwrap_or(false));
    found.iter().rev().map(|(_, place)| unescaped(place)).collect()
}

/// The path that the table writes so: blanks and backslashes as three octal digits.
fn unescaped(mut text: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(text.len());
    while let [first, rest @ ..] = text {
        let code = match text {
            [b'\\', a, b, c, ..] => std::str::from_utf8(&[*a, *b, *c])
                .ok()
                .and_then(|digits| u8::from_str_radix(digits, 8).ok()),
            _ => None,
        };
        path.push(code.unwrap_or(*first));
        text = if code.is_some() { &text[4..] } else { rest };
    }
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_that_nobody_tells_of_their_end_are_left_out() {
        let table = b"20 1 8:1 / / rw - ext4 /dev/a rw\n\
            21 20 0:30 / /m rw,nosuid - fuse.azekura azekura:p rw\n\
            22 20 0:31 / /with\\040blank rw - fuse.azekura azekura:q rw\n\
            23 20 0:32 / /other rw - fuse.sshfs host: rw\n\
            24 20 8:2 / /home rw master:3 - ext4 /dev/b rw\n\
            25 24 0:33 / /home/m rw master:4 - fuse.azekura azekura:p rw\n\
            26 21 0:34 / /m/below rw - fuse.azekura azekura:p rw\n";
        let places = ["/m/below", "/with blank", "/m"].map(PathBuf::from);
        assert_eq!(deaf(table), places);
    }
}
