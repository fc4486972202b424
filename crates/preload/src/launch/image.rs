//! What a program file is to this library, and what has to be there when it is loaded.

use azekura_executable::{Executable, Linking, Needs, Reader, Script};
use azekura_posix::{Errno, Result};

/// A kind of program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Image {
    /// Loaded by a dynamic loader.
    Dynamic,
    /// Loaded by the kernel alone.
    Static,
    /// Run by an interpreter.
    Script(Script),
    /// None of these: the kernel has to say.
    Unknown,
}

/// Tells what the file is.
pub(crate) fn kind(read: &Reader<'_, Errno>) -> Result<Image> {
    Ok(match Executable::read(read)? {
        Executable::Script(script) => Image::Script(script),
        Executable::Elf(elf) => match elf.linking()? {
            Linking::Dynamic => Image::Dynamic,
            Linking::Static => Image::Static,
            Linking::Library => Image::Unknown,
        },
        Executable::ForeignElf | Executable::Unknown => Image::Unknown,
    })
}

/// What an ELF file says about other libraries; nothing for any other file.
pub(crate) fn needs(read: &Reader<'_, Errno>) -> Result<Needs> {
    match Executable::read(read)? {
        Executable::Elf(elf) => elf.needs(),
        _ => Ok(Needs::default()),
    }
}

/// The path of an ELF program's loader; empty if it has none.
pub(crate) fn loader(read: &Reader<'_, Errno>) -> Result<Vec<u8>> {
    match Executable::read(read)? {
        Executable::Elf(elf) => elf.loader(),
        _ => Ok(Vec::new()),
    }
}

/// The path of a library next to its user, as a `RUNPATH` has it.
pub(crate) fn beside(directory: &[u8], origin: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let rest =
        [&b"$ORIGIN"[..], b"${ORIGIN}"].iter().find_map(|word| directory.strip_prefix(*word));
    match rest {
        Some(rest) => Some([origin, rest, b"/", name].concat()),
        None if directory.starts_with(b"/") => Some([directory, b"/", name].concat()),
        None => None,
    }
}
