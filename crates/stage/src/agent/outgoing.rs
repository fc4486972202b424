//! What goes home of a node. Owns what is known to stand there already, and the contents that the front
//! fetches; a file is given in one version or not at all. Decides nothing: the front asks for each file.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use azekura_proto::limits::FRAME_BODY_BYTES_MAX;
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::agent::closing::{Closed, Closing};
use crate::agent::incoming::Incoming;
use crate::agent::names::Seen;
use crate::agent::walk::{AtHome, Walk, open_trees};
use crate::doors::spawn;
use crate::message::{
    Answer, ContentDescription, ContentId, Extra, FIRST_OUT, GIVEN_MAX, Given, Home, Listing,
    Order, Place, ToFront,
};
use crate::outbox::Outbox;
use crate::source::Source;
use crate::stamp::{Stamp, TICK};
use crate::stock::{Audience, Stock};
use crate::supply::{Bell, Offer, Shelf};
use crate::workers::Workers;

/// Orders that wait, at most: the front has no more of them open.
const ORDERS_MAX: usize = 2 * GIVEN_MAX + 2;

/// Extended attributes of the files of one content, in bytes.
const EXTRAS_BYTES_MAX: usize = FRAME_BODY_BYTES_MAX as usize / 4;
/// The names, and each value, of a file's extended attributes; Linux has no longer ones.
const XATTR_BYTES_MAX: usize = 64 * 1024;

/// What goes home.
pub(crate) struct Outgoing {
    seen: Arc<Seen>,
    trees: Vec<Arc<dyn Source>>,
    home: Arc<AtHome>,
    stock: Arc<Stock>,
    closing: Arc<Closing>,
    outbox: Outbox<ToFront>,
    orders: SyncSender<Order>,
    given: Mutex<Option<Receiver<Order>>>,
}

impl Outgoing {
    pub(crate) fn new(seen: Arc<Seen>, outbox: Outbox<ToFront>) -> io::Result<Self> {
        let root = |map| seen.tree.path_of(&Place { map: map as u16, path: Vec::new() });
        let trees = open_trees(&(0..seen.maps.len()).map(root).collect::<Vec<_>>())?;
        let tell = Box::new(|id: ContentId, why| {
            // The front is told by what fetches it, and asks again.
            tracing::info!("content {} cannot be given any more: {why:?}", id.0);
        });
        let stock = Stock::new(trees.clone(), FIRST_OUT, Workers::start()?, tell);
        let (orders, given) = sync_channel(ORDERS_MAX);
        let given = Mutex::new(Some(given));
        let closing = Closing::new(Arc::clone(&seen), outbox.clone());
        Ok(Self { seen, trees, home: Arc::default(), stock, closing, outbox, orders, given })
    }

    /// Starts to carry out orders: a thread that ends with the node.
    pub(crate) fn start(self: &Arc<Self>) -> io::Result<()> {
        let Some(orders) = self.given.lock().take() else { return Ok(()) };
        let outgoing = Arc::downgrade(self);
        spawn("outgoing", move || {
            let mut walk = None;
            for order in orders {
                let Some(outgoing) = outgoing.upgrade() else { return };
                outgoing.carry_out(order, &mut walk);
            }
        })
    }

    /// Takes an order. What takes time is done by another thread.
    pub(crate) fn order(&self, order: Order) {
        match order {
            Order::Forget { content } => self.stock.forget(content),
            Order::AtHome { files } => self.home.lock().extend(files),
            Order::Keep { .. } => {}
            order => {
                if self.orders.try_send(order).is_err() {
                    tracing::error!("the front asks for more than it may: it gets no answer");
                }
            }
        }
    }

    fn carry_out(&self, order: Order, walk: &mut Option<(u32, Walk)>) {
        match order {
            Order::List { ask, of } => {
                *walk = Some((ask, self.walk(of)));
                self.tell_page(ask, walk);
            }
            Order::Watch => {
                if let Err(error) = self.closing.watch() {
                    tracing::error!("cannot notice that files are closed: {error}");
                }
            }
            Order::More { ask } => self.tell_page(ask, walk),
            Order::Give { ask, files, is_small } => {
                let given = if is_small { self.give_small(&files) } else { self.give_large(files) };
                self.outbox.say(ToFront::Out(Answer::Given { ask, given }));
            }
            Order::Forget { .. } | Order::AtHome { .. } | Order::Keep { .. } => {}
        }
    }

    fn walk(&self, of: Listing) -> Walk {
        match of {
            Listing::All => self.walk_all(),
            Listing::Closed => match self.closing.take() {
                Closed::These(places) => self.walk_of(places).without_written(),
                Closed::Some => self.walk_all().without_written(),
            },
            Listing::These { places } => self.walk_of(places.into_iter().collect()),
        }
    }

    fn walk_all(&self) -> Walk {
        Walk::new(Arc::clone(&self.seen), self.trees.clone(), Arc::clone(&self.home))
    }

    fn walk_of(&self, places: BTreeSet<Place>) -> Walk {
        Walk::of(Arc::clone(&self.seen), self.trees.clone(), Arc::clone(&self.home), places)
    }

    fn tell_page(&self, ask: u32, walk: &mut Option<(u32, Walk)>) {
        let (entries, is_last) = match walk {
            Some((asked, walk)) if *asked == ask => walk.page(),
            // Nobody waits any more for more of that one.
            Some(_) => return,
            None => (Vec::new(), true),
        };
        if is_last {
            *walk = None;
        }
        self.outbox.say(ToFront::Out(Answer::Page { ask, entries, is_last }));
    }

    fn give_small(&self, files: &[Place]) -> Given {
        let stamps = self.stamps(files);
        let version = |place: &Place| {
            let place = files.iter().position(|file| file == place)?;
            stamps[place]
        };
        let (mut files_now, mut extras, mut bytes) = (Vec::new(), HashMap::new(), 0);
        let mut alone = Vec::new();
        for place in files {
            let extra = self.extra(place);
            bytes += extra.bytes();
            if bytes > EXTRAS_BYTES_MAX && !files_now.is_empty() {
                alone.push(place.clone());
                bytes -= extra.bytes();
            } else {
                files_now.push(place.clone());
                extras.insert(place, extra);
            }
        }
        let mut bundled = self.stock.bundle(files_now, Audience::home());
        bundled.grown.extend(alone);
        let content = bundled.content.map(|content| (*content).clone());
        let homes = content.iter().flat_map(|content| homes(content, version)).collect();
        let parts = content.iter().flat_map(|content| &content.parts);
        let extras = parts.filter_map(|part| extras.remove(&part.place)).collect();
        Given { content, homes, extras, failed: bundled.failed, grown: bundled.grown }
    }

    fn give_large(&self, files: Vec<Place>) -> Given {
        let mut given = Given::default();
        let Some(place) = files.into_iter().next() else { return given };
        let stamp = self.stamps(std::slice::from_ref(&place))[0];
        match self.stock.open(&place, Audience::home()) {
            Ok(content) => {
                given.homes = homes(&content, |_| stamp);
                given.extras = vec![self.extra(&place)];
                given.content = Some((*content).clone());
            }
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                given.failed.push((place, errno.raw_os_error()));
            }
        }
        given
    }

    /// What a file has beside its attributes, as far as a message takes it.
    fn extra(&self, place: &Place) -> Extra {
        let path = self.seen.tree.path_of(place);
        let mut extra = Extra::default();
        if let Ok(stands) = std::fs::symlink_metadata(&path) {
            extra.owner = (stands.uid(), stands.gid());
        }
        for (name, value) in xattrs_of(&path).unwrap_or_default() {
            if extra.bytes() + name.len() + value.len() > EXTRAS_BYTES_MAX {
                tracing::warn!("{} has more extended attributes than go home", path.display());
                break;
            }
            extra.xattrs.push((name, value));
        }
        extra
    }

    /// The states of files, as far as they say which version is read after this. Waits a moment if one has
    /// only just been changed.
    fn stamps(&self, files: &[Place]) -> Vec<Option<Stamp>> {
        let stamps = || files.iter().map(|file| self.seen.tree.stamp(file));
        if stamps().flatten().any(|stamp| stamp.is_fresh()) {
            std::thread::sleep(TICK);
        }
        stamps().map(|stamp| stamp.filter(|stamp| !stamp.is_fresh())).collect()
    }
}

/// The extended attributes of a file that are its user's.
fn xattrs_of(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut names = vec![0; XATTR_BYTES_MAX];
    let bytes = rustix::fs::llistxattr(path, &mut names[..])?;
    let mut found = Vec::new();
    for name in names[..bytes].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = vec![0; XATTR_BYTES_MAX];
        // It may have been removed since.
        let Ok(bytes) = rustix::fs::lgetxattr(path, name, &mut value[..]) else { continue };
        value.truncate(bytes);
        found.push((name.to_vec(), value));
    }
    Ok(found)
}

/// Which versions the parts of a content are.
fn homes(content: &ContentDescription, stamp: impl Fn(&Place) -> Option<Stamp>) -> Vec<Home> {
    let home = |part: &crate::message::Part| {
        let stamp = stamp(&part.place).filter(|stamp| stamp.is_of(&part.attributes));
        stamp.map_or(Home::Some, Home::Version)
    };
    content.parts.iter().map(home).collect()
}

/// All that a node gives: what has come, and what goes home.
pub(crate) struct Shelves {
    pub(crate) incoming: Arc<Incoming>,
    pub(crate) outgoing: Arc<Outgoing>,
}

impl Shelf for Shelves {
    fn offer(&self, content: ContentId, index: u32, bell: &Arc<Bell>) -> Offer {
        if content >= FIRST_OUT {
            self.outgoing.stock.offer(content, index, bell)
        } else {
            self.incoming.offer(content, index, bell)
        }
    }
}
