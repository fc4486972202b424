//! What the environment says. Owns the names of the variables, and what nonsense in them comes to: a
//! warning, and the default.

use std::ffi::{CStr, CString};
use std::sync::OnceLock;

use azekura_posix::{ReadPolicy, WritePolicy};

use crate::scope::RECORDS_ONLY;

/// Where the container stands if nothing else is said.
const DEFAULT_PREFIX: &[u8] = b"/azekura";
const DEFAULT_CONTAINER: &str = "default";

/// Which calls are intercepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Intercept {
    /// All calls.
    All,
    /// Only those that move data, of files that a mount of the container has opened.
    Data,
}

/// The settings of this process.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The pool, as `PoolFile::find` takes it.
    pub(crate) pool: String,
    /// The container.
    pub(crate) container: String,
    /// Where the container stands: absolute, without dots, repeated or trailing slashes.
    pub(crate) prefix: Vec<u8>,
    /// The report's file.
    pub(crate) report: Option<CString>,
    /// Which calls are intercepted.
    pub(crate) intercept: Intercept,
    /// How files that are far away are read.
    pub(crate) read_policy: ReadPolicy,
    /// How such files are written.
    pub(crate) write_policy: WritePolicy,
    /// Whether near files are read past their engines.
    pub(crate) descriptors: bool,
    /// The file that a trace of the requests for far files goes to.
    pub(crate) trace: Option<Vec<u8>>,
    /// The program that hands static programs over to a mount.
    pub(crate) binary: Option<CString>,
    /// The variables as they have to be in the environment of programs started from here, as
    /// `NAME=value`.
    pub(crate) handed_on: Vec<CString>,
}

static SETTINGS: OnceLock<Option<Settings>> = OnceLock::new();

/// The settings; `None` if no pool is named, so that everything is passed on.
pub(crate) fn get() -> Option<&'static Settings> {
    if RECORDS_ONLY { None } else { SETTINGS.get().and_then(Option::as_ref) }
}

/// Names of the variables that a program started from here needs too.
const VARIABLES: [&CStr; 11] = [
    c"LD_PRELOAD",
    c"AZEKURA_POOL",
    c"AZEKURA_CONTAINER",
    c"AZEKURA_PREFIX",
    c"AZEKURA_REPORT",
    c"AZEKURA_INTERCEPT",
    c"AZEKURA_READ_POLICY",
    c"AZEKURA_WRITE_POLICY",
    c"AZEKURA_DESCRIPTORS",
    c"AZEKURA_TRACE",
    c"AZEKURA_BIN",
];

/// A value of the environment.
pub(crate) fn variable(name: &CStr) -> Option<Vec<u8>> {
    // SAFETY: the name is a C string; the value is copied at once.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: values of the environment are C strings.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes().to_vec())
}

/// A value of the environment that says something.
fn given(name: &CStr) -> Option<Vec<u8>> {
    variable(name).filter(|value| !value.is_empty())
}

/// Reads the environment, and keeps a line about each value that it could not use.
#[derive(Default)]
struct Reader {
    warnings: Vec<String>,
}

impl Reader {
    fn warn(&mut self, line: impl Into<String>) {
        self.warnings.push(line.into());
    }

    fn text(&mut self, name: &CStr) -> Option<String> {
        let text = String::from_utf8(given(name)?).ok();
        if text.is_none() {
            self.warn(format!("{} is not UTF-8 text: ignored", name.to_string_lossy()));
        }
        text
    }

    fn prefix(&mut self) -> Vec<u8> {
        let Some(value) = given(c"AZEKURA_PREFIX") else { return DEFAULT_PREFIX.to_vec() };
        let parts: Vec<&[u8]> = value
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty() && *part != b".")
            .collect();
        if value[0] != b'/' || parts.is_empty() || parts.contains(&&b".."[..]) {
            self.warn(
                "AZEKURA_PREFIX is not an absolute path below / without '..': /azekura is used",
            );
            return DEFAULT_PREFIX.to_vec();
        }
        parts.iter().flat_map(|part| [b"/", *part].concat()).collect()
    }

    fn intercept(&mut self) -> Intercept {
        match self.text(c"AZEKURA_INTERCEPT").as_deref() {
            None | Some("all") => Intercept::All,
            Some("data") => Intercept::Data,
            Some(_) => {
                self.warn("AZEKURA_INTERCEPT is neither 'all' nor 'data': 'all' is used");
                Intercept::All
            }
        }
    }

    fn read_policy(&mut self) -> ReadPolicy {
        let Some(text) = self.text(c"AZEKURA_READ_POLICY") else { return ReadPolicy::default() };
        text.parse().unwrap_or_else(|error| {
            let policy = ReadPolicy::default();
            self.warn(format!("AZEKURA_READ_POLICY: {error}: '{policy}' is used"));
            policy
        })
    }

    fn write_policy(&mut self, intercept: Intercept) -> WritePolicy {
        if intercept == Intercept::Data {
            // The mount, a client of its own, is asked for lengths and times: it would wait for this
            // one.
            return WritePolicy::Through;
        }
        let Some(text) = self.text(c"AZEKURA_WRITE_POLICY") else { return WritePolicy::default() };
        text.parse().unwrap_or_else(|error| {
            self.warn(format!("AZEKURA_WRITE_POLICY: {error}: 'auto' is used"));
            WritePolicy::default()
        })
    }

    fn descriptors(&mut self) -> bool {
        match self.text(c"AZEKURA_DESCRIPTORS").as_deref() {
            None | Some("auto") => true,
            Some("off") => false,
            Some(_) => {
                self.warn("AZEKURA_DESCRIPTORS is neither 'auto' nor 'off': 'auto' is used");
                true
            }
        }
    }

    fn settings(&mut self) -> Option<Settings> {
        let pool = self.text(c"AZEKURA_POOL")?;
        let intercept = self.intercept();
        Some(Settings {
            pool,
            container: self
                .text(c"AZEKURA_CONTAINER")
                .unwrap_or_else(|| DEFAULT_CONTAINER.to_owned()),
            prefix: self.prefix(),
            report: report_path(),
            intercept,
            read_policy: self.read_policy(),
            write_policy: self.write_policy(intercept),
            descriptors: self.descriptors(),
            trace: given(c"AZEKURA_TRACE"),
            binary: variable(c"AZEKURA_BIN").and_then(|path| CString::new(path).ok()),
            handed_on: variables(&VARIABLES),
        })
    }
}

/// The file that the report goes to; `%p` stands for the process id.
pub(crate) fn report_path() -> Option<CString> {
    let value = given(c"AZEKURA_REPORT")?;
    let process = rustix::process::getpid().as_raw_nonzero().to_string();
    let mut path = Vec::new();
    let mut rest = value.as_slice();
    while let Some(at) = rest.windows(2).position(|pair| pair == b"%p") {
        path.extend_from_slice(&rest[..at]);
        path.extend_from_slice(process.as_bytes());
        rest = &rest[at + 2..];
    }
    path.extend_from_slice(rest);
    CString::new(path).ok()
}

/// Those of the variables that are set, as `NAME=value`.
pub(crate) fn variables(names: &[&CStr]) -> Vec<CString> {
    names
        .iter()
        .filter_map(|name| {
            let value = variable(name)?;
            CString::new([name.to_bytes(), b"=", &value].concat()).ok()
        })
        .collect()
}

/// Reads the environment, once at start; gives what was wrong in it.
pub(crate) fn read() -> Vec<String> {
    let mut reader = Reader::default();
    SETTINGS.get_or_init(|| reader.settings());
    reader.warnings
}
