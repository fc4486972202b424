//! What goes home of a node. Owns what is known to stand there already, and the contents that the front
//! fetches; a file is given in one version or not at all. Decides nothing: the front asks for each file.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::agent::incoming::Incoming;
use crate::agent::names::Seen;
use crate::agent::walk::{AtHome, Walk, open_trees};
use crate::doors::spawn;
use crate::message::{
    Answer, ContentDescription, ContentId, FIRST_OUT, GIVEN_MAX, Given, Home, Order, Place, ToFront,
};
use crate::outbox::Outbox;
use crate::source::Source;
use crate::stamp::{Stamp, TICK};
use crate::stock::{Audience, Stock};
use crate::supply::{Bell, Offer, Shelf};

/// Orders that wait, at most: the front has no more of them open.
const ORDERS_MAX: usize = 2 * GIVEN_MAX + 2;

/// What goes home.
pub(crate) struct Outgoing {
    seen: Arc<Seen>,
    trees: Vec<Arc<dyn Source>>,
    home: Arc<AtHome>,
    stock: Stock,
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
        let stock = Stock::new(trees.clone(), FIRST_OUT, tell);
        let (orders, given) = sync_channel(ORDERS_MAX);
        let given = Mutex::new(Some(given));
        Ok(Self { seen, trees, home: Arc::default(), stock, outbox, orders, given })
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

    fn carry_out(&self, order: Order, walk: &mut Option<Walk>) {
        match order {
            Order::List => {
                let (seen, home) = (Arc::clone(&self.seen), Arc::clone(&self.home));
                *walk = Some(Walk::new(seen, self.trees.clone(), home));
                self.tell_page(walk);
            }
            Order::More => self.tell_page(walk),
            Order::Give { ask, files, is_small } => {
                let given = if is_small { self.give_small(&files) } else { self.give_large(files) };
                self.outbox.say(ToFront::Out(Answer::Given { ask, given }));
            }
            Order::Forget { .. } | Order::AtHome { .. } | Order::Keep { .. } => {}
        }
    }

    fn tell_page(&self, walk: &mut Option<Walk>) {
        let (entries, is_last) = walk.as_mut().map_or((Vec::new(), true), Walk::page);
        if is_last {
            *walk = None;
        }
        self.outbox.say(ToFront::Out(Answer::Page { entries, is_last }));
    }

    fn give_small(&self, files: &[Place]) -> Given {
        let stamps = self.stamps(files);
        let version = |place: &Place| {
            let place = files.iter().position(|file| file == place)?;
            stamps[place]
        };
        let bundled = self.stock.bundle(files.to_vec(), Audience::home());
        let content = bundled.content.map(|content| (*content).clone());
        let homes = content.iter().flat_map(|content| homes(content, version)).collect();
        Given { content, homes, failed: bundled.failed, grown: bundled.grown }
    }

    fn give_large(&self, files: Vec<Place>) -> Given {
        let mut given = Given::default();
        let Some(place) = files.into_iter().next() else { return given };
        let stamp = self.stamps(std::slice::from_ref(&place))[0];
        match self.stock.open(&place, Audience::home()) {
            Ok(content) => {
                given.homes = homes(&content, |_| stamp);
                given.content = Some((*content).clone());
            }
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                given.failed.push((place, errno.raw_os_error()));
            }
        }
        given
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
