//! The environment of a program that is started from here. Owns the rule that it always has this
//! library and its settings, whatever the program that starts it has made of its own environment.

use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use super::c_strings::array;
use crate::paths::working_directory;
use crate::settings::Settings;

const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// How the names of all our variables begin.
const OURS: &[u8] = b"AZEKURA_";

/// An environment as `execve` takes it. The pointers lead to the caller's environment, or to the
/// texts that are kept here.
pub(crate) struct Environment {
    pointers: Vec<*const c_char>,
    _texts: Vec<CString>,
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
        Self { pointers, _texts: texts }
    }
}

fn name(entry: &[u8]) -> &[u8] {
    let end = entry.iter().position(|byte| *byte == b'=').map_or(entry.len(), |at| at + 1);
    &entry[..end]
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, b':' | b' ')
}

/// This library's own path, as `LD_PRELOAD` had it at start.
fn library(settings: &Settings) -> Option<&'static [u8]> {
    static LIBRARY: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    LIBRARY
        .get_or_init(|| {
            let value =
                settings.handed_on.iter().find_map(|v| v.to_bytes().strip_prefix(PRELOAD))?;
            let mut parts = value.split(|byte| is_separator(*byte));
            parts.find(|part| part.ends_with(b"libazekura_preload.so")).map(<[u8]>::to_vec)
        })
        .as_deref()
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

/// The environment `asked` with what this library needs. A setting that the program has given
/// another value keeps it.
///
/// # Safety
/// `asked` is null or an array of C strings that ends with a null pointer, and outlives the result.
pub(crate) unsafe fn handed_on(
    settings: &Settings,
    asked: *const *const c_char,
    directory: Option<&[u8]>,
) -> Environment {
    // SAFETY: the caller says so.
    let asked = unsafe { array(asked) };
    let at = [working_directory::VARIABLE.to_bytes(), b"="].concat();
    let mut kept = Vec::with_capacity(asked.len() + settings.handed_on.len() + 2);
    let mut texts = Vec::new();
    let mut preload: &[u8] = b"";
    for entry in &asked {
        match entry.to_bytes().strip_prefix(PRELOAD) {
            Some(value) => preload = value,
            None if entry.to_bytes().starts_with(&at) => {}
            None => kept.push(entry.as_ptr()),
        }
    }
    if let Some(library) = library(settings) {
        texts.extend(text(with_library(library, preload)));
    }
    for ours in &settings.handed_on {
        let name = name(ours.to_bytes());
        let is_there = asked.iter().any(|entry| entry.to_bytes().starts_with(name));
        if name != PRELOAD && !is_there {
            texts.push(ours.clone());
        }
    }
    if let Some(path) = directory {
        texts.extend(text([&at, path].concat()));
    }
    Environment::new(kept, texts)
}

/// The environment `asked` without anything of ours, for a program that is served another way.
///
/// # Safety
/// As [`handed_on`].
pub(crate) unsafe fn cleared(settings: &Settings, asked: *const *const c_char) -> Environment {
    let mut kept = Vec::new();
    let mut texts = Vec::new();
    // SAFETY: the caller says so.
    for entry in unsafe { array(asked) } {
        let bytes = entry.to_bytes();
        match (bytes.strip_prefix(PRELOAD), library(settings)) {
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
pub(crate) unsafe fn is_complete(settings: &Settings, asked: *const *const c_char) -> bool {
    // SAFETY: the caller says so.
    let asked = unsafe { array(asked) };
    settings.handed_on.iter().all(|ours| {
        let name = name(ours.to_bytes());
        let mut found = asked.iter().filter(|entry| entry.to_bytes().starts_with(name));
        match (name == PRELOAD, library(settings)) {
            (true, Some(library)) => found.any(|entry| {
                entry.to_bytes()[PRELOAD.len()..]
                    .split(|byte| is_separator(*byte))
                    .any(|part| part == library)
            }),
            _ => found.next().is_some(),
        }
    })
}
