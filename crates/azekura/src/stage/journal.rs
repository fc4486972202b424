//! Where events go: into the tally, a file of JSON lines, the lines of the terminal. Runs in a thread of its own;
//! the job never waits for it.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use azekura_stage::front::Event;
use serde::Serialize;

use super::screen::Screen;
use super::tally::{JobStatus, Tally, warning};

/// Lines of a terminal are drawn this often.
const DRAW_EVERY: Duration = Duration::from_millis(200);
/// Lines for people about what went wrong, at most.
const WARNINGS_MAX: usize = 200;
/// How soon the end is noticed.
const TICK: Duration = Duration::from_millis(50);

/// A line of the file.
#[derive(Serialize)]
struct Line<'a> {
    /// Since the nodes were up.
    at_s: f64,
    #[serde(flatten)]
    event: &'a Event,
}

/// The last line of the file.
#[derive(Serialize)]
struct LastLine<'a> {
    at_s: f64,
    event: &'static str,
    exit_code: u8,
    status: &'a JobStatus,
}

/// Where the JSON lines go.
pub(super) struct EventFile(Option<Box<dyn Write + Send>>);

impl EventFile {
    /// Begins the file; without a path there is none, and `-` is standard output.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(super) fn create(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self(None)) };
        if path.as_os_str() == "-" {
            return Ok(Self(Some(Box::new(io::stdout()))));
        }
        let file = File::create(path)
            .with_context(|| format!("cannot write events to {}", path.display()))?;
        Ok(Self(Some(Box::new(file))))
    }

    fn write(&mut self, line: &impl Serialize, screen: &Screen) {
        let Some(file) = &mut self.0 else { return };
        // At once: what the command writes to the same place does not get into a line.
        let written = serde_json::to_vec(line)
            .map_err(io::Error::from)
            .map(|mut bytes| {
                bytes.push(b'\n');
                bytes
            })
            .and_then(|bytes| file.write_all(&bytes))
            .and_then(|()| file.flush());
        if let Err(error) = written {
            screen.note(&format!("azekura: events are not written any more: {error}"));
            self.0 = None;
        }
    }
}

/// The numbers, for whoever asks.
#[derive(Clone)]
pub(super) struct Counts(Arc<Mutex<Tally>>);

impl Counts {
    /// How the job is.
    pub(super) fn status(&self) -> JobStatus {
        self.lock().status()
    }

    fn lock(&self) -> MutexGuard<'_, Tally> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listens to events.
pub(super) struct Journal {
    counts: Counts,
    screen: Arc<Screen>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<EventFile>>,
}

impl Journal {
    /// Listens until nobody can tell anything any more.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub(super) fn listen(
        tally: Tally,
        hosts: Vec<String>,
        mut file: EventFile,
        screen: &Arc<Screen>,
    ) -> Result<(Self, mpsc::Sender<Event>)> {
        let (tell, told) = mpsc::channel::<Event>();
        let counts = Counts(Arc::new(Mutex::new(tally)));
        let over = Arc::new(AtomicBool::new(false));
        let (counted, shown, ending) = (counts.clone(), Arc::clone(screen), Arc::clone(&over));
        let thread = std::thread::Builder::new().name("events".to_owned()).spawn(move || {
            let (mut drawn, mut warnings) = (Instant::now(), 0);
            loop {
                // Read before the channel: what was told before the end is heard.
                let is_over = ending.load(Ordering::Acquire);
                match told.recv_timeout(TICK) {
                    Ok(event) => {
                        let at_s = {
                            let mut tally = counted.lock();
                            tally.take(&event);
                            tally.elapsed_s()
                        };
                        file.write(&Line { at_s, event: &event }, &shown);
                        if let Some(text) = warning(&event, &hosts) {
                            warnings += 1;
                            match WARNINGS_MAX.cmp(&warnings) {
                                Less => {}
                                Equal => shown.note("azekura: ... more is in the events (--json)"),
                                Greater => shown.note(&format!("azekura: {text}")),
                            }
                        }
                    }
                    Err(RecvTimeoutError::Timeout) if !is_over => {}
                    Err(_) => break,
                }
                if drawn.elapsed() > DRAW_EVERY {
                    drawn = Instant::now();
                    shown.show(&counted.status().nodes);
                }
            }
            shown.clear();
            file
        })?;
        Ok((Self { counts, screen: Arc::clone(screen), over, thread: Some(thread) }, tell))
    }

    /// The numbers.
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Waits for the last event, and writes what all came to.
    pub(super) fn close(&mut self, exit_code: u8) -> JobStatus {
        self.over.store(true, Ordering::Release);
        let file = self.thread.take().map(JoinHandle::join);
        let status = self.counts.status();
        if let Some(Ok(mut file)) = file {
            let at_s = status.elapsed_s;
            let last = LastLine { at_s, event: "job-ended", exit_code, status: &status };
            file.write(&last, &self.screen);
        }
        status
    }
}
