//! The relay: one thread that carries packets between TUN devices, at the time that each link's
//! shaper says. Owns the devices. Never blocks but in its one wait, and never decides what a link
//! does to a packet.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Instant;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::time::ClockId;

use crate::segment::{self, FRAME_BYTES_MAX};
use crate::shape::{Counters, Piece, Shape, Shaper};
use crate::sys;
use crate::topology::Change;

/// What is due within this goes at once, so that the thread wakes up less often.
const EARLY_NS: u64 = 20_000;
/// The thread asks to be woken that much earlier at most; it learns how late it is woken.
const LEAD_NS_MAX: u64 = 150_000;
/// Packets read from one device before the others have their turn.
const TURN_PACKETS: usize = 32;
/// The bell's number among what is watched; the others are devices.
const BELL: u64 = u64::MAX;
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// What one direction holds at most, queue and delay together.
const DELAYED_BYTES_MAX: usize = 512 << 20;

/// A packet on its way.
struct DelayedPacket {
    due_ns: u64,
    /// Keeps the order of what is due at the same time.
    number: u64,
    finish_ns: u64,
    frame: Vec<u8>,
}

impl Ord for DelayedPacket {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due_ns, self.number).cmp(&(other.due_ns, other.number))
    }
}

impl PartialOrd for DelayedPacket {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DelayedPacket {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for DelayedPacket {}

/// One direction of a link. It comes from the device with its own index.
struct Direction {
    shaper: Shaper,
    /// Index of the device that packets go to.
    to_tun: usize,
    from_host: usize,
    to_host: usize,
    link_up: bool,
    delayed: BinaryHeap<Reverse<DelayedPacket>>,
    delayed_bytes: usize,
    delivered: u64,
}

impl Direction {
    fn flush(&mut self) {
        self.shaper.counters.down_drops += self.delayed.len() as u64;
        self.delayed.clear();
        self.delayed_bytes = 0;
        self.shaper.flush();
    }
}

/// A device and where it belongs.
pub(crate) struct Wire {
    pub(crate) tuns: [File; 2],
    pub(crate) hosts: [usize; 2],
    pub(crate) shape: Shape,
}

/// How a direction is.
#[derive(Clone, Debug)]
pub(crate) struct DirectionView {
    pub(crate) shape: Shape,
    pub(crate) up: bool,
    pub(crate) counters: Counters,
    pub(crate) delivered: u64,
    pub(crate) waiting_bytes: u64,
    pub(crate) delayed_bytes: u64,
}

/// How the relay is.
#[derive(Clone, Debug)]
pub(crate) struct RelayView {
    /// Two per link: from its first end, from its second end.
    pub(crate) directions: Vec<DirectionView>,
    /// CPU time that the relay has used.
    pub(crate) cpu_ns: u64,
    /// Whether the kernel lets it run before ordinary threads.
    pub(crate) real_time: bool,
}

/// What the relay is told. Each order that changes something is answered when it holds.
pub(crate) enum Order {
    /// Changes the directions of a link that are marked.
    Change { link: usize, directions: [bool; 2], change: Change, done: Sender<()> },
    /// Cuts a host off, or mends that.
    Cut { host: usize, cut: bool, done: Sender<()> },
    /// Says how it is.
    View { to: Sender<RelayView> },
}

/// The relay, before and while it runs.
pub(crate) struct Relay {
    tuns: Vec<File>,
    directions: Vec<Direction>,
    cut: Vec<bool>,
    orders: Receiver<Order>,
    bell: Arc<OwnedFd>,
    /// Watches the bell and the devices: a look at each of them costs more than a packet does.
    watch: OwnedFd,
    start: Instant,
    lead_ns: u64,
    next_number: u64,
    pieces: Vec<Piece>,
    real_time: bool,
}

impl Relay {
    /// A relay over these links. `bell` is an event descriptor that rings after each order.
    ///
    /// # Errors
    /// If the system refuses to watch the devices.
    pub(crate) fn new(
        wires: Vec<Wire>,
        hosts: usize,
        seed: u64,
        orders: Receiver<Order>,
        bell: Arc<OwnedFd>,
    ) -> io::Result<Self> {
        let mut tuns = Vec::new();
        let mut directions = Vec::new();
        for (link, wire) in wires.into_iter().enumerate() {
            for end in 0..2 {
                let number = (2 * link + end) as u64;
                let seed = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ number << 32;
                directions.push(Direction {
                    shaper: Shaper::new(wire.shape.clone(), seed),
                    to_tun: 2 * link + 1 - end,
                    from_host: wire.hosts[end],
                    to_host: wire.hosts[1 - end],
                    link_up: true,
                    delayed: BinaryHeap::new(),
                    delayed_bytes: 0,
                    delivered: 0,
                });
            }
            tuns.extend(wire.tuns);
        }
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let add = |source: BorrowedFd<'_>, number| {
            epoll::add(&watch, source, epoll::EventData::new_u64(number), epoll::EventFlags::IN)
        };
        add(bell.as_fd(), BELL)?;
        for (index, tun) in tuns.iter().enumerate() {
            add(tun.as_fd(), index as u64)?;
        }
        Ok(Self {
            tuns,
            watch,
            directions,
            cut: vec![false; hosts],
            orders,
            bell,
            start: Instant::now(),
            lead_ns: 0,
            next_number: 0,
            pieces: Vec::new(),
            real_time: false,
        })
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Carries packets until nobody can give orders any more.
    pub(crate) fn run(mut self) {
        let one = std::num::NonZeroU64::MIN;
        // Without these the relay still works, only less exactly.
        let _ = rustix::thread::set_current_timer_slack(Some(one));
        self.real_time = sys::run_in_real_time().is_ok();
        let mut scratch = vec![0; FRAME_BYTES_MAX];
        let mut ready = Vec::with_capacity(self.tuns.len() + 1);
        loop {
            self.deliver();
            self.wait(&mut ready);
            let numbers = ready.iter().map(|event| event.data.u64());
            if numbers.clone().any(|number| number == BELL) && !self.obey() {
                return;
            }
            for tun in numbers.filter(|number| *number != BELL) {
                self.take_in(tun as usize, &mut scratch);
            }
        }
    }

    /// Waits for packets, orders or the next delivery. Gives what is ready to be read.
    fn wait(&mut self, ready: &mut Vec<epoll::Event>) {
        let next = self.directions.iter().filter_map(|d| Some(d.delayed.peek()?.0.due_ns)).min();
        let now_ns = self.now_ns();
        let pause_ns = next.map(|due| due.saturating_sub(now_ns + self.lead_ns));
        let timeout = pause_ns.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        // The watch itself counts in milliseconds.
        let mut polled = [PollFd::new(&self.watch, PollFlags::IN)];
        // An interrupted wait is just a short one.
        let count = poll(&mut polled, timeout.as_ref()).unwrap_or(0);
        ready.clear();
        if count == 0 {
            if let Some(pause_ns) = pause_ns.filter(|pause| *pause > 0) {
                let late_ns = self.now_ns().saturating_sub(now_ns + pause_ns).min(LEAD_NS_MAX);
                self.lead_ns = (self.lead_ns * 15 + late_ns) / 16;
            }
            return;
        }
        // Nothing is lost by an error: what is ready is so the next time too.
        let _ = epoll::wait(&self.watch, spare_capacity(ready), Some(&AT_ONCE));
    }

    fn deliver(&mut self) {
        let until_ns = self.now_ns() + EARLY_NS;
        for direction in &mut self.directions {
            while let Some(Reverse(first)) = direction.delayed.peek()
                && first.due_ns <= until_ns
                && let Some(Reverse(packet)) = direction.delayed.pop()
            {
                direction.delayed_bytes -= packet.frame.len();
                // A host whose memory is full loses packets, as hosts do.
                if (&self.tuns[direction.to_tun]).write(&packet.frame).is_ok() {
                    direction.delivered += 1;
                }
            }
        }
    }

    fn take_in(&mut self, tun: usize, scratch: &mut [u8]) {
        for _ in 0..TURN_PACKETS {
            let Ok(bytes) = (&self.tuns[tun]).read(scratch) else { return };
            self.carry(tun, &scratch[..bytes]);
        }
    }

    fn carry(&mut self, tun: usize, frame: &[u8]) {
        let now_ns = self.now_ns();
        let direction = &mut self.directions[tun];
        let Some(burst) = segment::burst_of(frame) else { return };
        let is_cut = self.cut[direction.from_host] || self.cut[direction.to_host];
        if is_cut || !direction.link_up {
            direction.shaper.counters.packets += u64::from(burst.segments);
            direction.shaper.counters.down_drops += u64::from(burst.segments);
            return;
        }
        self.pieces.clear();
        direction.shaper.offer(now_ns, &burst, &mut self.pieces);
        for piece in &self.pieces {
            if direction.delayed_bytes + frame.len() > DELAYED_BYTES_MAX {
                direction.shaper.counters.memory_drops += u64::from(piece.segments);
                continue;
            }
            let frame = segment::cut(frame, &burst, piece.first, piece.segments);
            direction.delayed_bytes += frame.len();
            self.next_number += 1;
            direction.delayed.push(Reverse(DelayedPacket {
                due_ns: piece.due_ns,
                number: self.next_number,
                finish_ns: piece.finish_ns,
                frame,
            }));
        }
    }

    /// Follows the orders that are there. False if no more can come.
    fn obey(&mut self) -> bool {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.bell, &mut count);
        loop {
            match self.orders.try_recv() {
                Ok(order) => self.follow(order),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn follow(&mut self, order: Order) {
        // Whoever asked may have gone; then nobody needs the answer.
        match order {
            Order::Change { link, directions, change, done } => {
                for end in (0..2).filter(|end| directions[*end]) {
                    self.change(2 * link + end, &change);
                }
                let _ = done.send(());
            }
            Order::Cut { host, cut, done } => {
                self.cut[host] = cut;
                if cut {
                    let touches = |d: &&mut Direction| d.from_host == host || d.to_host == host;
                    self.directions.iter_mut().filter(touches).for_each(Direction::flush);
                }
                let _ = done.send(());
            }
            Order::View { to } => {
                let _ = to.send(self.view());
            }
        }
    }

    fn change(&mut self, index: usize, change: &Change) {
        let now_ns = self.now_ns();
        let direction = &mut self.directions[index];
        if let Some(up) = change.up {
            direction.link_up = up;
            if !up {
                direction.flush();
            }
        }
        if change.shapes() {
            let shape = change.applied(direction.shaper.shape());
            let rescale = direction.shaper.change(now_ns, shape);
            let delayed = std::mem::take(&mut direction.delayed).into_iter();
            direction.delayed = delayed
                .map(|Reverse(mut packet)| {
                    let finish_ns = rescale.apply(packet.finish_ns);
                    packet.due_ns = packet.due_ns - packet.finish_ns + finish_ns;
                    packet.finish_ns = finish_ns;
                    Reverse(packet)
                })
                .collect();
        }
    }

    fn view(&mut self) -> RelayView {
        let now_ns = self.now_ns();
        let cpu = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
        RelayView {
            directions: self
                .directions
                .iter_mut()
                .map(|direction| DirectionView {
                    shape: direction.shaper.shape().clone(),
                    up: direction.link_up,
                    counters: direction.shaper.counters,
                    delivered: direction.delivered,
                    waiting_bytes: direction.shaper.waiting_bytes(now_ns),
                    delayed_bytes: direction.delayed_bytes as u64,
                })
                .collect(),
            cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
            real_time: self.real_time,
        }
    }
}
