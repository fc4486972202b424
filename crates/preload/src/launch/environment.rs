//! The environment of a program that is started from here. Owns the rule that it always has this
//! library and its settings, whatever the program that starts it has made of its own environment.

use std::ffi::{CStr, CString, c_char};
use std::sync::OnceLock;

use azekura_proto::handed_on;

use super::c_strings::array;
use crate::paths::working_directory;

const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// How the names of all our variables begin.
const OURS: &[u8] = b"AZEKURA_";

/// An environment as `execve` takes it. The pointers lead to the caller's environment, or to the
/// texts that are kept here.
pub(crate) struct Environment {
    pointers: Vec<*const c_char>,
    texts: Vec<CString>,
}

impl Environment {
    /// The array, ended by a null pointer.
    pub(crate) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }

    fn new(kept: Vec<*const c_char>, texts: Vec<CString>) -> Self {
        let mut pointers = kept;
        pointers.extend(texts.iter().map(|text| text.as_ptr()));
        pointers.push(std::ptr::null());
        Self { pointers, texts }
    }

    fn position(&self, name: &[u8]) -> Option<usize> {
        // SAFETY: all but the last lead to texts that outlive this value.
        let is_named =
            |entry: &*const c_char| unsafe { CStr::from_ptr(*entry) }.to_bytes().starts_with(name);
        self.pointers[..self.pointers.len() - 1].iter().position(is_named)
    }

    /// The value of a variable; the name ends with the equals sign.
    pub(crate) fn value(&self, name: &[u8]) -> Option<&[u8]> {
        // SAFETY: as above.
        let entry = unsafe { CStr::from_ptr(self.pointers[self.position(name)?]) };
        Some(&entry.to_bytes()[name.len()..])
    }

    /// Gives a variable another value; one with a zero byte in it is left out.
    pub(crate) fn set(&mut self, name: &[u8], value: &[u8]) {
        let Some(text) = text([name, value].concat()) else { return };
        match self.position(name) {
            Some(at) => self.pointers[at] = text.as_ptr(),
            None => self.pointers.insert(self.pointers.len() - 1, text.as_ptr()),
        }
        self.texts.push(text);
    }
}

fn name(entry: &[u8]) -> &[u8] {
    let end = entry.iter().position(|byte| *byte == b'=').map_or(entry.len(), |at| at + 1);
    &entry[..end]
}

/// Whether this stands between entries of `LD_PRELOAD`.
pub(crate) fn is_separator(byte: u8) -> bool {
    matches!(byte, b':' | b' ')
}

/// This library's own path, as `LD_PRELOAD` had it at start.
fn library(variables: &[CString]) -> Option<&'static [u8]> {
    static LIBRARY: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    LIBRARY
        .get_or_init(|| {
            let value = variables.iter().find_map(|v| v.to_bytes().strip_prefix(PRELOAD))?;
            let mut parts = value.split(|byte| is_separator(*byte));
            parts.find(|part| is_own(part)).map(<[u8]>::to_vec)
        })
        .as_deref()
}

/// Whether an entry of `LD_PRELOAD` is this library.
pub(crate) fn is_own(entry: &[u8]) -> bool {
    entry.ends_with(b"libazekura_preload.so")
}

fn with_library(library: &[u8], value: &[u8]) -> Vec<u8> {
    let mut text = [PRELOAD, library].concat();
    for other in
        value.split(|byte| is_separator(*byte)).filter(|part| !part.is_empty() && *part != library)
    {
        text.push(b':');
        text.extend_from_slice(other);
    }
    text
}

fn text(bytes: Vec<u8>) -> Option<CString> {
    CString::new(bytes).ok()
}

/// The environment `asked` with what this library needs: its variables, as `NAME=value`, the working directory, and
/// what this process knows ([`azekura_proto::HandedOn`]). A setting that the program has given another value keeps it.
///
/// # Safety
/// `asked` is null or an array of C strings that ends with a null pointer, and outlives the result.
pub(crate) unsafe fn handed_on(
    variables: &[CString],
    asked: *const *const c_char,
    directory: Option<&[u8]>,
    known: Option<&[u8]>,
) -> Environment {
    // SAFETY: the caller says so.
    let asked = unsafe { array(asked) };
    let at = [working_directory::VARIABLE.to_bytes(), b"="].concat();
    let known_name = [handed_on::VARIABLE.to_bytes(), b"="].concat();
    let mut kept = Vec::with_capacity(asked.len() + variables.len() + 2);
    let mut texts = Vec::new();
    let mut preload: &[u8] = b"";
    for entry in &asked {
        match entry.to_bytes().strip_prefix(PRELOAD) {
            Some(value) => preload = value,
            None if entry.to_bytes().starts_with(&at) => {}
            None if known.is_some() && entry.to_bytes().starts_with(&known_name) => {}
            None => kept.push(entry.as_ptr()),
        }
    }
    if let Some(library) = library(variables) {
        texts.extend(text(with_library(library, preload)));
    }
    for ours in variables {
        let name = name(ours.to_bytes());
        let is_there = asked.iter().any(|entry| entry.to_bytes().starts_with(name));
        if name != PRELOAD && !is_there {
            texts.push(ours.clone());
        }
    }
    if let Some(path) = directory {
        texts.extend(text([&at, path].concat()));
    }
    if let Some(known) = known {
        texts.extend(text([&known_name, known].concat()));
    }
    Environment::new(kept, texts)
}

/// The environment `asked` without anything of ours, for a program that is served another way.
///
/// # Safety
/// As [`handed_on`].
pub(crate) unsafe fn cleared(variables: &[CString], asked: *const *const c_char) -> Environment {
    let mut kept = Vec::new();
    let mut texts = Vec::new();
    // SAFETY: the caller says so.
    for entry in unsafe { array(asked) } {
        let bytes = entry.to_bytes();
        match (bytes.strip_prefix(PRELOAD), library(variables)) {
            (Some(value), Some(library)) => {
                let rest: Vec<&[u8]> = value
                    .split(|byte| is_separator(*byte))
                    .filter(|part| !part.is_empty() && *part != library)
                    .collect();
                if !rest.is_empty() {
                    texts.extend(text([PRELOAD, &rest.join(&b':')].concat()));
                }
            }
            _ if bytes.starts_with(OURS) => {}
            _ => kept.push(entry.as_ptr()),
        }
    }
    Environment::new(kept, texts)
}

/// Whether a program that gets `asked` as it is would have all that it needs.
///
/// # Safety
/// As [`handed_on`].
pub(crate) unsafe fn is_complete(variables: &[CString], asked: *const *const c_char) -> bool {
    // SAFETY: the caller says so.
    let asked = unsafe { array(asked) };
    variables.iter().all(|ours| {
        let name = name(ours.to_bytes());
        let mut found = asked.iter().filter(|entry| entry.to_bytes().starts_with(name));
        match (name == PRELOAD, library(variables)) {
            (true, Some(library)) => found.any(|entry| {
                entry.to_bytes()[PRELOAD.len()..]
                    .split(|byte| is_separator(*byte))
                    .any(|part| part == library)
            }),
            _ => found.next().is_some(),
        }
    })
}
