//! A small seeded source of chances (splitmix64), so that a lab with a seed loses the same packets
//! again. Not for secrets.

/// The source.
#[derive(Clone, Debug)]
pub(crate) struct Chances {
    state: u64,
}

impl Chances {
    /// A source that gives the same numbers for the same seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 up to, not including, 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with that probability; draws nothing if there is no choice.
    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_fair_and_repeat() {
        let draw = |seed| {
            let mut chances = Chances::new(seed);
            (0..100_000).filter(|_| chances.happens(0.01)).count()
        };
        assert!((900..1100).contains(&draw(1)));
        assert_eq!(draw(1), draw(1));
        assert!(!Chances::new(3).happens(0.0));
        assert!(Chances::new(3).happens(1.0));
    }
}
