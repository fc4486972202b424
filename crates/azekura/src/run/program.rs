//! What kind of program a file is to this one. Owns which of them the preload library can serve: those
//! that the same dynamic loader brings into memory, and that call the C library for everything.

use azekura_executable::{Elf, Executable, Linking, Reader, Script};

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
    /// Run by an interpreter.
    Script(Script),
    /// None of these.
    Unknown,
}

/// What this program is, for comparison.
#[derive(Clone, Debug)]
pub(super) struct Own {
    machine: u16,
    loader: Vec<u8>,
}

impl Own {
    /// Reads this program's own file; `None` if it cannot be read.
    pub(super) fn read<E>(read: &Reader<'_, E>) -> Option<Self> {
        match Executable::read(read).ok()? {
            Executable::Elf(elf) => {
                Some(Self { machine: elf.machine(), loader: elf.loader().ok()? })
            }
            _ => None,
        }
    }
}

/// Tells what a file is, from the point of view of the program `own`.
pub(super) fn classify<E>(read: &Reader<'_, E>, own: Option<&Own>) -> Result<Program, E> {
    match (Executable::read(read)?, own) {
        (Executable::Script(script), _) => Ok(Program::Script(script)),
        (Executable::Elf(elf), Some(own)) if elf.machine() == own.machine => {
            classify_elf(&elf, own)
        }
        (Executable::Elf(_) | Executable::ForeignElf, _) => Ok(Program::OtherMachine),
        (Executable::Unknown, _) => Ok(Program::Unknown),
    }
}

fn classify_elf<E>(elf: &Elf<'_, E>, own: &Own) -> Result<Program, E> {
    if elf.linking()? != Linking::Dynamic {
        return Ok(Program::Static);
    }
    if elf.is_from_go()? {
        return Ok(Program::Go);
    }
    let loader = elf.loader()?;
    if is_of_musl(&loader) == is_of_musl(&own.loader) {
        return Ok(Program::Dynamic);
    }
    Ok(Program::OtherLoader(String::from_utf8_lossy(&loader).into_owned()))
}

/// Which C library a loader belongs to: each loads only programs that were built for its own.
fn is_of_musl(loader: &[u8]) -> bool {
    loader.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(b"ld-musl"))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const HEADER_BYTES: usize = 56;
    const PT_INTERP: u32 = 3;
    const PT_NOTE: u32 = 4;
    const GO_NOTE: &[u8] = b"Go\0\0";

    /// The head of a 64-bit program with these segments.
    fn program(segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut head = vec![0; 64];
        head[..4].copy_from_slice(b"\x7fELF");
        head[4] = 2;
        head[5] = if cfg!(target_endian = "little") { 1 } else { 2 };
        head[18..20].copy_from_slice(&62_u16.to_ne_bytes());
        head[32..40].copy_from_slice(&64_u64.to_ne_bytes());
        head[54..56].copy_from_slice(&(HEADER_BYTES as u16).to_ne_bytes());
        head[56..58].copy_from_slice(&(segments.len() as u16).to_ne_bytes());
        let mut data = Vec::new();
        let data_at = 64 + segments.len() * HEADER_BYTES;
        for (kind, bytes) in segments {
            let mut header = vec![0; HEADER_BYTES];
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

    fn reader(file: &[u8]) -> impl Fn(u64, &mut [u8]) -> Result<usize, Infallible> {
        move |at, into| {
            let rest = file.get(at as usize..).unwrap_or_default();
            let bytes = rest.len().min(into.len());
            into[..bytes].copy_from_slice(&rest[..bytes]);
            Ok(bytes)
        }
    }

    /// What the file is to a program that is `own`.
    fn to(own: &[u8], file: &[u8]) -> Program {
        let own = Own::read(&reader(own));
        classify(&reader(file), own.as_ref()).unwrap()
    }

    fn kind(file: &[u8]) -> Program {
        to(&program(&[LOAD, GLIBC]), file)
    }

    #[test]
    fn a_loader_makes_the_difference() {
        assert_eq!(kind(&program(&[GLIBC, LOAD])), Program::Dynamic);
        assert_eq!(kind(&program(&[LOAD])), Program::Static);
        let musl = program(&[(PT_INTERP, b"/lib/ld-musl-x86_64.so.1\0")]);
        assert!(matches!(kind(&musl), Program::OtherLoader(_)));
        assert_eq!(to(&musl, &musl), Program::Dynamic);
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
        assert_eq!(kind(&program(&[GLIBC, (PT_NOTE, &notes)])), Program::Go);
        let torn = &notes[..20];
        assert_eq!(kind(&program(&[GLIBC, (PT_NOTE, torn)])), Program::Dynamic);
    }

    #[test]
    fn other_machines_are_told_apart() {
        let mut small = program(&[GLIBC]);
        small[4] = 1;
        assert_eq!(kind(&small), Program::OtherMachine);
        let mut other = program(&[GLIBC]);
        other[18..20].copy_from_slice(&183_u16.to_ne_bytes());
        assert_eq!(kind(&other), Program::OtherMachine);
        assert_eq!(to(b"", &program(&[GLIBC])), Program::OtherMachine);
    }

    #[test]
    fn scripts_name_their_interpreter() {
        let Program::Script(script) = kind(b"#!/bin/sh -e\necho") else { panic!("it is a script") };
        assert_eq!(script.interpreter, b"/bin/sh");
        assert_eq!(script.argument.as_deref(), Some(&b"-e"[..]));
        assert_eq!(kind(b"#!\n"), Program::Unknown);
    }

    #[test]
    fn torn_and_strange_files_are_no_danger() {
        assert_eq!(kind(b""), Program::Unknown);
        assert_eq!(kind(b"\x7fELF"), Program::Unknown);
        let whole = program(&[LOAD, GLIBC]);
        for end in 0..whole.len() {
            let _ = kind(&whole[..end]);
        }
        let mut wild = whole.clone();
        wild[32..40].copy_from_slice(&u64::MAX.to_ne_bytes());
        assert_eq!(kind(&wild), Program::Static);
        let mut wild = whole;
        wild[64 + HEADER_BYTES + 8..64 + HEADER_BYTES + 16]
            .copy_from_slice(&u64::MAX.to_ne_bytes());
        let _ = kind(&wild);
    }

    #[test]
    fn this_very_program_is_dynamic() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(to(&own, &own), Program::Dynamic);
    }
}
