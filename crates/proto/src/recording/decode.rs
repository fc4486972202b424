//! Reading a record.

use std::collections::HashMap;

use super::layout::{self, CHUNK_BYTES, CHUNKS_MAX, HEADER_BYTES, MAGIC, VERSION};
use super::layout::{chunk, file, header, process, transfers};
use super::record::{End, File, Process, Recording, Sizes, Transfers};

/// Why a record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Shorter than what it says to hold, in bytes.
    #[error("it has {has} bytes where {needs} are needed")]
    Short {
        /// Bytes that there are.
        has: u64,
        /// Bytes that there should be.
        needs: u64,
    },
    /// Something else.
    #[error("it is no record of a program's I/O")]
    Foreign,
    /// Of another version.
    #[error("it is of version {0}, and {VERSION} is read here: use the azekura that wrote it")]
    Version(u64),
    /// More chunks than a record has.
    #[error("it says to have {0} chunks, and a record has {CHUNKS_MAX} at most")]
    Chunks(u64),
    /// An entry that cannot be.
    #[error("chunk {chunk} has an impossible entry at word {word}")]
    Entry {
        /// Number of the chunk.
        chunk: u64,
        /// Word in it.
        word: usize,
    },
}

/// Words of a part of the file, read one at a time.
#[derive(Clone, Copy)]
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// The word at an index; 0 behind the end.
    fn at(self, index: usize) -> u64 {
        let bytes = self.0.get(index * 8..index * 8 + 8);
        bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
    }

    fn from(self, index: usize) -> Self {
        Self(self.0.get(index * 8..).unwrap_or_default())
    }

    fn bytes(self, index: usize, length: usize) -> Option<&'a [u8]> {
        self.0.get(index * 8..index * 8 + length)
    }
}

/// Bytes that a record needs of its file, from its header.
///
/// # Errors
/// If this is no header.
fn length(words: Words<'_>, has: usize) -> Result<(u64, u64), Damage> {
    if has < HEADER_BYTES {
        return Err(Damage::Short { has: has as u64, needs: HEADER_BYTES as u64 });
    }
    if words.at(header::MAGIC) != MAGIC {
        return Err(Damage::Foreign);
    }
    if words.at(header::VERSION) != VERSION {
        return Err(Damage::Version(words.at(header::VERSION)));
    }
    let chunks = words.at(header::CHUNKS);
    // Processes that found no room have counted on.
    if chunks > CHUNKS_MAX && words.at(header::LOST) == 0 {
        return Err(Damage::Chunks(chunks));
    }
    let chunks = chunks.min(CHUNKS_MAX);
    Ok((chunks, HEADER_BYTES as u64 + chunks * CHUNK_BYTES as u64))
}

impl Recording {
    /// Bytes that a record takes up in its file, whose first page this is.
    ///
    /// # Errors
    /// If it is not one of a record.
    pub fn length(first_page: &[u8]) -> Result<u64, Damage> {
        length(Words(first_page), first_page.len()).map(|(_, bytes)| bytes)
    }
}

/// Reads a record.
///
/// # Errors
/// If it is none, or was damaged.
pub fn decode(bytes: &[u8]) -> Result<Recording, Damage> {
    let words = Words(bytes);
    let (chunks, needs) = length(words, bytes.len())?;
    if (bytes.len() as u64) < needs {
        return Err(Damage::Short { has: bytes.len() as u64, needs });
    }
    let mut recording = Recording {
        unseen_programs: words.at(header::UNSEEN_PROGRAMS),
        unseen_environments: words.at(header::UNSEEN_ENVIRONMENTS),
        lost: words.at(header::LOST),
        ..Recording::default()
    };
    let mut places = HashMap::new();
    for number in 0..chunks {
        let start = HEADER_BYTES + number as usize * CHUNK_BYTES;
        let whole = Words(&bytes[start..start + CHUNK_BYTES]);
        match whole.at(chunk::MAGIC) {
            // Given out, and never used: its process was killed in between.
            0 => continue,
            MAGIC => {}
            _ => return Err(Damage::Entry { chunk: number, word: 0 }),
        }
        let owner = whole.at(chunk::PROCESS);
        if owner > number {
            return Err(Damage::Entry { chunk: number, word: chunk::PROCESS });
        }
        entries(whole, number, |kind, entry| match kind {
            layout::PROCESS if owner == number => {
                let place = *places.entry(owner).or_insert(recording.processes.len());
                if place == recording.processes.len() {
                    recording.processes.push(read_process(entry)?);
                }
                Some(())
            }
            layout::FILE => {
                let place = *places.get(&owner)?;
                recording.processes.get_mut(place)?.files.push(read_file(entry)?);
                Some(())
            }
            _ => None,
        })?;
    }
    Ok(recording)
}

/// Goes through the entries of a chunk; one that `each` refuses is damage.
fn entries(
    whole: Words<'_>,
    number: u64,
    mut each: impl FnMut(u64, Words<'_>) -> Option<()>,
) -> Result<(), Damage> {
    let mut word = chunk::ENTRIES;
    while word < layout::CHUNK_WORDS {
        let head = whole.at(word);
        if head == 0 {
            break;
        }
        let damage = Damage::Entry { chunk: number, word };
        let length = (head & u64::from(u32::MAX)) as usize;
        if length == 0 || length > layout::CHUNK_WORDS - word {
            return Err(damage);
        }
        let entry = Words(whole.bytes(word, length * 8).unwrap_or_default());
        each(head >> 32, entry).ok_or(damage)?;
        word += length;
    }
    Ok(())
}

fn read_process(entry: Words<'_>) -> Option<Process> {
    if entry.0.len() < process::WORDS * 8 {
        return None;
    }
    let name = entry.bytes(process::NAME, 16)?;
    let end = match entry.at(process::END) {
        0 => End::Unknown,
        process::EXIT => End::Exit,
        process::EXEC => End::Exec,
        _ => return None,
    };
    let ended = match entry.at(process::ENDED) {
        0 => entry.at(process::LAST),
        ended => ended,
    };
    let started = entry.at(process::STARTED);
    let mut calls = [0; layout::CALLS.len()];
    for (place, count) in calls.iter_mut().enumerate() {
        *count = entry.at(process::CALLS + place);
    }
    let both = |index| [entry.at(index), entry.at(index + 1)];
    Some(Process {
        pid: entry.at(process::PID),
        parent: entry.at(process::PARENT),
        name: name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec(),
        started,
        ended: ended.max(started),
        end,
        calls,
        call_nanos: entry.at(process::CALL_NANOS),
        records: both(process::RECORDS),
        switches: both(process::SWITCHES),
        files: Vec::new(),
    })
}

fn read_file(entry: Words<'_>) -> Option<File> {
    let length = usize::try_from(entry.at(file::PATH_BYTES)).ok()?;
    if entry.0.len() < file::WORDS * 8 || length > layout::PATH_BYTES_MAX {
        return None;
    }
    Some(File {
        path: entry.bytes(file::WORDS, length)?.to_vec(),
        opens: entry.at(file::OPENS),
        creates: entry.at(file::CREATES),
        opened: entry.at(file::OPENED),
        closed: entry.at(file::CLOSED),
        size_before: entry.at(file::SIZE_BEFORE),
        end: entry.at(file::END),
        buffer: entry.at(file::BUFFER),
        maps: entry.at(file::MAPS),
        mapped: entry.at(file::MAPPED),
        seeks: entry.at(file::SEEKS),
        read: read_transfers(entry.from(file::TRANSFERS)),
        written: read_transfers(entry.from(file::TRANSFERS + transfers::WORDS)),
    })
}

fn read_transfers(words: Words<'_>) -> Transfers {
    Transfers {
        requests: words.at(transfers::REQUESTS),
        bytes: words.at(transfers::BYTES),
        sequential: words.at(transfers::SEQUENTIAL).min(words.at(transfers::REQUESTS)),
        nanos: words.at(transfers::NANOS),
        sizes: read_sizes(words.from(transfers::SIZES)),
        derived: words.at(transfers::DERIVED),
        records: words.at(transfers::RECORDS),
        record_bytes: words.at(transfers::RECORD_BYTES),
        record_sizes: read_sizes(words.from(transfers::RECORD_SIZES)),
    }
}

/// The sizes that occurred, the commonest first.
fn read_sizes(words: Words<'_>) -> Sizes {
    let mut sizes: Sizes = (0..transfers::SIZES_MAX)
        .map(|place| (words.at(place), words.at(transfers::SIZES_MAX + place)))
        .filter(|(_, count)| *count > 0)
        .collect();
    sizes.sort_by_key(|(size, count)| (std::cmp::Reverse(*count), *size));
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(bytes: &mut [u8], word: usize, value: u64) {
        bytes[word * 8..word * 8 + 8].copy_from_slice(&value.to_ne_bytes());
    }

    /// A record of two chunks of one process, with a file in each.
    fn sample() -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES + 2 * CHUNK_BYTES];
        set(&mut bytes, header::MAGIC, MAGIC);
        set(&mut bytes, header::VERSION, VERSION);
        set(&mut bytes, header::CHUNKS, 2);
        set(&mut bytes, header::UNSEEN_PROGRAMS, 3);
        let first = HEADER_BYTES / 8;
        let second = first + layout::CHUNK_WORDS;
        for start in [first, second] {
            set(&mut bytes, start + chunk::MAGIC, MAGIC);
            set(&mut bytes, start + chunk::PROCESS, 0);
        }
        let entry = first + chunk::ENTRIES;
        set(&mut bytes, entry, layout::head(layout::PROCESS, process::WORDS));
        set(&mut bytes, entry + process::PID, 77);
        set(&mut bytes, entry + process::STARTED, 1000);
        set(&mut bytes, entry + process::LAST, 1500);
        set(&mut bytes, entry + process::NAME, u64::from_ne_bytes(*b"sort\0\0\0\0"));
        add_file(&mut bytes, entry + process::WORDS, b"/data/in");
        add_file(&mut bytes, second + chunk::ENTRIES, b"/data/out");
        bytes
    }

    fn add_file(bytes: &mut [u8], at: usize, path: &[u8]) {
        let words = file::WORDS + path.len().div_ceil(8);
        set(bytes, at, layout::head(layout::FILE, words));
        set(bytes, at + file::PATH_BYTES, path.len() as u64);
        set(bytes, at + file::OPENS, 1);
        let read = at + file::TRANSFERS;
        set(bytes, read + transfers::REQUESTS, 5);
        set(bytes, read + transfers::SIZES, 512);
        set(bytes, read + transfers::SIZES + 1, 4096);
        set(bytes, read + transfers::SIZES + transfers::SIZES_MAX, 1);
        set(bytes, read + transfers::SIZES + transfers::SIZES_MAX + 1, 4);
        let start = (at + file::WORDS) * 8;
        bytes[start..start + path.len()].copy_from_slice(path);
    }

    #[test]
    fn a_record_is_read() {
        let recording = decode(&sample()).unwrap();
        assert_eq!(recording.unseen_programs, 3);
        let [process] = &recording.processes[..] else { panic!("there is one process") };
        assert_eq!((process.pid, process.name.as_slice()), (77, &b"sort"[..]));
        assert_eq!((process.end, process.ended), (End::Unknown, 1500));
        let paths: Vec<&[u8]> = process.files.iter().map(|file| file.path.as_slice()).collect();
        assert_eq!(paths, [&b"/data/in"[..], b"/data/out"]);
        assert_eq!(process.files[0].read.sizes, [(4096, 4), (512, 1)]);
    }

    #[test]
    fn what_was_never_finished_ends_its_chunk_only() {
        let mut bytes = sample();
        let entry = HEADER_BYTES / 8 + chunk::ENTRIES + process::WORDS;
        set(&mut bytes, entry, 0);
        let recording = decode(&bytes).unwrap();
        assert_eq!(recording.processes[0].files.len(), 1);
        let mut bytes = sample();
        set(&mut bytes, HEADER_BYTES / 8 + layout::CHUNK_WORDS + chunk::MAGIC, 0);
        assert_eq!(decode(&bytes).unwrap().processes[0].files.len(), 1);
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = |word: usize, value: u64| {
            let mut bytes = sample();
            set(&mut bytes, word, value);
            decode(&bytes).unwrap_err()
        };
        assert_eq!(refused(header::MAGIC, 1), Damage::Foreign);
        assert_eq!(refused(header::VERSION, 9), Damage::Version(9));
        assert!(matches!(refused(header::CHUNKS, 3), Damage::Short { .. }));
        assert_eq!(refused(header::CHUNKS, CHUNKS_MAX + 1), Damage::Chunks(CHUNKS_MAX + 1));
        let first = HEADER_BYTES / 8;
        let entry = first + chunk::ENTRIES;
        let impossible = [
            (first + chunk::MAGIC, 5),
            (first + chunk::PROCESS, 1),
            (entry, layout::head(7, process::WORDS)),
            (entry, layout::head(layout::PROCESS, 3)),
            (entry, layout::head(layout::PROCESS, layout::CHUNK_WORDS)),
            (entry + process::END, 3),
            (entry + process::WORDS + file::PATH_BYTES, u64::MAX),
            (entry + process::WORDS + file::PATH_BYTES, 4000),
        ];
        for (word, value) in impossible {
            let damage = refused(word, value);
            assert!(matches!(damage, Damage::Entry { .. }), "{word} {value}: {damage}");
        }
        let whole = sample();
        for end in (0..whole.len()).step_by(997) {
            decode(&whole[..end]).unwrap_err();
        }
    }
}
