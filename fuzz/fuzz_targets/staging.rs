//! What the processes of a staging job hear: packets of programs, frames of the front and of agents, which
//! decode to what they were or not at all; and the way of a path over names that a home made up. It ends,
//! asks only for plain places, and leaves the maps only by saying so. Messages and ways are private to their
//! crate, so their files are taken in here as they are.

#![no_main]
#![allow(dead_code, unreachable_pub, unused_imports)]

#[path = "../../crates/stage/src/message.rs"]
mod message;
#[path = "../../crates/stage/src/resolve.rs"]
mod resolve;
#[path = "../../crates/stage/src/source/home.rs"]
mod source;
#[path = "../../crates/stage/src/stamp.rs"]
mod stamp;

use std::cell::Cell;

use azekura_proto::limits::{PATH_BYTES_MAX, SYMLINKS_MAX};
use azekura_proto::staging::Attributes;
use azekura_proto::staging::local::{self, LocalReply, LocalRequest, MESSAGE_BYTES_MAX};
use azekura_proto::{FileKind, Timestamp, frame};
use libfuzzer_sys::fuzz_target;
use message::{FetchRequest, Opening, Place, Supplied, ToAgent, ToFront};
use resolve::{Led, Names, resolve};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Nothing is there, so that the host's own symlinks say nothing.
const NOWHERE: &[u8] = b"/azekura-fuzz-nowhere";
/// A path is pushed once, and each symlink's text once; every second byte can be a name.
const STEPS_MAX: usize = (SYMLINKS_MAX as usize + 2) * (PATH_BYTES_MAX / 2 + 1);

fn packet<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let Some(message) = local::decode::<T>(bytes) else { return };
    // The shortest form of a number may be shorter than the one that came.
    let Some(packet) = local::encode(&message) else { return };
    assert!(packet.len() <= MESSAGE_BYTES_MAX);
    assert_eq!(local::decode::<T>(&packet).as_ref(), Some(&message));
}

fn body<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let message: T = frame::decode(bytes).ok()?;
    let mut first = Vec::new();
    if frame::encode_into(&mut first, &message, 0).is_ok() {
        let again: T = frame::decode(&first[frame::HEAD_BYTES..]).expect("it was written by us");
        let mut second = Vec::new();
        frame::encode_into(&mut second, &again, 0).expect("it was short enough");
        assert_eq!(first, second);
    }
    Some(message)
}

fn from_front(bytes: &[u8]) {
    match body::<ToAgent>(bytes) {
        Some(ToAgent::Take { content, .. }) if content.is_sound(3) => {
            // What an agent relies on from then on.
            assert!(content.parts.iter().all(|part| is_plain(&part.place.path)));
            let last = content.pieces();
            assert_eq!(content.bytes_of(last), 0);
            if let Some(before) = last.checked_sub(1) {
                let end = content.offset_of(before) + content.bytes_of(before) as u64;
                assert!(content.bytes_of(before) > 0 && end == content.bytes());
            }
        }
        Some(ToAgent::Listing { place, page: Ok(entries), .. }) if is_plain(&place.path) => {
            for (name, _) in entries.iter().filter(|(name, _)| message::is_name(name)) {
                assert!(is_plain(&place.join(name).path));
            }
        }
        _ => {}
    }
}

fn is_plain(path: &[u8]) -> bool {
    path.is_empty()
        || path.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."))
}

/// Names that a home made up.
#[derive(serde::Deserialize)]
struct Home {
    path: Vec<u8>,
    follow: bool,
    dirs: Vec<Vec<u8>>,
    entries: Vec<(u16, Vec<u8>, u8, Vec<u8>)>,
    #[serde(skip)]
    steps: Cell<usize>,
}

impl Names for Home {
    fn look(&self, place: &Place) -> Result<Option<Attributes>, i32> {
        assert!(usize::from(place.map) < self.dirs.len() && is_plain(&place.path));
        self.steps.set(self.steps.get() + 1);
        assert!(self.steps.get() <= STEPS_MAX);
        let mut entries = self.entries.iter();
        let found = entries.find(|(map, path, ..)| *map == place.map && *path == place.path);
        let (kind, link) = match found {
            // A map's own directory is always there.
            _ if place.path.is_empty() => (FileKind::Directory, Vec::new()),
            None => return Ok(None),
            Some((.., code, link)) => {
                let kinds =
                    [FileKind::Regular, FileKind::Directory, FileKind::Symlink, FileKind::Fifo];
                (kinds[usize::from(code % 4)], link.clone())
            }
        };
        let mtime = Timestamp { secs: 0, nanos: 0 };
        Ok(Some(Attributes { kind, mode: 0o644, size: 0, mtime, link }))
    }
}

fn way(bytes: &[u8]) {
    let Ok((mut home, _)) = postcard::take_from_bytes::<Home>(bytes) else { return };
    home.dirs.truncate(4);
    for dir in &mut home.dirs {
        // As the command line makes them.
        let names = dir.split(|byte| *byte == b'/');
        let plain = names.filter(|name| !matches!(*name, b"" | b"." | b".."));
        *dir = plain.fold(NOWHERE.to_vec(), |above, name| [&above, &b"/"[..], name].concat());
    }
    let mut path = NOWHERE.to_vec();
    path.extend_from_slice(&home.path);
    let is_below = |path: &[u8]| {
        home.dirs.iter().any(|dir| {
            path.strip_prefix(&dir[..]).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
        })
    };
    match resolve(&path, home.follow, &home.dirs, &home) {
        Ok(Led::Inside(place, found)) => {
            assert!(usize::from(place.map) < home.dirs.len() && is_plain(&place.path));
            let is_symlink = found.is_some_and(|found| found.kind == FileKind::Symlink);
            assert!(!(home.follow && is_symlink));
        }
        Ok(Led::Outside(path)) => {
            assert!(path.strip_prefix(b"/").is_some_and(is_plain));
            assert!(!is_below(&path));
        }
        Err(errno) => assert!(errno > 0),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 8 {
        0 => packet::<LocalRequest>(bytes),
        1 => packet::<LocalReply>(bytes),
        2 => from_front(bytes),
        3 => drop(body::<ToFront>(bytes)),
        4 => drop(body::<Opening>(bytes)),
        5 => drop(body::<FetchRequest>(bytes)),
        6 => drop(body::<Supplied>(bytes)),
        _ => way(bytes),
    }
});
