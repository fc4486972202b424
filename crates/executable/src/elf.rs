//! ELF files of this machine's word size and byte order: who loads one, and what it needs to be loaded.

use object::NativeEndian;
use object::elf::{
    DT_NEEDED, DT_NULL, DT_RPATH, DT_RUNPATH, DT_SONAME, DT_STRTAB, Dyn64, DynamicTag, ELFCLASS64,
    ELFMAG, FileHeader64, PT_DYNAMIC, PT_INTERP, PT_LOAD, PT_NOTE, ProgramHeader64, ProgramType,
};
use object::pod::{Pod, from_bytes, slice_from_bytes};
use object::read::elf::NoteIterator;

use crate::source::Source;

const SEGMENTS_MAX: usize = 256;
/// Bounds of what is read of a dynamic section, of notes and of a text, in bytes.
const DYNAMIC_BYTES_MAX: u64 = 64 << 10;
const NOTE_BYTES_MAX: u64 = 64 << 10;
const TEXT_BYTES_MAX: u64 = 4096;
/// The owner of the note that every Go linker leaves, with the build id.
const GO: &[u8] = b"Go";

type Header = FileHeader64<NativeEndian>;
type Segment = ProgramHeader64<NativeEndian>;

/// Who brings a program into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linking {
    /// The dynamic loader that it names.
    Dynamic,
    /// It names no loader, but itself: a shared library, or a loader.
    Library,
    /// The kernel alone.
    Static,
}

/// What an ELF file says about other libraries.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Names of libraries.
    pub libraries: Vec<Vec<u8>>,
    /// Directories to look in, as written.
    pub directories: Vec<Vec<u8>>,
}

/// An ELF file.
pub struct Elf<'a, E> {
    source: Source<'a, E>,
    machine: u16,
    segments: Vec<Segment>,
}

/// Whether a file begins like one of any kind.
pub(crate) fn is_elf(head: &[u8]) -> bool {
    head.starts_with(&ELFMAG) && head.len() >= size_of::<Header>()
}

/// As many whole entries as the bytes hold.
fn entries<T: Pod>(bytes: &[u8]) -> &[T] {
    slice_from_bytes(bytes, bytes.len() / size_of::<T>()).map_or(&[], |(entries, _)| entries)
}

fn text(bytes: &[u8]) -> Option<&[u8]> {
    bytes.iter().position(|byte| *byte == 0).map(|end| &bytes[..end])
}

impl<'a, E> Elf<'a, E> {
    /// `None` for another word size or byte order.
    pub(crate) fn read(source: Source<'a, E>) -> Result<Option<Self>, E> {
        let Ok((header, _)) = from_bytes::<Header>(source.head()) else { return Ok(None) };
        let is_little = header.e_ident.data == object::elf::ELFDATA2LSB;
        if header.e_ident.class != ELFCLASS64
            || is_little != cfg!(target_endian = "little")
            || usize::from(header.e_phentsize.get(NativeEndian)) != size_of::<Segment>()
        {
            return Ok(None);
        }
        let machine = header.e_machine.get(NativeEndian).0;
        let count = usize::from(header.e_phnum.get(NativeEndian)).min(SEGMENTS_MAX);
        let table = header.e_phoff.get(NativeEndian);
        let table = source.piece(table, count * size_of::<Segment>())?;
        Ok(Some(Self { machine, segments: entries(&table).to_vec(), source }))
    }

    /// The kind of processor, as the header has it (`EM_*`).
    pub fn machine(&self) -> u16 {
        self.machine
    }

    fn of_type(&self, wanted: ProgramType) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(move |segment| segment.p_type.get(NativeEndian) == wanted)
    }

    /// What a segment holds in the file, up to a bound.
    fn content(&self, segment: &Segment, bytes_max: u64) -> Result<Vec<u8>, E> {
        let bytes = segment.p_filesz.get(NativeEndian).min(bytes_max) as usize;
        self.source.piece(segment.p_offset.get(NativeEndian), bytes)
    }

    /// Who brings it into memory.
    ///
    /// # Errors
    /// That of the reader.
    pub fn linking(&self) -> Result<Linking, E> {
        if self.of_type(PT_INTERP).next().is_some() {
            return Ok(Linking::Dynamic);
        }
        // A static program that can stand anywhere in memory has a dynamic section too, but no name.
        let has_name = self.dynamic()?.iter().any(|(tag, _)| *tag == DT_SONAME);
        Ok(if has_name { Linking::Library } else { Linking::Static })
    }

    /// The path of its loader; empty if there is none.
    ///
    /// # Errors
    /// That of the reader.
    pub fn loader(&self) -> Result<Vec<u8>, E> {
        let Some(segment) = self.of_type(PT_INTERP).next() else { return Ok(Vec::new()) };
        let path = self.content(segment, TEXT_BYTES_MAX)?;
        Ok(text(&path).unwrap_or(&path).to_vec())
    }

    /// Whether a Go linker has made it. Such a program makes its system calls itself.
    ///
    /// # Errors
    /// That of the reader.
    pub fn is_from_go(&self) -> Result<bool, E> {
        for segment in self.of_type(PT_NOTE) {
            let notes = self.content(segment, NOTE_BYTES_MAX)?;
            let notes = NoteIterator::<Header>::new(
                NativeEndian,
                segment.p_align.get(NativeEndian),
                &notes,
            );
            if notes.into_iter().flatten().flatten().any(|note| note.name() == GO) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn dynamic(&self) -> Result<Vec<(DynamicTag, u64)>, E> {
        let Some(section) = self.of_type(PT_DYNAMIC).next() else { return Ok(Vec::new()) };
        let bytes = self.content(section, DYNAMIC_BYTES_MAX)?;
        let found: &[Dyn64<NativeEndian>] = entries(&bytes);
        Ok(found
            .iter()
            .map(|entry| (entry.d_tag.get(NativeEndian), entry.d_val.get(NativeEndian)))
            .take_while(|(tag, _)| *tag != DT_NULL)
            .collect())
    }

    /// Where in the file lies what has this address in memory.
    fn offset_of(&self, address: u64) -> Option<u64> {
        self.of_type(PT_LOAD).find_map(|segment| {
            let into = address.checked_sub(segment.p_vaddr.get(NativeEndian))?;
            let is_here = into < segment.p_filesz.get(NativeEndian);
            is_here.then(|| segment.p_offset.get(NativeEndian).saturating_add(into))
        })
    }

    /// What it says about other libraries.
    ///
    /// # Errors
    /// That of the reader.
    pub fn needs(&self) -> Result<Needs, E> {
        let entries = self.dynamic()?;
        // The table of texts is named by its address in memory.
        let table = entries.iter().find(|(tag, _)| *tag == DT_STRTAB);
        let Some(table) = table.and_then(|(_, address)| self.offset_of(*address)) else {
            return Ok(Needs::default());
        };
        let text_at = |at: u64| -> Result<Vec<u8>, E> {
            let bytes = self.source.piece(table.saturating_add(at), TEXT_BYTES_MAX as usize)?;
            Ok(text(&bytes).unwrap_or_default().to_vec())
        };
        let mut needs = Needs::default();
        for (tag, value) in entries {
            match tag {
                DT_NEEDED => needs.libraries.push(text_at(value)?),
                DT_RPATH | DT_RUNPATH => {
                    let written = text_at(value)?;
                    needs.directories.extend(written.split(|byte| *byte == b':').map(Into::into));
                }
                _ => {}
            }
        }
        Ok(needs)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::Executable;

    fn with<T>(file: &[u8], body: impl FnOnce(Executable<'_, Infallible>) -> T) -> T {
        let read = |at: u64, into: &mut [u8]| {
            let rest = file.get(at as usize..).unwrap_or_default();
            let bytes = rest.len().min(into.len());
            into[..bytes].copy_from_slice(&rest[..bytes]);
            Ok(bytes)
        };
        body(Executable::read(&read).unwrap())
    }

    fn own() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    #[test]
    fn this_program_is_dynamic_and_needs_the_c_library() {
        with(&own(), |own| {
            let Executable::Elf(elf) = own else { panic!("this program is an ELF file") };
            assert_eq!(elf.linking().unwrap(), Linking::Dynamic);
            assert!(elf.loader().unwrap().starts_with(b"/"));
            assert!(!elf.is_from_go().unwrap());
            let needs = elf.needs().unwrap();
            assert!(needs.libraries.iter().any(|name| name.starts_with(b"libc.")), "{needs:?}");
        });
    }

    #[test]
    fn without_its_segments_it_is_static() {
        let mut file = own();
        file[56..58].fill(0);
        with(&file, |file| {
            let Executable::Elf(elf) = file else { panic!("it is still an ELF file") };
            assert_eq!(elf.linking().unwrap(), Linking::Static);
            assert_eq!(elf.needs().unwrap(), Needs::default());
        });
    }

    #[test]
    fn a_library_names_itself_and_no_loader() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps.lines().find_map(|line| line.find("/ld-").map(|_| line)).unwrap();
        let loader = std::fs::read(&path[path.find('/').unwrap()..]).unwrap();
        with(&loader, |loader| {
            let Executable::Elf(elf) = loader else { panic!("the loader is an ELF file") };
            assert_eq!(elf.linking().unwrap(), Linking::Library);
        });
    }

    #[test]
    fn what_is_no_elf_file_of_this_machine_is_told_apart() {
        for file in [&b""[..], b"echo", b"\x7fELF", b"#!\n"] {
            assert!(with(file, |file| matches!(file, Executable::Unknown)));
        }
        let mut file = own();
        file[4] = 1;
        assert!(with(&file, |file| matches!(file, Executable::ForeignElf)));
        file[4] = 2;
        file[5] ^= 3;
        assert!(with(&file, |file| matches!(file, Executable::ForeignElf)));
    }

    /// Asks everything that can be asked.
    fn ask(file: &[u8]) {
        with(file, |file| {
            if let Executable::Elf(elf) = file {
                let _ = (elf.linking(), elf.loader(), elf.is_from_go(), elf.needs());
            }
        });
    }

    #[test]
    fn torn_and_strange_files_are_no_danger() {
        let own = own();
        for end in (0..2000).step_by(7) {
            ask(&own[..end]);
        }
        // Each number of the headers in turn is as large as can be.
        for at in (16..1000).step_by(8) {
            let mut wild = own.clone();
            wild[at..at + 8].fill(0xff);
            ask(&wild);
        }
    }
}
