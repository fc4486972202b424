//! Giving what has come whole its names at home. Owns how many files are made durable at once.

use std::io;

use azekura_proto::staging::Attributes;
use xxhash_rust::xxh3::xxh3_64;

use crate::front::outgoing::arrival::{Arrival, Bytes};
use crate::front::outgoing::compare::Task;
use crate::front::outgoing::homewards;
use crate::front::outgoing::round::{Came, Round};
use crate::message::{Extra, Home, Part};
use crate::source::NewFile;

/// Small files of one content that are written at once: a disk makes many of them durable in the time of one.
const WRITERS: usize = 16;

/// What became of a file.
type Named<'a> = (&'a Task, io::Result<Came>);
/// A small file that has come.
type Small<'a, 'b> = (&'b Naming<'a>, Attributes, &'b [u8]);

/// A file that is to get its name.
pub(crate) struct Naming<'a> {
    pub(crate) task: &'a Task,
    /// The version that it is on its node.
    pub(crate) home: Home,
    pub(crate) extra: &'a Extra,
}

/// Names the files of a content.
pub(crate) fn name<'a>(round: &Round, arrival: Arrival, files: &[Naming<'a>]) -> Vec<Named<'a>> {
    let parts = arrival.description.parts;
    match arrival.bytes {
        Bytes::File(mut file, hash) => {
            let (Some(naming), Some(part)) = (files.first(), parts.first()) else {
                return Vec::new();
            };
            let Attributes { size, mode, mtime, .. } = part.attributes;
            let came = Came { bytes: size, digest: Some(hash.digest()), home: naming.home };
            let named = dress(&mut *file, naming.extra).and_then(|()| file.commit(mode, mtime));
            vec![(naming.task, named.map(|()| came))]
        }
        Bytes::Memory(bytes) => {
            let mut rest = &bytes[..];
            let cut = |(naming, part)| {
                let (naming, part): (&Naming<'a>, &Part) = (naming, part);
                // All are there: Arrivals has compared the length.
                let (bytes, after) = rest.split_at(part.attributes.size as usize);
                rest = after;
                (naming, part.attributes.clone(), bytes)
            };
            write_all(round, &files.iter().zip(&parts).map(cut).collect::<Vec<_>>())
        }
    }
}

fn write_all<'a>(round: &Round, files: &[Small<'a, '_>]) -> Vec<Named<'a>> {
    let share = files.len().div_ceil(WRITERS).max(1);
    let failed = |file: &Small<'a, '_>| (file.0.task, Err(io::Error::other("its writer failed")));
    std::thread::scope(|scope| {
        let mut shares = Vec::with_capacity(WRITERS);
        for files in files.chunks(share) {
            let all = move || files.iter().map(|file| (file.0.task, write(round, file))).collect();
            shares.push((files, scope.spawn::<_, Vec<Named<'a>>>(all)));
        }
        let mut named = Vec::new();
        for (files, share) in shares {
            named.extend(share.join().unwrap_or_else(|_| files.iter().map(failed).collect()));
        }
        named
    })
}

/// Gives a file what it has beside its attributes. Only root may give files away.
fn dress(file: &mut dyn NewFile, extra: &Extra) -> io::Result<()> {
    let owner = rustix::process::geteuid().is_root().then_some(extra.owner);
    file.set_extras(&extra.xattrs, owner)
}

fn write(round: &Round, (naming, attributes, bytes): &Small) -> io::Result<Came> {
    let task = naming.task;
    let mut file = homewards::create(&**round.source(&task.place), &task.at)?;
    if !bytes.is_empty() {
        file.write_at(bytes, 0)?;
    }
    dress(&mut *file, naming.extra)?;
    file.commit(attributes.mode, attributes.mtime)?;
    Ok(Came { bytes: bytes.len() as u64, digest: Some(xxh3_64(bytes)), home: naming.home })
}
