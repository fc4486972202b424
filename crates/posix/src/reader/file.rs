//! One open file, as it is read. Owns the choice between reading by the policy and reading directly,
//! which is made at the first read.

use std::sync::OnceLock;

use azekura_client::this_process;
use azekura_policy::{ReadPolicy, SyncAdaptive};
use parking_lot::Mutex;

use super::parts::{Direct, FarRead};
use super::readahead::Readahead;
use super::reading::Reading;
use super::window::Window;
use crate::layout::FileLayout;

/// How an open file is read.
#[derive(Debug)]
pub(crate) struct FileReader {
    /// Its length when it was opened, in bytes.
    bytes_at_open: u64,
    way: OnceLock<Way>,
}

#[derive(Debug)]
enum Way {
    Direct,
    Readahead(OfProcess<Readahead>),
    Window(OfProcess<Window>),
}

/// A state and the process that began it: in a forked child the lock may be held by a thread that is
/// not there.
#[derive(Debug)]
struct OfProcess<T> {
    process: u32,
    state: Box<Mutex<T>>,
}

impl<T> OfProcess<T> {
    fn new(state: T) -> Self {
        Self { process: this_process(), state: Box::new(Mutex::new(state)) }
    }

    fn get(&self) -> Option<&Mutex<T>> {
        (self.process == this_process()).then_some(&self.state)
    }
}

impl FileReader {
    pub(crate) fn new(bytes_at_open: u64) -> Self {
        Self { bytes_at_open, way: OnceLock::new() }
    }

    /// Reads by the file's policy, unless it is to be read directly.
    pub(crate) fn read(
        &self,
        reading: &Reading,
        layout: &FileLayout,
        offset: u64,
        buffer: &mut [u8],
    ) -> FarRead {
        match self.way.get_or_init(|| self.choose(reading, layout)) {
            Way::Direct => FarRead::Direct(Direct::Near),
            Way::Readahead(state) => match state.get() {
                Some(state) => Readahead::read(state, reading, layout, offset, buffer),
                None => FarRead::Direct(Direct::Forked),
            },
            Way::Window(state) => match state.get() {
                Some(state) => state.lock().read(reading, layout, offset, buffer),
                None => FarRead::Direct(Direct::Forked),
            },
        }
    }

    /// A direct read has seen that the file is at least this long.
    pub(crate) fn learn_length(&self, file_bytes: u64) {
        match self.way.get() {
            Some(Way::Readahead(state)) => {
                if let Some(state) = state.get() {
                    state.lock().learn_length(file_bytes);
                }
            }
            Some(Way::Window(state)) => {
                if let Some(state) = state.get() {
                    state.lock().learn_length(file_bytes);
                }
            }
            Some(Way::Direct) | None => {}
        }
    }

    fn choose(&self, reading: &Reading, layout: &FileLayout) -> Way {
        let bytes = self.bytes_at_open;
        let window =
            |policy| Way::Window(OfProcess::new(Window::new(policy, reading, layout, bytes)));
        match &reading.policy {
            ReadPolicy::Off => Way::Direct,
            ReadPolicy::Predictive(_) if !reading.is_remote(layout) => Way::Direct,
            ReadPolicy::Predictive(parameters) => {
                Way::Readahead(OfProcess::new(Readahead::new(parameters, reading, layout, bytes)))
            }
            ReadPolicy::SyncAdaptive(parameters) => window(SyncAdaptive::new(parameters.clone())),
            ReadPolicy::Fixed(bytes) => window(SyncAdaptive::fixed(*bytes)),
        }
    }
}
