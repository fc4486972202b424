//! The files of one node on their way home. Owns the tries: a file that changes or is cut off on its way is sent
//! again a few times, what is deleted is left out, and what cannot be written does not hold up the others.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use azekura_proto::staging::NodeId;
use rustix::io::Errno;

use crate::fetch::Wish;
use crate::front::event::Event;
use crate::front::outgoing::arrival::Arrival;
use crate::front::outgoing::compare::{Job, Task};
use crate::front::outgoing::homewards;
use crate::front::outgoing::naming::{self, Naming};
use crate::front::outgoing::post::{Note, Why};
use crate::front::outgoing::round::Round;
use crate::message::{
    Answer, BUNDLE_BYTES_MAX, BUNDLE_NAMES_BYTES_MAX, ContentDescription, ContentId, Extra,
    GIVEN_MAX, Given, Home, Order, PARTS_MAX, PLACE_BYTES, Part, Place, SMALL_BYTES_MAX, Supplier,
};

/// A file is sent so often at most.
const TRIES_MAX: u32 = 3;
/// Between two tries; after each, more.
const PAUSE: Duration = Duration::from_millis(50);
/// An agent that does not say for so long what it can give is stuck, though it may live.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(120);

/// The transfer of a node's files.
pub(crate) struct Transfer<'a> {
    round: &'a Round<'a>,
    node: NodeId,
    notes: Receiver<Note>,
    large: VecDeque<Sending<'a>>,
    small: VecDeque<Sending<'a>>,
    /// Contents that the agent makes.
    asked: HashMap<u32, Asked<'a>>,
    /// Contents that come.
    coming: HashMap<ContentId, Coming<'a>>,
}

/// A file that is to come.
#[derive(Clone, Copy)]
struct Sending<'a> {
    task: &'a Task,
    bytes: u64,
    tries: u32,
}

struct Asked<'a> {
    files: Vec<Sending<'a>>,
    is_small: bool,
}

struct Coming<'a> {
    /// In the order of the parts.
    files: Vec<Whole<'a>>,
}

/// A file of a content.
struct Whole<'a> {
    sending: Sending<'a>,
    home: Home,
    extra: Extra,
}

impl<'a> Transfer<'a> {
    pub(crate) fn new(round: &'a Round<'a>, node: NodeId, tasks: &[&'a Task]) -> Self {
        let notes = round.out.post.open(node);
        let mut transfer = Self {
            round,
            node,
            notes,
            large: VecDeque::new(),
            small: VecDeque::new(),
            asked: HashMap::new(),
            coming: HashMap::new(),
        };
        for task in tasks {
            if let Job::File { bytes, .. } = task.job {
                transfer.queue(Sending { task, bytes, tries: 0 });
            }
        }
        transfer
    }

    /// Has all files come, as far as they do.
    pub(crate) fn run(mut self) {
        loop {
            while self.asked.len() + self.coming.len() < GIVEN_MAX && self.ask() {}
            if self.asked.is_empty() && self.coming.is_empty() {
                return;
            }
            match self.notes.recv_timeout(ANSWER_TIME) {
                Ok(Note::Answer(Answer::Given { ask, given })) => self.given(ask, given),
                Ok(Note::Answer(Answer::Page { .. })) => {}
                Ok(Note::Whole(id, arrival)) => self.whole(id, *arrival),
                Ok(Note::Broken(id, why)) => self.broken(id, &why),
                Ok(Note::Gone) | Err(RecvTimeoutError::Disconnected) => {
                    return self.give_up("the node is lost");
                }
                // A large file may take longer than that.
                Err(RecvTimeoutError::Timeout) if !self.coming.is_empty() => {}
                Err(RecvTimeoutError::Timeout) => {
                    return self.give_up("its agent does not answer");
                }
            }
        }
    }

    fn queue(&mut self, sending: Sending<'a>) {
        let is_small = sending.bytes <= SMALL_BYTES_MAX;
        let queue = if is_small { &mut self.small } else { &mut self.large };
        queue.push_back(sending);
    }

    /// Asks for the next content; false if there is none.
    fn ask(&mut self) -> bool {
        let (files, is_small) = match self.large.pop_front() {
            Some(file) => (vec![file], false),
            None => (self.gather(), true),
        };
        if files.is_empty() {
            return false;
        }
        let tries = files.iter().map(|file| file.tries).max().unwrap_or(0);
        if tries > 0 {
            std::thread::sleep(PAUSE * tries);
        }
        let ask = self.round.out.next_ask();
        let places = files.iter().map(|file| file.task.place.clone()).collect();
        self.round.out.order(self.node, Order::Give { ask, files: places, is_small });
        self.asked.insert(ask, Asked { files, is_small });
        true
    }

    /// Small files, as many as go into one content.
    fn gather(&mut self) -> Vec<Sending<'a>> {
        let (mut bytes, mut names, mut gathered) = (0, 0, Vec::new());
        while let Some(file) = self.small.front() {
            bytes += file.bytes;
            names += file.task.place.path.len() + PLACE_BYTES;
            let is_full = bytes > BUNDLE_BYTES_MAX || names > BUNDLE_NAMES_BYTES_MAX;
            if gathered.len() >= PARTS_MAX || !gathered.is_empty() && is_full {
                break;
            }
            gathered.extend(self.small.pop_front());
        }
        gathered
    }

    /// The agent has made a content, as far as it could.
    fn given(&mut self, ask: u32, given: Given) {
        let Some(Asked { files, is_small }) = self.asked.remove(&ask) else { return };
        let mut files: HashMap<&Place, Sending<'a>> =
            files.into_iter().map(|file| (&file.task.place, file)).collect();
        for (place, errno) in &given.failed {
            match (files.remove(place), Errno::from_raw_os_error(*errno)) {
                (Some(file), Errno::NOENT | Errno::NOTDIR) => self.round.deleted(file.task),
                (Some(file), errno) => {
                    let error = io::Error::from(errno);
                    self.round.failed(file.task, &format!("it cannot be read: {error}"));
                }
                (None, _) => {}
            }
        }
        for place in &given.grown {
            if let Some(file) = files.remove(place) {
                self.large.push_back(file);
            }
        }
        if let Some(content) = given.content {
            let mut extras = given.extras.into_iter();
            let part = |(part, home): (&Part, &Home)| {
                let extra = extras.next().unwrap_or_default();
                Some(Whole { sending: files.remove(&part.place)?, home: *home, extra })
            };
            let parts: Option<Vec<_>> = content.parts.iter().zip(&given.homes).map(part).collect();
            match parts {
                Some(parts) if parts.len() == content.parts.len() => {
                    self.fetch(content, parts, is_small);
                }
                _ => self.forget(content.id),
            }
        }
        for (_, file) in files {
            self.round.failed(file.task, "its agent does not say what became of it");
        }
    }

    fn fetch(&mut self, content: ContentDescription, files: Vec<Whole<'a>>, is_small: bool) {
        let id = content.id;
        let mut file = None;
        if !is_small && let [file_of_it] = &files[..] {
            let task = file_of_it.sending.task;
            match homewards::create(&**self.round.source(&task.place), &task.at) {
                Ok(created) => file = Some(created),
                Err(error) => {
                    self.round.failed(task, &unwritable(&error.to_string()));
                    return self.forget(id);
                }
            }
        }
        let out = self.round.out;
        out.arrivals.expect(self.node, Arrival::new(content, file));
        self.coming.insert(id, Coming { files });
        out.fetcher.fetch(Supplier::Node(self.node), id, 0, Wish::Bytes, &out.arrivals);
    }

    fn forget(&self, content: ContentId) {
        self.round.out.order(self.node, Order::Forget { content });
    }

    /// All of a content is here: its files get their names.
    fn whole(&mut self, id: ContentId, arrival: Arrival) {
        let Some(coming) = self.coming.remove(&id) else { return };
        let (mut sent, mut bytes) = (Vec::new(), 0);
        let files: Vec<_> = coming
            .files
            .iter()
            .map(|file| Naming { task: file.sending.task, home: file.home, extra: &file.extra })
            .collect();
        let named = naming::name(self.round, arrival, &files);
        for (task, named) in named {
            match named {
                Ok(came) => {
                    bytes += came.bytes;
                    sent.push(self.round.came(task, &came));
                }
                Err(error) => self.round.failed(task, &unwritable(&error.to_string())),
            }
        }
        let event = Event::Sent { node: self.node, files: sent.len(), bytes };
        self.round.out.tell(event);
        self.round.out.order(self.node, Order::AtHome { files: sent });
        self.forget(id);
    }

    /// A content does not come: its files are tried again, as far as that may help.
    fn broken(&mut self, id: ContentId, why: &Why) {
        self.forget(id);
        let Some(coming) = self.coming.remove(&id) else { return };
        for mut file in coming.files.into_iter().map(|file| file.sending) {
            file.tries += 1;
            match why {
                Why::Unwritable(why) => self.round.failed(file.task, &unwritable(why)),
                Why::Lost(why) if file.tries >= TRIES_MAX => {
                    let why = format!(
                        "it was not sent as one version in {TRIES_MAX} tries, as it changes or \
                         its node does not give it: {why}"
                    );
                    self.round.failed(file.task, &why);
                }
                Why::Lost(_) => self.queue(file),
            }
        }
    }

    fn give_up(self, why: &str) {
        self.round.out.arrivals.forget(self.node);
        let asked = self.asked.into_values().flat_map(|asked| asked.files);
        let coming = self.coming.into_values().flat_map(|coming| coming.files);
        let coming = coming.map(|file| file.sending);
        for file in asked.chain(coming).chain(self.large).chain(self.small) {
            self.round.failed(file.task, why);
        }
    }
}

fn unwritable(why: &str) -> String {
    format!("it cannot be written at home: {why}")
}
