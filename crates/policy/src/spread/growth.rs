//! The tree of the earliest first piece: nodes are attached one by one, each to the supplier that
//! reaches it first. Owns that order and its times; must never know one node from another.
//!
//! With unbounded fan-out this is the optimal broadcast of one message in the postal model
//! (Bar-Noy and Kipnis, SPAA 1992) and in `LogP` (Karp, Sahay, Santos and Schauser, SPAA 1993): the
//! binomial tree when the delay is small beside the sending, a flat one when it is large. With a
//! fan-out of one it is a chain. Between the two it is a full tree whose late places are left out.

/// What one supplier needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender {
    /// Receivers at most.
    pub(super) fan_out: u32,
    /// Time from one receiver to the next with the first piece, in microseconds.
    pub(super) service_us: f64,
    /// Time that all further pieces take for one receiver, in microseconds.
    pub(super) rest_us: f64,
    /// Time on the way, in microseconds.
    pub(super) delay_us: f64,
}

/// A tree as it grows.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    /// The source; not asked when somebody else has the content.
    pub(super) source: Sender,
    /// Every node.
    pub(super) node: Sender,
    /// Nodes that have the content already.
    pub(super) holders: usize,
}

/// The tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Grown {
    /// By receiver: its supplier; none is the source, numbers count the holders first and then the
    /// receivers, in their order.
    pub(super) suppliers: Vec<Option<usize>>,
    /// When the last receiver has the first piece, in microseconds.
    pub(super) first_piece_us: f64,
    /// Most receivers of a node.
    pub(super) fan_out: u32,
    /// Receivers of the source.
    pub(super) source_fan_out: u32,
}

impl Growth {
    /// When the last receiver has the last byte, in microseconds.
    pub(super) fn last_byte_us(&self, grown: &Grown) -> f64 {
        let source_us = f64::from(grown.source_fan_out) * self.source.rest_us;
        source_us.max(f64::from(grown.fan_out) * self.node.rest_us) + grown.first_piece_us
    }

    /// Attaches `receivers` nodes, unless that takes the content `limit_us` or more. Takes time in
    /// proportion to them and to the fan-out.
    pub(super) fn grow(&self, receivers: usize, limit_us: f64) -> Option<Grown> {
        let mut grown = Grown { suppliers: Vec::with_capacity(receivers), ..Grown::default() };
        let mut has_us = vec![0.0f64; self.holders];
        has_us.reserve(receivers);
        // Nodes come in the order of their times, and the time from a node to its j-th receiver is
        // the same for all: so the next j-th receiver is always that of the node at cursor j.
        let mut cursors = vec![0usize; self.node.fan_out as usize];
        for _ in 0..receivers {
            let mut best = (f64::INFINITY, None);
            let mut reached = has_us.len();
            for (place, cursor) in cursors.iter().enumerate() {
                if *cursor >= reached {
                    break;
                }
                let sent_us = has_us[*cursor] + (place + 1) as f64 * self.node.service_us;
                if sent_us + self.node.delay_us < best.0 {
                    best = (sent_us + self.node.delay_us, Some(place));
                }
                reached = *cursor;
            }
            if self.holders == 0 && grown.source_fan_out < self.source.fan_out {
                let sent_us = f64::from(grown.source_fan_out + 1) * self.source.service_us;
                if sent_us + self.source.delay_us < best.0 {
                    best = (sent_us + self.source.delay_us, None);
                }
            }
            let supplier = best.1.map(|place| {
                let supplier = cursors[place];
                cursors[place] += 1;
                grown.fan_out = grown.fan_out.max(place as u32 + 1);
                supplier
            });
            grown.source_fan_out += u32::from(supplier.is_none());
            grown.suppliers.push(supplier);
            has_us.push(best.0);
            grown.first_piece_us = best.0;
            if self.last_byte_us(&grown) >= limit_us {
                return None;
            }
        }
        Some(grown)
    }
}

#[cfg(test)]
mod tests {
    use super::{Grown, Growth, Sender};

    fn growth(fan_out: u32, delay_us: f64, holders: usize) -> Growth {
        let sender = Sender { fan_out, service_us: 10.0, rest_us: 100.0, delay_us };
        Growth { source: sender, node: sender, holders }
    }

    fn grow(fan_out: u32, delay_us: f64, holders: usize, receivers: usize) -> Grown {
        growth(fan_out, delay_us, holders).grow(receivers, f64::INFINITY).unwrap()
    }

    #[test]
    fn a_fan_out_of_one_is_a_chain() {
        let grown = grow(1, 5.0, 0, 4);
        assert_eq!(grown.suppliers, [None, Some(0), Some(1), Some(2)]);
        assert!((grown.first_piece_us - 60.0).abs() < 1e-9, "4 x (10 + 5): {grown:?}");
    }

    #[test]
    fn without_delay_it_is_the_binomial_tree() {
        // Those who have it double with each sending: 1, 2, 4, 8, 16.
        let grown = grow(16, 0.0, 0, 15);
        assert!((grown.first_piece_us - 40.0).abs() < 1e-9, "{grown:?}");
        assert_eq!(grown.source_fan_out, 4);
        let grown = grow(16, 0.0, 0, 16);
        assert!((grown.first_piece_us - 50.0).abs() < 1e-9, "{grown:?}");
    }

    #[test]
    fn with_much_delay_it_is_flat() {
        let grown = grow(16, 1000.0, 0, 16);
        assert!(grown.suppliers.iter().all(Option::is_none), "{grown:?}");
    }

    #[test]
    fn holders_share_the_receivers_and_the_source_has_none() {
        let grown = grow(1, 5.0, 2, 4);
        assert_eq!(grown.suppliers, [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(grown.source_fan_out, 0);
        assert!((grown.first_piece_us - 30.0).abs() < 1e-9);
    }

    #[test]
    fn the_last_byte_comes_as_many_turns_later_as_the_busiest_supplier_has_receivers() {
        let grown = grow(2, 0.0, 0, 15);
        assert_eq!((grown.source_fan_out, grown.fan_out), (2, 2));
        let last_us = growth(2, 0.0, 0).last_byte_us(&grown);
        assert!((last_us - grown.first_piece_us - 200.0).abs() < 1e-9, "{grown:?}");
        assert!(growth(2, 0.0, 0).grow(15, last_us).is_none(), "no better than the limit");
    }
}
