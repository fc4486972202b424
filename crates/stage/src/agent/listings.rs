//! Directories of the source as the front has told of them. Asked for once and kept for the job, so that a
//! name that is not there costs nothing the second time.

use std::collections::HashMap;
use std::sync::Arc;

use azekura_proto::staging::Attributes;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use crate::message::{Entry, Place, ToFront};
use crate::outbox::Outbox;

/// Names that are kept of all directories; beyond that, directories are asked for again.
const NAMES_MAX: usize = 4 << 20;

/// A directory of the source.
pub(crate) type Listing = HashMap<Vec<u8>, Attributes>;
type Answer = Result<Arc<Listing>, i32>;

/// All directories that were asked for.
pub(crate) struct Listings {
    outbox: Outbox<ToFront>,
    table: Mutex<Table>,
    answered: Condvar,
}

#[derive(Default)]
struct Table {
    answers: HashMap<Place, Answer>,
    /// Pages that have come of those that are still asked for.
    asked: HashMap<Place, Listing>,
    names: usize,
    is_over: bool,
}

impl Listings {
    pub(crate) fn new(outbox: Outbox<ToFront>) -> Self {
        Self { outbox, table: Mutex::default(), answered: Condvar::new() }
    }

    /// A directory of the source, or the number of the errno why there is none.
    pub(crate) fn get(&self, place: &Place) -> Answer {
        let mut table = self.table.lock();
        loop {
            if let Some(answer) = table.answers.get(place) {
                return answer.clone();
            }
            if table.is_over {
                return Err(Errno::IO.raw_os_error());
            }
            if !table.asked.contains_key(place) {
                table.asked.insert(place.clone(), Listing::new());
                self.outbox.say(ToFront::List { place: place.clone() });
            }
            self.answered.wait(&mut table);
        }
    }

    /// Takes in a page from the front.
    pub(crate) fn page(&self, place: Place, page: Result<Vec<Entry>, i32>, is_last: bool) {
        let mut table = self.table.lock();
        let Some(mut listing) = table.asked.remove(&place) else { return };
        let answer = match page {
            Err(errno) => Err(errno),
            Ok(entries) => {
                listing.extend(entries);
                if !is_last {
                    table.asked.insert(place, listing);
                    return;
                }
                Ok(Arc::new(listing))
            }
        };
        let names = answer.as_ref().map_or(1, |listing| listing.len() + 1);
        if table.names + names > NAMES_MAX {
            table.answers.clear();
            table.names = 0;
        }
        table.names += names;
        table.answers.insert(place, answer);
        drop(table);
        self.answered.notify_all();
    }

    /// No directory comes any more.
    pub(crate) fn end(&self) {
        self.table.lock().is_over = true;
        self.answered.notify_all();
    }
}
