//! What a program file is, told from its bytes: a script with its interpreter, or an ELF file with what it
//! takes to load it. Opens no file, takes nothing in one for granted, and decides nothing: how such a
//! program gets a container is the business of those who ask.

mod elf;
mod script;
mod source;

pub use elf::{Elf, Linking, Needs};
pub use script::Script;
pub use source::Reader;

use source::Source;

/// A program file.
pub enum Executable<'a, E> {
    /// Run by an interpreter.
    Script(Script),
    /// An ELF file of this machine's word size and byte order.
    Elf(Elf<'a, E>),
    /// An ELF file of another word size or byte order.
    ForeignElf,
    /// None of these: the kernel has to say.
    Unknown,
}

impl<'a, E> Executable<'a, E> {
    /// Looks at the head of a file.
    ///
    /// # Errors
    /// That of the reader.
    pub fn read(read: &'a Reader<'a, E>) -> Result<Self, E> {
        let source = Source::new(read)?;
        if let Some(line) = source.head().strip_prefix(b"#!") {
            return Ok(Script::parse(line).map_or(Self::Unknown, Self::Script));
        }
        if !elf::is_elf(source.head()) {
            return Ok(Self::Unknown);
        }
        Ok(Elf::read(source)?.map_or(Self::ForeignElf, Self::Elf))
    }
}
