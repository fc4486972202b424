//! Which files programs have written and closed, whatever programs they are: the kernel tells of the trees of
//! the node (inotify). Owns the watches and their bound. What it cannot know, since the kernel lost count or
//! has no more watches, it has looked for instead; it sends nothing itself.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use azekura_proto::staging::MapKind;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::agent::names::Seen;
use crate::doors::spawn;
use crate::message::{Place, ToFront};
use crate::outbox::Outbox;

/// Directories that are watched, at most; the kernel may allow fewer.
const WATCHES_MAX: usize = 64 * 1024;
/// Files that have been closed and not asked for, at most; with more, all are looked for.
const CLOSED_MAX: usize = 64 * 1024;
/// How often all are looked for, if directories are not watched.
const WALK_EVERY: Duration = Duration::from_secs(5);
/// The thread looks this often whether it is still needed.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Events that are taken at once, in bytes.
const EVENTS_BYTES: usize = 64 * 1024;

/// What has been closed.
pub(crate) enum Closed {
    These(BTreeSet<Place>),
    /// Nobody knows which.
    Some,
}

/// The files that have been closed since the front asked.
pub(crate) struct Closing {
    seen: Arc<Seen>,
    outbox: Outbox<ToFront>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    closed: BTreeSet<Place>,
    /// Which ones is not known of all.
    is_unsure: bool,
    /// The front has been told, and has not asked yet.
    has_told: bool,
}

/// The thread's side.
struct Watcher {
    closing: Weak<Closing>,
    inotify: OwnedFd,
    watches: HashMap<i32, Place>,
    /// There are directories that are not watched.
    is_short: bool,
    walked: Instant,
}

impl Closing {
    pub(crate) fn new(seen: Arc<Seen>, outbox: Outbox<ToFront>) -> Arc<Self> {
        Arc::new(Self { seen, outbox, state: Mutex::default() })
    }

    /// Begins to watch all maps that may be written to.
    pub(crate) fn watch(self: &Arc<Self>) -> io::Result<()> {
        let mut watcher = Watcher {
            closing: Arc::downgrade(self),
            inotify: rustix::fs::inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            watches: HashMap::new(),
            is_short: false,
            walked: Instant::now(),
        };
        for (map, description) in self.seen.maps.iter().enumerate() {
            if description.kind != MapKind::ReadOnly {
                watcher.enter(self, Place { map: map as u16, path: Vec::new() });
            }
        }
        self.tell();
        spawn("closing", move || while watcher.step().is_some() {})
    }

    /// What has been closed since this was asked.
    pub(crate) fn take(&self) -> Closed {
        let mut state = self.state.lock();
        let State { closed, is_unsure, .. } = std::mem::take(&mut *state);
        if is_unsure { Closed::Some } else { Closed::These(closed) }
    }

    fn closed(&self, place: Place) {
        let mut state = self.state.lock();
        if state.closed.len() < CLOSED_MAX {
            state.closed.insert(place);
        } else {
            state.is_unsure = true;
        }
    }

    fn unsure(&self) {
        self.state.lock().is_unsure = true;
    }

    /// Tells the front that there is something, once.
    fn tell(&self) {
        let mut state = self.state.lock();
        if !state.has_told && (state.is_unsure || !state.closed.is_empty()) {
            state.has_told = true;
            self.outbox.say(ToFront::Closed);
        }
    }
}

impl Watcher {
    /// Watches a directory and those below it. What is in them may have been closed before.
    fn enter(&mut self, closing: &Closing, directory: Place) {
        let mut left = vec![directory];
        while let Some(directory) = left.pop() {
            self.add(closing, &directory);
            // Watched before it is read: what comes meanwhile is seen twice, not never.
            let Ok(entries) = fs::read_dir(closing.seen.tree.path_of(&directory)) else { continue };
            for entry in entries.flatten() {
                let place = directory.join(&entry.file_name().into_vec());
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => left.push(place),
                    Ok(kind) if kind.is_file() => Self::file(closing, place),
                    _ => {}
                }
            }
        }
    }

    fn add(&mut self, closing: &Closing, directory: &Place) {
        let flags = WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ONLYDIR;
        let path = closing.seen.tree.path_of(directory);
        if self.watches.len() < WATCHES_MAX {
            match rustix::fs::inotify::add_watch(&self.inotify, &path, flags) {
                Ok(number) => {
                    self.watches.insert(number, directory.clone());
                    return;
                }
                Err(Errno::NOENT | Errno::NOTDIR) => return,
                Err(error) => tracing::warn!("cannot watch {}: {error}", path.display()),
            }
        }
        self.is_short = true;
    }

    fn file(closing: &Closing, place: Place) {
        if !closing.seen.tree.is_as_it_came(&place) {
            closing.closed(place);
        }
    }

    /// Waits for events and takes them; none when nobody needs them any more.
    fn step(&mut self) -> Option<()> {
        let mut ready = [PollFd::new(&self.inotify, PollFlags::IN)];
        // If it fails there is nothing to read.
        let _ = poll(&mut ready, Some(&LOOK));
        let closing = self.closing.upgrade()?;
        for (number, events, name) in self.events() {
            self.take(&closing, number, events, &name);
        }
        if self.is_short && self.walked.elapsed() > WALK_EVERY {
            self.walked = Instant::now();
            closing.unsure();
        }
        closing.tell();
        Some(())
    }

    fn events(&self) -> Vec<(i32, ReadFlags, Vec<u8>)> {
        let mut buffer = vec![MaybeUninit::uninit(); EVENTS_BYTES];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut events = Vec::new();
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(|name| name.to_bytes().to_vec());
            events.push((event.wd(), event.events(), name.unwrap_or_default()));
            if reader.is_buffer_empty() {
                break;
            }
        }
        events
    }

    fn take(&mut self, closing: &Closing, number: i32, events: ReadFlags, name: &[u8]) {
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            // Directories may have been missed too.
            let maps = closing.seen.maps.iter().enumerate();
            for (map, _) in maps.filter(|(_, map)| map.kind != MapKind::ReadOnly) {
                self.enter(closing, Place { map: map as u16, path: Vec::new() });
            }
            return closing.unsure();
        }
        if events.contains(ReadFlags::IGNORED) {
            self.watches.remove(&number);
            return;
        }
        let Some(place) = self.watches.get(&number).map(|directory| directory.join(name)) else {
            return;
        };
        if !events.contains(ReadFlags::ISDIR) {
            if events.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::MOVED_TO) {
                Self::file(closing, place);
            }
        } else if events.contains(ReadFlags::MOVED_FROM) {
            self.leave(&place);
        } else {
            self.enter(closing, place);
        }
    }

    /// A directory has another name now, which another event tells.
    fn leave(&mut self, directory: &Place) {
        let below = directory.join(b"");
        let is_in = |place: &Place| {
            place.map == directory.map
                && (place == directory || place.path.starts_with(&below.path))
        };
        let gone = self.watches.iter().filter(|(_, place)| is_in(place));
        for number in gone.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.watches.remove(&number);
            // It may be gone by itself.
            let _ = rustix::fs::inotify::remove_watch(&self.inotify, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::agent::listings::Listings;
    use crate::agent::tree::Tree;
    use crate::agent::walk::{AtHome, Walk, open_trees};
    use crate::job::MapDescription;

    fn closing(root: &std::path::Path) -> Arc<Closing> {
        let tree = Arc::new(Tree::create(root.to_owned(), 1).unwrap());
        let outbox = Outbox::new();
        let map = MapDescription { dir: b"/m".to_vec(), kind: MapKind::Out };
        let seen = Seen::new(vec![map], tree, Listings::new(outbox.clone()));
        Closing::new(Arc::new(seen), outbox)
    }

    #[test]
    fn when_the_kernel_has_lost_count_all_files_are_looked_for_but_those_that_are_written() {
        let root = tempfile::tempdir().unwrap();
        let closing = closing(root.path());
        let mut watcher = Watcher {
            closing: Arc::downgrade(&closing),
            inotify: rustix::fs::inotify::init(CreateFlags::NONBLOCK).unwrap(),
            watches: HashMap::new(),
            is_short: false,
            walked: Instant::now(),
        };
        let place = |path: &str| Place { map: 0, path: path.into() };
        let tree = Arc::clone(&closing.seen.tree);
        tree.make_dir(&place("d")).unwrap();
        fs::write(tree.path_of(&place("d/closed")), "x").unwrap();
        let open = fs::File::create(tree.path_of(&place("d/open"))).unwrap();
        watcher.take(&closing, -1, ReadFlags::QUEUE_OVERFLOW, b"");
        assert!(matches!(closing.take(), Closed::Some));
        assert_eq!(watcher.watches.len(), 2, "what was missed is watched again");

        let trees = open_trees(&[tree.path_of(&place(""))]).unwrap();
        let seen = Arc::clone(&closing.seen);
        let mut walk = Walk::new(seen, trees, Arc::new(AtHome::default())).without_written();
        let (found, is_last) = walk.page();
        let found: Vec<_> = found.into_iter().map(|leaving| leaving.place).collect();
        assert_eq!((found, is_last), (vec![place("d"), place("d/closed")], true));
        drop(open);
    }

    #[test]
    fn a_directory_that_is_renamed_is_left_with_all_below() {
        let root = tempfile::tempdir().unwrap();
        let closing = closing(root.path());
        let mut watcher = Watcher {
            closing: Arc::downgrade(&closing),
            inotify: rustix::fs::inotify::init(CreateFlags::NONBLOCK).unwrap(),
            watches: HashMap::new(),
            is_short: false,
            walked: Instant::now(),
        };
        let place = |path: &str| Place { map: 0, path: path.into() };
        for path in ["d/e", "de"] {
            closing.seen.tree.make_dir(&place(path)).unwrap();
        }
        watcher.enter(&closing, place(""));
        assert_eq!(watcher.watches.len(), 4);
        watcher.leave(&place("d"));
        let mut left: Vec<_> = watcher.watches.values().cloned().collect();
        left.sort();
        assert_eq!(left, [place(""), place("de")]);
    }
}
