//! What the spread of a calibration makes of a forecast. Owns the list of all measured values, and the
//! interval: each value is moved by its own uncertainty, down and up, and the changes of the forecast's
//! logarithm are added in squares (the delta method). How much few measurements can be trusted follows the
//! Guide to the Expression of Uncertainty in Measurement (JCGM 100, G.4: Welch and Satterthwaite).
//! Nothing is drawn by chance: the same calibration gives the same interval.

use crate::calibration::Calibration;
use crate::fit::student_90;
use crate::measured::Measured;
use crate::units::{Admits, Quantity};

/// A measured value as seen from outside of its unit.
pub(crate) struct Seen<'a> {
    /// Its key, without numbers of rows: `streams.read_mib_per_s`.
    pub(crate) key: &'a str,
    pub(crate) number: f64,
    pub(crate) uncertainty: f64,
    pub(crate) freedom: f64,
    /// Whether it is scaled, and not shifted, when it is moved.
    pub(crate) is_scaled: bool,
}

/// Up to this share of a value its uncertainty is one of a factor.
const SCALED_MOST: f64 = 0.5;
/// What stays of a value that may as well be nothing.
const NEARLY_NOTHING: f64 = 0.01;

impl Seen<'_> {
    /// The number, so many uncertainties away.
    fn moved(&self, steps: f64) -> f64 {
        if self.is_scaled && self.uncertainty <= self.number * SCALED_MOST {
            self.number * (steps * self.uncertainty / self.number).exp()
        } else if self.is_scaled {
            // What may as well be nothing is not known to within any factor.
            (self.number + steps * self.uncertainty).max(self.number * NEARLY_NOTHING)
        } else {
            self.number + steps * self.uncertainty
        }
    }
}

type Change<'a> = &'a mut dyn FnMut(&Seen<'_>) -> f64;

fn change<Q: Quantity>(key: &str, value: &mut Measured<Q>, by: Change<'_>) {
    let seen = Seen {
        key,
        number: value.number(),
        uncertainty: value.uncertainty(),
        freedom: value.freedom(),
        is_scaled: value.number() > 0.0
            && matches!(Q::ADMITS, Admits::Positive | Admits::NotNegative),
    };
    value.value = Q::of(by(&seen));
}

fn change_maybe<Q: Quantity>(key: &str, value: &mut Option<Measured<Q>>, by: Change<'_>) {
    if let Some(value) = value {
        change(key, value, by);
    }
}

/// Replaces every measured value of a calibration by what a function makes of it, in a fixed order.
pub(crate) fn change_all(calibration: &mut Calibration, by: Change<'_>) {
    let all = calibration;
    change("sequential.read_mib_per_s", &mut all.sequential.read_mib_per_s, by);
    change("sequential.write_mib_per_s", &mut all.sequential.write_mib_per_s, by);
    if let Some(random) = &mut all.random {
        change("random.read_mib_per_s", &mut random.read_mib_per_s, by);
        change("random.write_mib_per_s", &mut random.write_mib_per_s, by);
    }
    let costs = &mut all.metadata;
    change_maybe("metadata.split_s_per_file", &mut costs.split_s_per_file, by);
    change_maybe("metadata.merge_s_per_file", &mut costs.merge_s_per_file, by);
    change_maybe("metadata.start_s", &mut costs.start_s, by);
    change_maybe("metadata.create_s", &mut costs.create_s, by);
    change_maybe("metadata.open_s", &mut costs.open_s, by);
    change_maybe("metadata.stat_s", &mut costs.stat_s, by);
    change_maybe("metadata.close_s", &mut costs.close_s, by);
    change_maybe("metadata.unlink_s", &mut costs.unlink_s, by);
    let path = &mut all.path;
    change_maybe("path.total_mib_per_s", &mut path.total_mib_per_s, by);
    change_maybe("path.per_compute_node_mib_per_s", &mut path.per_compute_node_mib_per_s, by);
    change_maybe("path.per_storage_node_mib_per_s", &mut path.per_storage_node_mib_per_s, by);
    for fit in &mut all.parallel {
        change("parallel.a_mib_per_s", &mut fit.a_mib_per_s, by);
        change_maybe("parallel.b_mib_per_s", &mut fit.b_mib_per_s, by);
    }
    let cpu = &mut all.cpu;
    change_maybe("cpu.record_read_s", &mut cpu.record_read_s, by);
    change_maybe("cpu.record_written_s", &mut cpu.record_written_s, by);
    change_maybe("cpu.request_read_s", &mut cpu.request_read_s, by);
    change_maybe("cpu.request_written_s", &mut cpu.request_written_s, by);
    let overlap = &mut all.overlap;
    change_maybe("overlap.compute", &mut overlap.compute, by);
    change_maybe("overlap.metadata", &mut overlap.metadata, by);
    change_maybe("overlap.write_back", &mut overlap.write_back, by);
    if let Some(write_back) = &mut all.write_back {
        change("write_back.node_mib", &mut write_back.node_mib, by);
        change("write_back.sustained_mib_per_s", &mut write_back.sustained_mib_per_s, by);
    }
    for row in &mut all.streams {
        change_maybe("streams.read_mib_per_s", &mut row.read_mib_per_s, by);
        change_maybe("streams.write_mib_per_s", &mut row.write_mib_per_s, by);
        change_maybe("streams.mixed_mib_per_s", &mut row.mixed_mib_per_s, by);
        change_maybe("streams.cached_read_mib_per_s", &mut row.cached_read_mib_per_s, by);
        change_maybe("streams.cached_mixed_mib_per_s", &mut row.cached_mixed_mib_per_s, by);
        change_maybe("streams.create_per_s", &mut row.create_per_s, by);
        change_maybe("streams.open_per_s", &mut row.open_per_s, by);
    }
    for row in &mut all.files {
        change_maybe("files.split_s_per_file", &mut row.split_s_per_file, by);
        change_maybe("files.merge_s_per_file", &mut row.merge_s_per_file, by);
    }
    for row in &mut all.interleaved {
        change_maybe("interleaved.read_mib_per_s", &mut row.read_mib_per_s, by);
        change_maybe("interleaved.write_mib_per_s", &mut row.write_mib_per_s, by);
    }
}

/// The calibration with its value number `index` moved by so many of its uncertainties; with it what
/// degrees of freedom that has, if it is uncertain at all. `None` beyond the last value.
fn moved(
    calibration: &Calibration,
    index: usize,
    steps: f64,
) -> Option<(Calibration, Option<f64>)> {
    let mut copy = calibration.clone();
    let (mut next, mut freedom, mut found) = (0, None, false);
    change_all(&mut copy, &mut |seen| {
        let is_it = next == index;
        next += 1;
        if !is_it {
            return seen.number;
        }
        found = true;
        freedom = (seen.uncertainty > 0.0).then_some(seen.freedom);
        seen.moved(steps)
    });
    found.then_some((copy, freedom))
}

/// The logarithms' half width of the interval that holds 90 % of what `forecast` is the mean of;
/// `also` are standard deviations of its logarithm that come from elsewhere. A value that cannot be moved
/// without `forecast` failing is left out.
pub(crate) fn half_width(
    calibration: &Calibration,
    also: &[f64],
    forecast: &dyn Fn(&Calibration) -> Option<f64>,
) -> f64 {
    let mut variance: f64 = also.iter().map(|sd| sd * sd).sum();
    let mut by_freedom = 0.0;
    for index in 0.. {
        let Some((lower, freedom)) = moved(calibration, index, -1.0) else { break };
        let Some(freedom) = freedom else { continue };
        let Some((higher, _)) = moved(calibration, index, 1.0) else { break };
        let (Some(low), Some(high)) = (forecast(&lower), forecast(&higher)) else { continue };
        if low > 0.0 && high > 0.0 {
            let part = ((high / low).ln() / 2.0).powi(2);
            variance += part;
            by_freedom += part * part / freedom;
        }
    }
    let freedom = if by_freedom > 0.0 { variance * variance / by_freedom } else { f64::INFINITY };
    student_90(freedom) * variance.sqrt()
}
