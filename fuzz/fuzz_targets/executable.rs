//! The head of a program file that anybody may have written: nothing in it is believed, and little of the
//! file is read.

#![no_main]

use azekura_executable::{Executable, Linking};
use libfuzzer_sys::fuzz_target;

const READ_BYTES_MAX: usize = 64 << 10;

fuzz_target!(|bytes: &[u8]| {
    let read = |at: u64, into: &mut [u8]| -> Result<usize, std::convert::Infallible> {
        assert!(into.len() <= READ_BYTES_MAX);
        let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    };
    let Ok(executable) = Executable::read(&read);
    match executable {
        Executable::Script(script) => {
            assert!(!script.interpreter.is_empty());
            let _ = script.env_target();
        }
        Executable::Elf(elf) => {
            let (Ok(linking), Ok(loader)) = (elf.linking(), elf.loader());
            assert!(linking == Linking::Dynamic || loader.is_empty());
            let _ = (elf.is_from_go(), elf.needs());
        }
        Executable::ForeignElf | Executable::Unknown => {}
    }
});
