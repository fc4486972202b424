//! The rounds of a point: their mean, and the least and the most of them, in the order in which an experiment's
//! columns have them.

use super::frame::Value;

/// The figures of the rounds of one point, `N` to a round.
pub(super) struct Spread<const N: usize>(Vec<[f64; N]>);

impl<const N: usize> Spread<N> {
    /// Measures that many rounds.
    ///
    /// # Errors
    /// The first failure of a round.
    pub(super) fn of_rounds<E>(
        rounds: usize,
        mut round: impl FnMut(usize) -> Result<[f64; N], E>,
    ) -> Result<Self, E> {
        (0..rounds.max(1)).map(&mut round).collect::<Result<_, E>>().map(Self)
    }

    /// The means, and then the least and the most of each.
    pub(super) fn values(&self) -> Vec<f64> {
        let column = |at: usize| self.0.iter().map(move |round| round[at]);
        let mean = |at| column(at).sum::<f64>() / self.0.len() as f64;
        let range = |at| [column(at).fold(f64::INFINITY, f64::min), column(at).fold(0.0, f64::max)];
        (0..N).map(mean).chain((0..N).flat_map(range)).collect()
    }
}

/// Columns side by side.
pub(super) const fn join<const A: usize, const B: usize, const N: usize>(
    first: [Value; A],
    then: [Value; B],
) -> [Value; N] {
    assert!(A + B == N, "as many columns as there are");
    let mut all = [Value { name: "", title: "" }; N];
    let mut at = 0;
    while at < N {
        all[at] = if at < A { first[at] } else { then[at - A] };
        at += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_become_a_mean_and_a_range() {
        let rounds = [[1.0, 10.0], [3.0, 40.0], [2.0, 10.0]];
        let spread = Spread::of_rounds(3, |round| Ok::<_, ()>(rounds[round])).unwrap();
        assert_eq!(spread.values(), [2.0, 20.0, 1.0, 3.0, 10.0, 40.0]);
        assert!(Spread::<1>::of_rounds(2, |_| Err(())).is_err());
    }
}
