//! Scripts of a map. The kernel would look for their interpreter on the node alone, and tell it a descriptor for
//! the script's name: so the interpreter is run in its place, with the name that the program has for the script.
//! Owns what the first line means, and the words that the interpreter gets; they stand in memory that is made for
//! them, as nothing of the program's own is written to. A program that shares its memory with the one that started
//! it (vfork) leaves those bytes there.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;

use super::caller::{Caller, errno};
use super::maps::Maps;
use super::open::open_program;
use super::remote::{Outcome, Remote};
use crate::sys::memory;

/// What the kernel reads of a first line, in bytes.
const LINE_BYTES_MAX: usize = 256;
/// Scripts that are each other's interpreters, at most, as of the kernel.
const SCRIPTS_MAX: usize = 5;
/// Words of a program at most.
const WORDS_MAX: usize = 1 << 20;
const WORD_BYTES: usize = size_of::<u64>();
/// What is read of a list of words at once.
const WORDS_READ: usize = 512;

/// What is run in a script's place.
pub(super) struct Interpreter {
    /// Its file, if it lies in a map; else it is found by its name, the first word.
    pub(super) file: Option<OwnedFd>,
    /// The words that come before those of the script.
    words: Vec<Vec<u8>>,
    /// Where the script's own words stand.
    others: Vec<u64>,
}

/// What runs a script; `None` for what is none.
pub(super) fn interpreter(
    maps: &Maps,
    caller: &Caller,
    argv: u64,
    name: Vec<u8>,
    script: &OwnedFd,
) -> Result<Option<Interpreter>, Errno> {
    let Some(line) = first_line(script)? else { return Ok(None) };
    let mut words = vec![name];
    let mut line = line;
    for _ in 0..SCRIPTS_MAX {
        let (path, argument) = split(&line).ok_or(Errno::NOEXEC)?;
        words.splice(0..0, [Some(path), argument].into_iter().flatten().map(<[u8]>::to_vec));
        let whole = match path {
            [b'/', ..] => path.to_vec(),
            _ => {
                [&caller.base(libc::AT_FDCWD).ok_or(Errno::NOENT)?, b"/".as_slice(), path].concat()
            }
        };
        let others = others(caller, argv)?;
        let Some(place) = maps.find(&whole) else {
            return Ok(Some(Interpreter { file: None, words, others }));
        };
        let file = open_program(maps, caller, &place, true)?;
        match first_line(&file)? {
            Some(next) => line = next,
            None => return Ok(Some(Interpreter { file: Some(file), words, others })),
        }
    }
    Err(Errno::LOOP)
}

/// The line behind `#!`.
fn first_line(file: &OwnedFd) -> Result<Option<Vec<u8>>, Errno> {
    let mut head = vec![0; LINE_BYTES_MAX];
    let got = rustix::io::pread(file.as_fd(), &mut head, 0)?;
    head.truncate(got);
    let end = head.iter().position(|byte| *byte == b'\n').unwrap_or(got);
    Ok(head[..end].strip_prefix(b"#!").map(<[u8]>::to_vec))
}

/// The path of an interpreter, and the rest of the line, which is one word.
fn split(line: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let line = line.split(|byte| *byte == 0).next()?;
    let start = line.iter().position(|byte| !is_blank(byte))?;
    let end = line.iter().rposition(|byte| !is_blank(byte))? + 1;
    let line = &line[start..end];
    let Some(middle) = line.iter().position(is_blank) else { return Some((line, None)) };
    let rest = &line[middle..];
    let argument = rest.iter().position(|byte| !is_blank(byte)).map(|at| &rest[at..]);
    Some((&line[..middle], argument))
}

/// The words of a program but the first, which is its name.
fn others(caller: &Caller, argv: u64) -> Result<Vec<u64>, Errno> {
    let mut words = Vec::new();
    let mut part = [0; WORDS_READ * WORD_BYTES];
    while argv != 0 && words.len() < WORDS_MAX {
        let address = argv + (words.len() * WORD_BYTES) as u64;
        let got = memory::read(caller.call.tid, address, &mut part);
        let got = got.map_err(|error| errno(&error))?;
        let read = part[..got].chunks_exact(WORD_BYTES);
        let numbers = read.map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap_or_default()));
        let before = words.len();
        words.extend(numbers);
        if words.len() == before {
            return Err(Errno::FAULT);
        }
        if let Some(end) = words[before..].iter().position(|word| *word == 0) {
            words.truncate(before + end);
            break;
        }
    }
    if words.len() >= WORDS_MAX {
        return Err(Errno::TOOBIG);
    }
    Ok(words.split_off(words.len().min(1)))
}

/// Where words stand in the caller's memory.
pub(super) struct Put {
    /// The list of them, at the beginning of what was made for all.
    pub(super) argv: u64,
    pub(super) bytes: u64,
    /// The first of them.
    pub(super) first: u64,
    /// An empty text.
    pub(super) nothing: u64,
}

impl Interpreter {
    /// Puts the words into the caller's memory.
    pub(super) fn put(&self, caller: &Caller, remote: &mut Remote) -> io::Result<Put> {
        let texts: usize = self.words.iter().map(|word| word.len() + 1).sum();
        let count = self.words.len() + self.others.len() + 1;
        let bytes = (count * WORD_BYTES + texts) as u64;
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let args = [0, bytes, protection, flags, u64::MAX, 0];
        let at = match remote.call(libc::SYS_mmap, args)? {
            Outcome::Result(error @ -4095..=-1) => {
                return Err(io::Error::from_raw_os_error(-error as i32));
            }
            Outcome::Result(at) => at as u64,
            Outcome::Left => return Err(Errno::SRCH.into()),
        };
        let first = at + (count * WORD_BYTES) as u64;
        let (mut list, mut text) = (Vec::with_capacity(bytes as usize), Vec::new());
        for word in &self.words {
            list.extend((first + text.len() as u64).to_ne_bytes());
            text.extend_from_slice(word);
            text.push(0);
        }
        list.extend(self.others.iter().chain(&[0]).flat_map(|word| word.to_ne_bytes()));
        list.extend(text);
        memory::write(caller.call.tid, at, &list)?;
        let nothing = first + self.words.first().map_or(0, Vec::len) as u64;
        Ok(Put { argv: at, bytes, first, nothing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_line_is_split_as_the_kernel_does() {
        let split = |line: &'static str| {
            let (path, argument) = split(line.as_bytes())?;
            Some((path, argument.unwrap_or(b"-")))
        };
        assert_eq!(split("/bin/sh"), Some((&b"/bin/sh"[..], &b"-"[..])));
        assert_eq!(split(" \t/bin/sh\t -e  x "), Some((&b"/bin/sh"[..], &b"-e  x"[..])));
        assert_eq!(split("bin/sh "), Some((&b"bin/sh"[..], &b"-"[..])));
        assert_eq!(split(" "), None);
        assert_eq!(split(""), None);
    }
}
