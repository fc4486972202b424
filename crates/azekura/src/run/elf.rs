//! What kind of program a file is, told from its first bytes. Owns the reading of ELF headers and
//! `#!` lines; never opens a file, and takes nothing in them for granted.

/// As many bytes of a file as are looked at. Program headers and notes stand at the very front.
pub(super) const HEAD_BYTES: usize = 64 << 10;

/// A `#!` line is cut off by the kernel at this length, in bytes.
const SCRIPT_LINE_BYTES: usize = 256;
const MAGIC: &[u8] = b"\x7fELF";
const CLASS_64: u8 = 2;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
const PROGRAM_HEADER_BYTES: usize = 56;
/// The note that every Go linker leaves, with the build id.
const GO_NOTE: &[u8] = b"Go\0\0";

/// A kind of program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// Loaded by the same dynamic loader as this program, which honours `LD_PRELOAD`.
    Dynamic,
    /// Loaded by the kernel alone.
    Static,
    /// Linked dynamically, but Go makes its system calls itself.
    Go,
    /// Loaded by another C library's loader, of this path.
    OtherLoader(String),
    /// For another machine or word size.
    OtherMachine,
    /// Run by an interpreter, with at most one argument.
    Script {
        /// Path of the interpreter.
        interpreter: Vec<u8>,
        /// What stands behind it on the line.
        argument: Option<Vec<u8>>,
    },
    /// None of these.
    Unknown,
}

/// Tells what a file is that begins with `head`, from the point of view of a program that begins
/// with `own`.
pub(super) fn classify(head: &[u8], own: &[u8]) -> Program {
    if let Some(line) = head.strip_prefix(b"#!") {
        return script(line);
    }
    if !head.starts_with(MAGIC) || head.len() < 64 {
        return Program::Unknown;
    }
    let is_same_machine = own.len() >= 64 && head[4..6] == own[4..6] && head[18..20] == own[18..20];
    if !is_same_machine || head[4] != CLASS_64 || half(head, 54) != PROGRAM_HEADER_BYTES {
        return Program::OtherMachine;
    }
    let Some(interpreter) = interpreter(head) else { return Program::Static };
    if segments(head).any(|segment| segment.kind == PT_NOTE && is_from_go(segment.bytes)) {
        return Program::Go;
    }
    let own_loader = self::interpreter(own).unwrap_or_default();
    if loader_family(interpreter) == loader_family(own_loader) {
        Program::Dynamic
    } else {
        Program::OtherLoader(String::from_utf8_lossy(interpreter).into_owned())
    }
}

fn script(line: &[u8]) -> Program {
    let line = &line[..line.len().min(SCRIPT_LINE_BYTES)];
    let end = line.iter().position(|byte| *byte == b'\n').unwrap_or(line.len());
    let line = line[..end].trim_ascii();
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let (interpreter, argument) = match line.iter().position(blank) {
        Some(at) => (&line[..at], Some(line[at..].trim_ascii())),
        None => (line, None),
    };
    if interpreter.is_empty() {
        return Program::Unknown;
    }
    Program::Script {
        interpreter: interpreter.to_vec(),
        argument: argument.filter(|text| !text.is_empty()).map(<[u8]>::to_vec),
    }
}

/// The program that `env` would run, given what follows it on a `#!` line.
pub(super) fn env_target(argument: &[u8]) -> Option<&[u8]> {
    argument
        .split(u8::is_ascii_whitespace)
        .find(|word| !word.is_empty() && !word.starts_with(b"-") && !word.contains(&b'='))
}

struct Segment<'a> {
    kind: u32,
    /// What of it lies in the head; empty if it begins behind.
    bytes: &'a [u8],
}

fn segments(head: &[u8]) -> impl Iterator<Item = Segment<'_>> {
    let table = usize::try_from(wide(head, 32)).unwrap_or(usize::MAX);
    let count = half(head, 56);
    (0..count).map_while(move |number| {
        let start = table.checked_add(number * PROGRAM_HEADER_BYTES)?;
        let header = head.get(start..start.checked_add(PROGRAM_HEADER_BYTES)?)?;
        let offset = usize::try_from(wide(header, 8)).unwrap_or(usize::MAX);
        let bytes = usize::try_from(wide(header, 32)).unwrap_or(usize::MAX);
        let end = offset.saturating_add(bytes).min(head.len());
        let kind = if is_little(head) {
            u32::from_le_bytes([header[0], header[1], header[2], header[3]])
        } else {
            u32::from_be_bytes([header[0], header[1], header[2], header[3]])
        };
        Some(Segment { kind, bytes: head.get(offset..end).unwrap_or_default() })
    })
}

fn interpreter(head: &[u8]) -> Option<&[u8]> {
    let segment = segments(head).find(|segment| segment.kind == PT_INTERP)?;
    let end = segment.bytes.iter().position(|byte| *byte == 0).unwrap_or(segment.bytes.len());
    Some(&segment.bytes[..end])
}

/// The file name of a loader without the machine's part: `ld-linux`, `ld-musl`, `ld64`.
fn loader_family(path: &[u8]) -> &[u8] {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if name.starts_with(b"ld-musl") { b"ld-musl" } else { b"ld" }
}

fn is_from_go(mut notes: &[u8]) -> bool {
    // Three words, then the name and the description, each padded to four bytes. All machines that
    // are told apart here by their own header have the same byte order as this one.
    while let Some(header) = notes.get(..12) {
        let word = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
                as usize
        };
        let name_end = 12_usize.saturating_add(word(0));
        if notes.get(12..name_end) == Some(GO_NOTE) {
            return true;
        }
        let padded = |bytes: usize| bytes.checked_next_multiple_of(4).unwrap_or(usize::MAX);
        let next = padded(name_end).saturating_add(padded(word(4)));
        match notes.get(next..) {
            Some(rest) => notes = rest,
            None => return false,
        }
    }
    false
}

fn is_little(head: &[u8]) -> bool {
    head[5] == 1
}

fn half(head: &[u8], at: usize) -> usize {
    let bytes = [head[at], head[at + 1]];
    let read = if is_little(head) { u16::from_le_bytes } else { u16::from_be_bytes };
    usize::from(read(bytes))
}

/// Eight bytes of a header; which byte order they have does not matter to the program's own
/// machine, the only one whose headers are read this far.
fn wide(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The head of a 64-bit program with these segments.
    fn program(segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut head = vec![0; 64];
        head[..4].copy_from_slice(MAGIC);
        head[4] = CLASS_64;
        head[5] = if cfg!(target_endian = "little") { 1 } else { 2 };
        head[18..20].copy_from_slice(&62_u16.to_ne_bytes());
        head[32..40].copy_from_slice(&64_u64.to_ne_bytes());
        head[54..56].copy_from_slice(&(PROGRAM_HEADER_BYTES as u16).to_ne_bytes());
        head[56..58].copy_from_slice(&(segments.len() as u16).to_ne_bytes());
        let mut data = Vec::new();
        let data_at = 64 + segments.len() * PROGRAM_HEADER_BYTES;
        for (kind, bytes) in segments {
            let mut header = vec![0; PROGRAM_HEADER_BYTES];
            header[..4].copy_from_slice(&kind.to_ne_bytes());
            header[8..16].copy_from_slice(&((data_at + data.len()) as u64).to_ne_bytes());
            header[32..40].copy_from_slice(&(bytes.len() as u64).to_ne_bytes());
            head.extend(header);
            data.extend_from_slice(bytes);
        }
        head.extend(data);
        head
    }

    const GLIBC: (u32, &[u8]) = (PT_INTERP, b"/lib64/ld-linux-x86-64.so.2\0");
    const LOAD: (u32, &[u8]) = (1, b"code");

    fn own() -> Vec<u8> {
        program(&[LOAD, GLIBC])
    }

    #[test]
    fn a_loader_makes_the_difference() {
        assert_eq!(classify(&program(&[GLIBC, LOAD]), &own()), Program::Dynamic);
        assert_eq!(classify(&program(&[LOAD]), &own()), Program::Static);
        let musl = program(&[(PT_INTERP, b"/lib/ld-musl-x86_64.so.1\0")]);
        assert!(matches!(classify(&musl, &own()), Program::OtherLoader(_)));
    }

    #[test]
    fn go_is_known_by_its_note() {
        let mut notes = Vec::new();
        for (name, kind) in [(&b"GNU\0"[..], 3_u32), (GO_NOTE, 4)] {
            notes.extend((name.len() as u32).to_ne_bytes());
            notes.extend(6_u32.to_ne_bytes());
            notes.extend(kind.to_ne_bytes());
            notes.extend(name);
            notes.extend(b"build id");
        }
        assert_eq!(classify(&program(&[GLIBC, (PT_NOTE, &notes)]), &own()), Program::Go);
        let torn = &notes[..20];
        assert_eq!(classify(&program(&[GLIBC, (PT_NOTE, torn)]), &own()), Program::Dynamic);
    }

    #[test]
    fn other_machines_are_told_apart() {
        let mut small = program(&[GLIBC]);
        small[4] = 1;
        assert_eq!(classify(&small, &own()), Program::OtherMachine);
        let mut other = program(&[GLIBC]);
        other[18..20].copy_from_slice(&183_u16.to_ne_bytes());
        assert_eq!(classify(&other, &own()), Program::OtherMachine);
    }

    #[test]
    fn scripts_name_their_interpreter() {
        let script = |interpreter: &[u8], argument: Option<&[u8]>| Program::Script {
            interpreter: interpreter.to_vec(),
            argument: argument.map(<[u8]>::to_vec),
        };
        assert_eq!(classify(b"#!/bin/sh\necho", &own()), script(b"/bin/sh", None));
        assert_eq!(
            classify(b"#! /usr/bin/env python3 -u \n", &own()),
            script(b"/usr/bin/env", Some(b"python3 -u"))
        );
        assert_eq!(classify(b"#!/bin/awk -f", &own()), script(b"/bin/awk", Some(b"-f")));
        assert_eq!(classify(b"#!\n", &own()), Program::Unknown);
        assert_eq!(env_target(b"-S A=b python3 -u"), Some(&b"python3"[..]));
        assert_eq!(env_target(b"-i"), None);
    }

    #[test]
    fn torn_and_strange_files_are_no_danger() {
        assert_eq!(classify(b"", &own()), Program::Unknown);
        assert_eq!(classify(b"\x7fELF", &own()), Program::Unknown);
        let whole = own();
        for end in 0..whole.len() {
            let _ = classify(&whole[..end], &own());
        }
        let mut wild = own();
        wild[32..40].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert_eq!(classify(&wild, &own()), Program::Static);
        let mut wild = own();
        wild[64 + PROGRAM_HEADER_BYTES + 8..64 + PROGRAM_HEADER_BYTES + 16]
            .copy_from_slice(&u64::MAX.to_ne_bytes());
        let _ = classify(&wild, &own());
    }

    #[test]
    fn this_very_program_is_dynamic() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(classify(&own, &own), Program::Dynamic);
    }
}
