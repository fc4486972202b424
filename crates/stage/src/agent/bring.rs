//! Getting files into the tree of the node. Owns the asking: a file that is here is not asked for, and one
//! that others wait for already is asked for once.

use std::sync::Arc;

use azekura_proto::FileKind;

use crate::agent::names::{Seen, errno_of, is_absent};
use crate::agent::wants::{Ended, Ready, Waiting, Wants};
use crate::message::{BUNDLE_NAMES_BYTES_MAX, PLACE_BYTES, Place, ToFront};
use crate::outbox::Outbox;

/// Asks for files.
#[derive(Clone)]
pub(crate) struct Bring {
    pub(crate) seen: Arc<Seen>,
    pub(crate) wants: Arc<Wants>,
    pub(crate) outbox: Outbox<ToFront>,
}

/// A file, and its length in bytes as far as it is known.
pub(crate) type Sized = (Place, u64);

impl Bring {
    pub(crate) fn is_here(&self, place: &Place) -> Result<bool, i32> {
        let found = self.seen.tree.look(place).map_err(|error| errno_of(&error))?;
        Ok(found.is_some())
    }

    /// Waits until files are in the tree. The error is a number of errno.
    pub(crate) fn bring(&self, files: Vec<Sized>) -> Result<(), i32> {
        for (file, waiting) in self.begin(files)? {
            match waiting.wait() {
                Ended::Decided(outcome) => outcome?,
                Ended::ReadThrough(errno) if !self.wants.is_soon_closed(&file.0) => {
                    return Err(errno);
                }
                // Those for whom it was read through have gone: there may be room for it now.
                Ended::ReadThrough(_) => {
                    self.begin(vec![file])?.into_iter().try_for_each(|(_, again)| {
                        match again.wait() {
                            Ended::Decided(outcome) => outcome,
                            Ended::ReadThrough(errno) => Err(errno),
                        }
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Waits until a file is in the tree, or can be read as it comes.
    pub(crate) fn bring_begun(&self, place: &Place, bytes: u64) -> Result<Ready, i32> {
        let waiting = self.begin(vec![(place.clone(), bytes)])?.pop();
        waiting.map_or(Ok(Ready::Whole), |(_, waiting)| waiting.wait_until_coming())
    }

    /// Asks for those that are not here.
    fn begin(&self, files: Vec<Sized>) -> Result<Vec<(Sized, Waiting)>, i32> {
        let (mut waiting, mut asked) = (Vec::new(), Vec::new());
        for (place, bytes) in files {
            if self.is_here(&place)? {
                self.seen.tree.asked_for(&place);
                continue;
            }
            let (wait, is_first) = self.wants.join(&place);
            waiting.push(((place.clone(), bytes), wait));
            if is_first {
                // It may have come between the look and the joining; then nobody else would say so.
                if self.is_here(&place)? {
                    self.wants.decide(&place, Ok(()));
                } else {
                    asked.push((place, bytes));
                }
            }
        }
        self.ask(&asked);
        Ok(waiting)
    }

    /// Asks for files, and does not wait.
    pub(crate) fn prefetch(&self, files: Vec<Sized>) {
        let is_away = |(place, _): &Sized| self.is_here(place) == Ok(false);
        self.ask(&files.into_iter().filter(is_away).collect::<Vec<_>>());
    }

    fn ask(&self, files: &[Sized]) {
        let mut left = files;
        while !left.is_empty() {
            let mut bytes = 0;
            let fits = |(place, _): &&Sized| {
                bytes += place.path.len() + PLACE_BYTES;
                bytes <= BUNDLE_NAMES_BYTES_MAX
            };
            let (some, others) = left.split_at(left.iter().take_while(fits).count().max(1));
            self.outbox.say(ToFront::Want { files: some.to_vec() });
            left = others;
        }
    }

    /// All files of the source at and below a directory. Directories are made in the tree if asked.
    pub(crate) fn all_below(&self, place: &Place, makes_dirs: bool) -> Result<Vec<Sized>, i32> {
        let (mut files, mut left) = (Vec::new(), vec![place.clone()]);
        while let Some(directory) = left.pop() {
            if makes_dirs {
                self.seen.tree.make_dir(&directory).map_err(|error| errno_of(&error))?;
            }
            for (name, found) in self.seen.source_names(&directory)? {
                let place = directory.join(&name);
                match found.kind {
                    FileKind::Regular => files.push((place, found.size)),
                    FileKind::Directory => left.push(place),
                    FileKind::Symlink if makes_dirs => self.make_link(&place, &found.link)?,
                    _ => {}
                }
            }
        }
        Ok(files)
    }

    /// Makes a symlink of the source in the tree, where it is about to be removed or renamed.
    pub(crate) fn make_link(&self, place: &Place, text: &[u8]) -> Result<(), i32> {
        let made = self.seen.tree.make_link(place, text);
        made.or_else(|error| match errno_of(&error) {
            errno if self.is_here(place) == Ok(true) || is_absent(errno) => Ok(()),
            errno => Err(errno),
        })
    }
}
