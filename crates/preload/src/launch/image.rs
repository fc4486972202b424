//! What kind of program a file is, and where a library looks for others, told from its bytes. Pure:
//! never opens a file, and takes nothing in it for granted.

use azekura_posix::{Errno, Result};

/// What the kernel looks at of a `#!` line, in bytes.
const SCRIPT_LINE_BYTES: usize = 256;
const MAGIC: &[u8] = b"\x7fELF";
const HEADER_BYTES: usize = 64;
const SEGMENT_BYTES: usize = 56;
const SEGMENTS_MAX: usize = 256;
const DYNAMIC_BYTES_MAX: u64 = 64 << 10;
const STRING_BYTES_MAX: usize = 4096;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// Reads at an offset of the file; fewer bytes only at its end.
pub(crate) type Reader<'a> = dyn Fn(u64, &mut [u8]) -> Result<usize> + 'a;

/// A kind of program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Image {
    /// Loaded by a dynamic loader.
    Dynamic,
    /// Loaded by the kernel alone.
    Static,
    /// Run by an interpreter, with at most one argument.
    Script {
        /// Path of the interpreter.
        interpreter: Vec<u8>,
        /// What stands behind it on the line.
        argument: Option<Vec<u8>>,
    },
    /// None of these: the kernel has to say.
    Unknown,
}

/// What an ELF file says about other libraries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Names of libraries.
    pub(crate) libraries: Vec<Vec<u8>>,
    /// Directories to look in, as written.
    pub(crate) directories: Vec<Vec<u8>>,
}

fn half(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 2).map_or(0, |b| usize::from(u16::from_ne_bytes([b[0], b[1]])))
}

fn wide(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(found) = bytes.get(at..at + 8) {
        word.copy_from_slice(found);
    }
    u64::from_ne_bytes(word)
}

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    bytes: u64,
}

fn piece(read: &Reader<'_>, offset: u64, bytes: usize) -> Result<Vec<u8>> {
    let mut piece = vec![0; bytes];
    let mut done = 0;
    while done < bytes {
        match read(offset.saturating_add(done as u64), &mut piece[done..])? {
            0 => break,
            got => done += got,
        }
    }
    piece.truncate(done);
    Ok(piece)
}

/// The segments; none if it is not an ELF file of this machine.
fn segments(read: &Reader<'_>, head: &[u8]) -> Result<Option<Vec<Segment>>> {
    let little = if cfg!(target_endian = "little") { 1 } else { 2 };
    if !head.starts_with(MAGIC) || head.len() < HEADER_BYTES || head[4] != 2 || head[5] != little {
        return Ok(None);
    }
    let count = half(head, 56).min(SEGMENTS_MAX);
    if half(head, 54) != SEGMENT_BYTES {
        return Ok(None);
    }
    let table = piece(read, wide(head, 32), count * SEGMENT_BYTES)?;
    Ok(Some(
        table
            .chunks_exact(SEGMENT_BYTES)
            .map(|entry| Segment {
                kind: wide(entry, 0) as u32,
                offset: wide(entry, 8),
                address: wide(entry, 16),
                bytes: wide(entry, 32),
            })
            .collect(),
    ))
}

fn script(line: &[u8]) -> Image {
    let line = &line[..line.len().min(SCRIPT_LINE_BYTES)];
    let end = line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len());
    let line = line[..end].trim_ascii();
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let (interpreter, argument) = match line.iter().position(blank) {
        Some(at) => (&line[..at], Some(line[at..].trim_ascii())),
        None => (line, None),
    };
    if interpreter.is_empty() {
        return Image::Unknown;
    }
    Image::Script {
        interpreter: interpreter.to_vec(),
        argument: argument.filter(|text| !text.is_empty()).map(<[u8]>::to_vec),
    }
}

/// Tells what the file is.
pub(crate) fn kind(read: &Reader<'_>) -> Result<Image> {
    let head = piece(read, 0, SCRIPT_LINE_BYTES)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        return Ok(script(line));
    }
    Ok(match segments(read, &head)? {
        None => Image::Unknown,
        Some(all) if all.iter().any(|segment| segment.kind == PT_INTERP) => Image::Dynamic,
        Some(all) if all.iter().any(|segment| segment.kind == PT_DYNAMIC) => shared(read, &all)?,
        Some(_) => Image::Static,
    })
}

/// A file with a dynamic section but no loader: a static program that can stand anywhere in memory
/// has an entry and no name for itself; a loader has one.
fn shared(read: &Reader<'_>, all: &[Segment]) -> Result<Image> {
    const DT_SONAME: u64 = 14;
    let entries = dynamic(read, all)?;
    let has_name = entries.iter().any(|(tag, _)| *tag == DT_SONAME);
    Ok(if has_name { Image::Unknown } else { Image::Static })
}

fn dynamic(read: &Reader<'_>, all: &[Segment]) -> Result<Vec<(u64, u64)>> {
    let Some(section) = all.iter().find(|segment| segment.kind == PT_DYNAMIC) else {
        return Ok(Vec::new());
    };
    let bytes = section.bytes.min(DYNAMIC_BYTES_MAX) as usize;
    let entries = piece(read, section.offset, bytes)?;
    Ok(entries
        .chunks_exact(16)
        .map(|entry| (wide(entry, 0), wide(entry, 8)))
        .take_while(|(tag, _)| *tag != 0)
        .collect())
}

/// What an ELF file says about other libraries; nothing for any other file.
pub(crate) fn needs(read: &Reader<'_>) -> Result<Needs> {
    let head = piece(read, 0, HEADER_BYTES)?;
    let Some(all) = segments(read, &head)? else { return Ok(Needs::default()) };
    let entries = dynamic(read, &all)?;
    let Some((_, strings)) = entries.iter().find(|(tag, _)| *tag == DT_STRTAB) else {
        return Ok(Needs::default());
    };
    // The table is named by its address in memory.
    let home = all.iter().filter(|segment| segment.kind == PT_LOAD).find(|segment| {
        strings.checked_sub(segment.address).is_some_and(|into| into < segment.bytes)
    });
    let Some(home) = home else { return Ok(Needs::default()) };
    let table = strings - home.address + home.offset;
    let text = |at: u64| -> Result<Vec<u8>> {
        let start = table.checked_add(at).ok_or(Errno::INVAL)?;
        let mut text = piece(read, start, STRING_BYTES_MAX)?;
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(0);
        text.truncate(end);
        Ok(text)
    };
    let mut needs = Needs::default();
    for (tag, value) in entries {
        match tag {
            DT_NEEDED => needs.libraries.push(text(value)?),
            DT_RPATH | DT_RUNPATH => needs
                .directories
                .extend(text(value)?.split(|byte| *byte == b':').map(<[u8]>::to_vec)),
            _ => {}
        }
    }
    Ok(needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(file: &[u8]) -> Image {
        kind(&|at, into: &mut [u8]| {
            let rest = file.get(at as usize..).unwrap_or_default();
            let bytes = rest.len().min(into.len());
            into[..bytes].copy_from_slice(&rest[..bytes]);
            Ok(bytes)
        })
        .unwrap()
    }

    #[test]
    fn scripts_name_their_interpreter() {
        let script = |interpreter: &[u8], argument: Option<&[u8]>| Image::Script {
            interpreter: interpreter.to_vec(),
            argument: argument.map(<[u8]>::to_vec),
        };
        assert_eq!(of(b"#!/bin/sh\necho"), script(b"/bin/sh", None));
        assert_eq!(of(b"#! /usr/bin/env  a b \n"), script(b"/usr/bin/env", Some(b"a b")));
        assert_eq!(of(b"#!\n"), Image::Unknown);
        assert_eq!(of(b"echo"), Image::Unknown);
        assert_eq!(of(b""), Image::Unknown);
    }

    #[test]
    fn this_program_is_dynamic_and_torn_ones_are_no_danger() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(of(&own), Image::Dynamic);
        for end in (0..2000).step_by(7) {
            let _ = of(&own[..end]);
        }
        let mut wild = own[..1000].to_vec();
        wild[32..40].copy_from_slice(&u64::MAX.to_ne_bytes());
        let _ = of(&wild);
    }
}
