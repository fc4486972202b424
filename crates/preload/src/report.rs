//! The report: what was intercepted, what was passed on, and what could not be served. Owns its
//! counters and the file that it goes to at exit. Without `AZEKURA_REPORT` nothing is written, and nothing
//! to the program's own output, but for the one line of [`say_once`].

use std::ffi::CStr;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, getrlimit};

use crate::guard;
use crate::scope::RECORDS_ONLY;

/// Different lines that are kept of what could not be served.
const TROUBLES_MAX: usize = 64;

static ENABLED: AtomicBool = AtomicBool::new(false);
static FILE: OnceLock<&CStr> = OnceLock::new();
static COUNTERS: AtomicPtr<Counter> = AtomicPtr::new(std::ptr::null_mut());
static TROUBLES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The calls of one function. Counting takes no lock and no memory: it happens in signal handlers.
pub(crate) struct Counter {
    name: &'static str,
    served: AtomicU64,
    passed: AtomicU64,
    failed: AtomicBool,
    listed: AtomicBool,
    next: AtomicPtr<Counter>,
}

impl Counter {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            served: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            listed: AtomicBool::new(false),
            next: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    fn count(&'static self, which: &AtomicU64) {
        if RECORDS_ONLY || !ENABLED.load(Ordering::Relaxed) {
            return;
        }
        which.fetch_add(1, Ordering::Relaxed);
        if self.listed.load(Ordering::Relaxed) || self.listed.swap(true, Ordering::Relaxed) {
            return;
        }
        let this = std::ptr::from_ref(self).cast_mut();
        let mut first = COUNTERS.load(Ordering::Acquire);
        loop {
            self.next.store(first, Ordering::Relaxed);
            match COUNTERS.compare_exchange(first, this, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }

    /// A call that the pool has answered, with success or not.
    pub(crate) fn served(&'static self) {
        self.count(&self.served);
    }

    /// A call of the host that went on to the C library.
    pub(crate) fn passed(&'static self) {
        if !RECORDS_ONLY && ENABLED.load(Ordering::Relaxed) && !guard::is_inside() {
            self.count(&self.passed);
        }
    }
}

/// The counter of a hook.
macro_rules! counter {
    ($name:literal) => {{
        static COUNTER: $crate::report::Counter = $crate::report::Counter::new($name);
        &COUNTER
    }};
}
pub(crate) use counter;

/// Starts counting, for a report to this file.
pub(crate) fn enable(file: &'static CStr) {
    FILE.get_or_init(|| file);
    ENABLED.store(true, Ordering::Relaxed);
}

/// A line about something that could not be served; each line once. Only from inside our code.
pub(crate) fn trouble(line: &str) {
    if !ENABLED.load(Ordering::Relaxed) {
        return;
    }
    let mut troubles = TROUBLES.lock();
    if troubles.len() < TROUBLES_MAX && !troubles.iter().any(|known| known == line) {
        troubles.push(line.to_owned());
    }
}

/// A line for people on standard error, once in this process: about what a program meets so rarely, and
/// fails from so badly, that whoever started it has to know what to do. Only from inside our code.
pub(crate) fn say_once(line: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        // One system call of its own, past the hooks; where there is nobody to read it, that is all right.
        let _ = rustix::io::write(rustix::stdio::stderr(), format!("azekura: {line}\n").as_bytes());
    }
}

/// The pool did not answer a call; told once per function.
pub(crate) fn failed(counter: &'static Counter) {
    counter.failed.store(true, Ordering::Relaxed);
}

fn render() -> String {
    let mut counters = Vec::new();
    let mut next = COUNTERS.load(Ordering::Acquire);
    // SAFETY: the list holds statics only, and is never taken apart.
    while let Some(counter) = unsafe { next.as_ref() } {
        counters.push(counter);
        next = counter.next.load(Ordering::Relaxed);
    }
    counters.sort_by_key(|counter| counter.name);
    let process = rustix::process::getpid().as_raw_nonzero();
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let mut text = format!("azekura: process {process} ({})\n", name.trim_end());
    let mut section = |title: &str, of: fn(&Counter) -> u64| {
        let shown: Vec<_> = counters.iter().filter(|counter| of(counter) > 0).collect();
        if shown.is_empty() {
            return;
        }
        let _ = writeln!(text, "{title}:");
        for counter in shown {
            let _ = writeln!(text, "  {:<20} {}", counter.name, of(counter));
        }
    };
    section("intercepted", |counter| counter.served.load(Ordering::Relaxed));
    section("passed on", |counter| counter.passed.load(Ordering::Relaxed));
    let failed: Vec<&str> = counters
        .iter()
        .filter(|counter| counter.failed.load(Ordering::Relaxed))
        .map(|counter| counter.name)
        .collect();
    let troubles = TROUBLES.lock();
    if !failed.is_empty() || !troubles.is_empty() {
        text.push_str("could not be served:\n");
        for line in troubles.iter() {
            let _ = writeln!(text, "  {line}");
        }
        if !failed.is_empty() {
            let _ = writeln!(text, "  failed with EIO: {}", failed.join(", "));
        }
    }
    text
}

/// Adds this process's report to the file, once. Called at exit and before an exec.
pub(crate) fn write() {
    let Some(path) = FILE.get() else { return };
    if !ENABLED.swap(false, Ordering::Relaxed) {
        return;
    }
    let text = render();
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    // In one write, so that the reports of several processes do not mix. There is nobody to tell
    // that it failed.
    if let Ok(file) = rustix::fs::open(*path, flags, Mode::from(0o644)) {
        // Beyond the process's limit on file sizes the kernel would end it with a signal.
        let size = rustix::fs::fstat(&file).map_or(0, |found| found.st_size.cast_unsigned());
        let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        if size.saturating_add(text.len() as u64) > limit {
            return;
        }
        let _ = rustix::io::write(&file, text.as_bytes());
    }
}
