//! Giving what has come whole its names at home. Owns how many files are made durable at once.

use std::io;

use azekura_proto::staging::Attributes;
use xxhash_rust::xxh3::xxh3_64;

use crate::front::outgoing::arrival::{Arrival, Bytes};
use crate::front::outgoing::compare::Task;
use crate::front::outgoing::homewards;
use crate::front::outgoing::round::{Came, Round};
use crate::message::{Home, Part};

/// Small files of one content that are written at once: a disk makes many of them durable in the time of one.
const WRITERS: usize = 16;

/// What became of a file.
type Named<'a> = (&'a Task, io::Result<Came>);
/// A small file that has come.
type Small<'a, 'b> = (&'a Task, Attributes, &'b [u8], Home);

/// Names the files of a content.
pub(crate) fn name<'a>(
    round: &Round,
    arrival: Arrival,
    files: &[(&'a Task, Home)],
) -> Vec<Named<'a>> {
    let parts = arrival.description.parts;
    match arrival.bytes {
        Bytes::File(file, hash) => {
            let (Some((task, home)), Some(part)) = (files.first(), parts.first()) else {
                return Vec::new();
            };
            let Attributes { size, mode, mtime, .. } = part.attributes;
            let came = Came { bytes: size, digest: Some(hash.digest()), home: *home };
            vec![(*task, file.commit(mode, mtime).map(|()| came))]
        }
        Bytes::Memory(bytes) => {
            let mut rest = &bytes[..];
            let cut = |((task, home), part): (&(&'a Task, Home), &Part)| {
                // All are there: Arrivals has compared the length.
                let (bytes, after) = rest.split_at(part.attributes.size as usize);
                rest = after;
                (*task, part.attributes.clone(), bytes, *home)
            };
            write_all(round, &files.iter().zip(&parts).map(cut).collect::<Vec<_>>())
        }
    }
}

fn write_all<'a>(round: &Round, files: &[Small<'a, '_>]) -> Vec<Named<'a>> {
    let share = files.len().div_ceil(WRITERS).max(1);
    let failed = |file: &Small<'a, '_>| (file.0, Err(io::Error::other("its writer failed")));
    std::thread::scope(|scope| {
        let mut shares = Vec::with_capacity(WRITERS);
        for files in files.chunks(share) {
            let all = move || files.iter().map(|file| (file.0, write(round, file))).collect();
            shares.push((files, scope.spawn::<_, Vec<Named<'a>>>(all)));
        }
        let mut named = Vec::new();
        for (files, share) in shares {
            named.extend(share.join().unwrap_or_else(|_| files.iter().map(failed).collect()));
        }
        named
    })
}

fn write(round: &Round, (task, attributes, bytes, home): &Small) -> io::Result<Came> {
    let mut file = homewards::create(&**round.source(&task.place), &task.at)?;
    if !bytes.is_empty() {
        file.write_at(bytes, 0)?;
    }
    file.commit(attributes.mode, attributes.mtime)?;
    Ok(Came { bytes: bytes.len() as u64, digest: Some(xxh3_64(bytes)), home: *home })
}
