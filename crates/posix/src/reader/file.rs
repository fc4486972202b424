//! One open file, as it is read. Owns the choice between reading by the policy and reading directly,
//! which is made at the first read.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use azekura_client::this_process;
use azekura_policy::{ByteRange, ReadPolicy, SyncAdaptive};
use azekura_proto::Attr;
use azekura_proto::message::typed::FileLeased;
use parking_lot::Mutex;

use super::brought_bytes::{BroughtBytes, BroughtRoom};
use super::expected::Bring;
use super::far_file::{Direct, FarFile};
use super::leased_attr::AttrAsked;
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

/// What is read ahead stands with the process that began it: in a forked child the lock may be held by a
/// thread that is not there.
#[derive(Debug)]
enum Way {
    Direct,
    Readahead(u32, Box<Mutex<Readahead>>),
    Window(u32, Box<Mutex<Window>>),
}

impl FileReader {
    pub(crate) fn new(bytes_at_open: u64) -> Self {
        Self { bytes_at_open, way: OnceLock::new() }
    }

    /// How long the file was when it was opened.
    pub(crate) fn bytes_at_open(&self) -> u64 {
        self.bytes_at_open
    }

    /// Reads by the file's policy, and gives how many bytes lie in the buffer; or says why the read is to
    /// be done by requests of just its bytes.
    pub(crate) fn read(
        &self,
        reading: &Reading,
        layout: &FileLayout,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Direct> {
        match self.way.get_or_init(|| self.choose(reading, layout)) {
            Way::Direct => Err(Direct::Near),
            Way::Readahead(process, state) if *process == this_process() => {
                Readahead::read(state, offset, buffer)
            }
            Way::Window(process, state) if *process == this_process() => {
                state.lock().read(offset, buffer)
            }
            Way::Readahead(..) | Way::Window(..) => Err(Direct::Forked),
        }
    }

    /// A direct read has seen that the file is at least this long.
    pub(crate) fn learn_length(&self, file_bytes: u64) {
        match self.way.get() {
            Some(Way::Readahead(process, state)) if *process == this_process() => {
                state.lock().learn_length(file_bytes);
            }
            Some(Way::Window(process, state)) if *process == this_process() => {
                state.lock().learn_length(file_bytes);
            }
            _ => {}
        }
    }

    /// A lease of the home has come when the file was opened, asked for then, with the attributes. They
    /// are as they were at this count of own changes of attributes: one that was read before it was made
    /// sure that nothing had changed since the question, as another thread may change the file now.
    pub(crate) fn begin_leased(
        &self,
        reading: &Reading,
        layout: &FileLayout,
        (at, changes): (Instant, u64),
        leased: FileLeased,
    ) {
        if let Way::Readahead(_, state) = self.way.get_or_init(|| self.choose(reading, layout)) {
            let asked = AttrAsked { at, changes, others: None };
            state.lock().take_attr(asked, leased);
        }
    }

    /// Bytes have come under the lease with which reading began: those of a part of the file, or fewer where a
    /// hole follows. What else is asked for goes on beside them.
    pub(crate) fn take_brought(&self, reading: &Reading, range: ByteRange, bytes: Vec<u8>) {
        if let Some(readahead) = self.readahead() {
            readahead.lock().take_brought(reading, range, bytes);
        }
    }

    /// A reader of a file that nobody has opened yet, whose home's lease has come with the attributes,
    /// asked for then. Whoever keeps it makes sure after this that nothing was changed since then.
    pub(crate) fn of_leased(
        reading: &Reading,
        layout: &FileLayout,
        at: Instant,
        leased: FileLeased,
    ) -> Self {
        let reader = Self::new(leased.attr.size);
        let changes = reading.changes.count_of(layout.oid()).of_attributes();
        reader.begin_leased(reading, layout, (at, changes), leased);
        reader
    }

    /// The file, some of which was brought, is opened.
    pub(crate) fn go_on(&self) {
        if let Some(readahead) = self.readahead() {
            readahead.lock().go_on();
        }
    }

    /// The attributes, if the leases under which the file is read say that they are as they were.
    pub(crate) fn attr(&self) -> Option<Attr> {
        self.readahead()?.lock().attr()
    }

    /// The same of a file that was brought and is opened now, waiting for what is on its way of it.
    pub(crate) fn await_attr(&self, counts: &Arc<BroughtBytes>) -> Option<Attr> {
        self.readahead()?.lock().await_attr(counts, &mut counts.room())
    }

    /// Whether all from an offset on has come with the file's opening, or before: under a lease it need not be asked for.
    pub(crate) fn has_brought(&self, offset: u64) -> bool {
        self.readahead().is_some_and(|readahead| readahead.lock().has_brought(offset))
    }

    /// To be called before the lease of the file's home is asked for beside other requests. `None` where
    /// the file is not read under leases, or none are to be had now.
    pub(crate) fn ask_attr(&self) -> Option<AttrAsked> {
        self.readahead()?.lock().ask_attr()
    }

    /// The home's lease has come with the attributes.
    pub(crate) fn take_attr(&self, asked: AttrAsked, leased: FileLeased) {
        if let Some(readahead) = self.readahead() {
            readahead.lock().take_attr(asked, leased);
        }
    }

    fn readahead(&self) -> Option<&Mutex<Readahead>> {
        match self.way.get()? {
            Way::Readahead(process, state) if *process == this_process() => Some(state),
            _ => None,
        }
    }

    fn choose(&self, reading: &Reading, layout: &FileLayout) -> Way {
        let file = || FarFile::new(reading, layout, self.bytes_at_open);
        let window = |policy| {
            let window = Window::new(policy, reading, file());
            Way::Window(this_process(), Box::new(Mutex::new(window)))
        };
        match reading.policy.unstriped() {
            ReadPolicy::Off | ReadPolicy::Striped(_) => Way::Direct,
            ReadPolicy::Predictive(_) if !reading.is_remote(layout) => Way::Direct,
            ReadPolicy::Predictive(parameters) => {
                let readahead = Readahead::new(parameters, reading, file());
                Way::Readahead(this_process(), Box::new(Mutex::new(readahead)))
            }
            ReadPolicy::SyncAdaptive(parameters) => window(SyncAdaptive::new(parameters.clone())),
            ReadPolicy::Fixed(bytes) => window(SyncAdaptive::fixed(*bytes)),
        }
    }
}

impl Bring for FileReader {
    fn bring(&self, counts: &Arc<BroughtBytes>, room: &mut BroughtRoom) -> bool {
        self.readahead().is_some_and(|readahead| match readahead.try_lock() {
            Some(mut readahead) => readahead.bring(counts, room),
            // Whoever opens it just now waits for leases with it.
            None => true,
        })
    }
}
