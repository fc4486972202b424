//! A content on its way to a whole cluster, with nodes that stall, die and come late, drawn from a
//! seed. Owns what befalls whom and when, and tells the [`Spread`] of it as an agent would; must
//! never choose a supplier.

use super::machines::{Machine, Machines};
use super::random::Random;
use crate::spread::{Assignment, Candidate, Link, Links, NodeId, Shape, Spread, Supplier};

/// A cluster, a content, and what befalls them.
#[derive(Clone, Copy, Debug)]
pub struct Staging {
    /// Bytes of the content.
    pub bytes: u64,
    /// Nodes, those that come late among them.
    pub nodes: u32,
    /// Links of the source and of every node.
    pub links: Links,
    /// Chooses who is slow, late or dies, and when.
    pub seed: u64,
    /// Nodes of a thousand that become slow in mid-transfer.
    pub slow_per_mille: u32,
    /// What their links are divided by, both ways.
    pub slow_factor: u64,
    /// Nodes of a thousand that die in mid-transfer.
    pub dying_per_mille: u32,
    /// Nodes of a thousand that come late: from the middle of the transfer to its second length.
    pub late_per_mille: u32,
    /// Time until a death or a slow link is noticed, in microseconds.
    pub notice_us: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct StagingOutcome {
    /// When the last of those had the last byte that were neither slow nor late, in microseconds.
    pub last_byte_us: f64,
    /// The same of those that became slow.
    pub slow_last_byte_us: f64,
    /// The longest that a node took that came late, from its coming on, in microseconds.
    pub late_longest_us: f64,
    /// Bytes that the source has sent.
    pub source_sent_bytes: u64,
    /// Late nodes that were sent to the source.
    pub late_at_source: u32,
    /// Nodes that got another supplier.
    pub moved: u32,
    /// Nodes that died.
    pub dead: u32,
    /// Living nodes that never got everything.
    pub without: u32,
}

/// What befalls a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Incident {
    Dies,
    IsFoundDead,
    Slows,
    IsFoundSlow,
    Joins,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fate {
    #[default]
    Usual,
    Slow,
    Dying,
    Late,
}

impl Staging {
    /// A cluster to which nothing happens.
    pub fn new(bytes: u64, nodes: u32, link: Link) -> Self {
        Self {
            bytes,
            nodes,
            links: Links { source: link, node: link },
            seed: 1,
            slow_per_mille: 0,
            slow_factor: 4,
            dying_per_mille: 0,
            late_per_mille: 0,
            notice_us: 500_000,
        }
    }

    /// What no protocol can do better, in microseconds: the source sends everything once and every
    /// node takes everything once, and those who have the first byte double with each delay.
    pub fn physical_limit_us(&self) -> f64 {
        let (source, node) = (self.links.source.supposed(), self.links.node.supposed());
        let bytes_us = source.service_us(self.bytes, 0).max(node.service_us(self.bytes, 0));
        let doublings = self.nodes.max(1).next_power_of_two().trailing_zeros();
        bytes_us + node.delay_us as f64 * f64::from(doublings)
    }

    /// Runs it with the shape that the policy chooses.
    pub fn run(&self) -> StagingOutcome {
        let late = self.nodes * self.late_per_mille / 1000;
        self.run_with(Shape::choose(self.bytes, (self.nodes - late) as usize, 0, self.links))
    }

    /// Runs it with a given shape.
    pub fn run_with(&self, shape: Shape) -> StagingOutcome {
        let fates = self.fates();
        let mut run = Run::new(self, shape, &fates);
        for (now_us, node, incident) in self.incidents(shape, &fates) {
            run.go_on_until(now_us);
            run.befalls(now_us, node, incident);
        }
        run.go_on_until(f64::INFINITY);
        run.outcome(&fates)
    }

    fn fates(&self) -> Vec<Fate> {
        let mut random = Random(self.seed);
        let mut fates = vec![Fate::Usual; self.nodes as usize];
        let shares = [
            (Fate::Slow, self.slow_per_mille),
            (Fate::Dying, self.dying_per_mille),
            (Fate::Late, self.late_per_mille),
        ];
        for (fate, per_mille) in shares {
            for _ in 0..u64::from(self.nodes) * u64::from(per_mille) / 1000 {
                let mut node = random.below(u64::from(self.nodes)) as usize;
                while fates[node] != Fate::Usual {
                    node = (node + 1) % fates.len();
                }
                fates[node] = fate;
            }
        }
        fates
    }

    /// What happens, in the order of time.
    fn incidents(&self, shape: Shape, fates: &[Fate]) -> Vec<(f64, u32, Incident)> {
        let mut random = Random(self.seed ^ 0x5354_4147_494e_4721);
        let mut incidents = Vec::new();
        let length_us = shape.estimated_us.max(1);
        for (node, fate) in (0..).zip(fates) {
            let now_us = random.below(length_us) as f64;
            let noticed_us = now_us + self.notice_us as f64;
            match fate {
                Fate::Usual => {}
                Fate::Slow => incidents.extend([
                    (now_us, node, Incident::Slows),
                    (noticed_us, node, Incident::IsFoundSlow),
                ]),
                Fate::Dying => incidents.extend([
                    (now_us, node, Incident::Dies),
                    (noticed_us, node, Incident::IsFoundDead),
                ]),
                Fate::Late => {
                    let joins_us = length_us as f64 / 2.0 + 1.5 * now_us;
                    incidents.push((joins_us, node, Incident::Joins));
                }
            }
        }
        incidents.sort_by(|a, b| a.0.total_cmp(&b.0));
        incidents
    }
}

/// A run on its way.
struct Run<'a> {
    staging: &'a Staging,
    spread: Spread,
    machines: Machines,
    /// Places that have all pieces or will, and have not been told of.
    nearly_done: Vec<usize>,
    joined_us: Vec<f64>,
    outcome: StagingOutcome,
}

const fn place(node: NodeId) -> usize {
    node.0 as usize + 1
}

const fn supplier(place: usize) -> Supplier {
    match place {
        0 => Supplier::Source,
        place => Supplier::Node(NodeId(place as u32 - 1)),
    }
}

impl<'a> Run<'a> {
    fn new(staging: &'a Staging, shape: Shape, fates: &[Fate]) -> Self {
        let punctual = (0..).zip(fates).filter(|(_, fate)| **fate != Fate::Late);
        let candidates: Vec<_> = punctual.map(|(node, _)| Candidate::new(NodeId(node))).collect();
        let spread = Spread::with_shape(shape, staging.bytes, &candidates, staging.links);
        let pieces = shape.pieces(staging.bytes) as usize;
        let node = Machine::new(staging.links.node.supposed(), 0);
        let mut all = vec![node; fates.len() + 1];
        all[0] = Machine::new(staging.links.source.supposed(), pieces);
        let machines =
            Machines { all, bytes: staging.bytes, piece_bytes: shape.piece_bytes, pieces };
        Self {
            staging,
            spread,
            machines,
            nearly_done: Vec::new(),
            joined_us: vec![0.0; fates.len() + 1],
            outcome: StagingOutcome::default(),
        }
    }

    /// Moves all pieces whose sending begins before `now_us`, from the roots of the tree down.
    fn go_on_until(&mut self, now_us: f64) {
        let is_root = |place: &usize| {
            let node = NodeId(*place as u32 - 1);
            self.spread.supplier_of(node).is_none()
                && self.spread.receivers_of(Supplier::Node(node)).next().is_some()
        };
        let mut next: Vec<usize> = (1..self.machines.all.len()).filter(is_root).collect();
        next.push(0);
        let mut receivers = Vec::new();
        while let Some(sender) = next.pop() {
            receivers.clear();
            receivers.extend(self.spread.receivers_of(supplier(sender)).map(place));
            let nearly_done = &mut self.nearly_done;
            self.machines.serve(sender, &receivers, now_us, |place| nearly_done.push(place));
            next.extend(&receivers);
        }
        let machines = &self.machines;
        let mut done = Vec::new();
        self.nearly_done.retain(|place| {
            let machine = &machines.all[*place];
            let has_all = machine.pieces() == machines.pieces;
            let is_done = has_all && machine.last_us <= now_us;
            if is_done {
                done.push((machine.last_us, *place));
            }
            has_all && !is_done
        });
        done.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, place) in done {
            self.spread.node_done(NodeId(place as u32 - 1));
        }
    }

    fn befalls(&mut self, now_us: f64, node: u32, incident: Incident) {
        let node = NodeId(node);
        let delay_us = self.staging.links.node.supposed().delay_us as f64;
        let moved = match incident {
            Incident::Dies => {
                self.machines.all[place(node)].is_dead = true;
                self.outcome.dead += 1;
                for receiver in self.spread.receivers_of(Supplier::Node(node)) {
                    self.machines.all[place(receiver)].lose_supplier(now_us, delay_us);
                }
                return;
            }
            Incident::Slows => {
                let link = &mut self.machines.all[place(node)].link;
                link.bytes_per_second /= self.staging.slow_factor.max(1);
                return;
            }
            Incident::IsFoundDead => self.spread.node_failed(node),
            Incident::IsFoundSlow => self.spread.node_is_slow(node),
            Incident::Joins => {
                self.joined_us[place(node)] = now_us;
                let joined = self.spread.node_joined(node);
                let from_source = joined.is_some_and(|a| a.supplier == Supplier::Source);
                self.outcome.late_at_source += u32::from(from_source);
                joined.into_iter().collect()
            }
        };
        if incident != Incident::Joins {
            self.outcome.moved += moved.len() as u32;
        }
        for Assignment { node, .. } in moved {
            // The node is told, and then asks.
            self.machines.all[place(node)].asked_us = now_us + 2.0 * delay_us;
        }
    }

    fn outcome(mut self, fates: &[Fate]) -> StagingOutcome {
        for (fate, (machine, joined_us)) in
            fates.iter().zip(self.machines.all.iter().zip(&self.joined_us).skip(1))
        {
            if machine.is_dead {
                continue;
            }
            let outcome = &mut self.outcome;
            outcome.without += u32::from(machine.pieces() < self.machines.pieces);
            let (longest_us, took_us) = match fate {
                Fate::Slow => (&mut outcome.slow_last_byte_us, machine.last_us),
                Fate::Late => (&mut outcome.late_longest_us, machine.last_us - joined_us),
                Fate::Usual | Fate::Dying => (&mut outcome.last_byte_us, machine.last_us),
            };
            *longest_us = longest_us.max(took_us);
        }
        self.outcome.source_sent_bytes = self.machines.all[0].sent_bytes;
        self.outcome
    }
}
