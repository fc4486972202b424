//! How an axis is divided: where its ends are, and where its labels stand. Owns no picture and knows no
//! pixels.

use azekura::report::{format_bytes, format_rate};

/// How an axis is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Evenly, from zero.
    #[default]
    Linear,
    /// In powers of two, as numbers.
    Powers,
    /// In powers of two, as sizes.
    Sizes,
}

/// Which end of the data an axis has to meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It ends where the data end, so that no part of it is empty.
    WithData,
    /// It ends at the next label, so that what is highest can be read off.
    AtLabel,
}

impl Scale {
    /// Where a value lies along the axis.
    pub(super) fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Powers | Self::Sizes => value.max(f64::MIN_POSITIVE).log2(),
        }
    }

    /// What stands at a place of the axis.
    pub(super) fn label(self, place: f64) -> String {
        let number = |value: f64| {
            let text = format_rate(value);
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                text
            }
        };
        match self {
            Self::Linear => number(place),
            Self::Powers => number(place.exp2()),
            Self::Sizes => format_bytes(place.exp2().round() as u64),
        }
    }

    /// The ends of the axis and where its labels stand.
    pub(super) fn axis(self, values: impl Iterator<Item = f64>, end: End) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for place in values.map(|value| self.place(value)) {
            (low, high) = (low.min(place), high.max(place));
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let step = match self {
            Self::Linear => {
                low = low.min(0.0);
                even_step(high - low)
            }
            // Room for eight labels or so.
            Self::Powers | Self::Sizes => ((high - low) / 10.0).ceil().max(1.0),
        };
        let first = (low / step + 1e-9).floor();
        let last = (high / step - 1e-9).ceil().max(first + 1.0);
        let labels = (0..=(last - first) as u32).map(|n| (first + f64::from(n)) * step);
        let (at_first, at_last) = (first * step, last * step);
        let (low, high) = match end {
            End::WithData if high > low => (low, high),
            End::WithData | End::AtLabel => (at_first, at_last),
        };
        let inside = |place: &f64| *place >= low - 1e-9 && *place <= high + 1e-9;
        Axis { low, high, labels: labels.filter(inside).collect() }
    }
}

/// A step of 1, 2 or 5 by a power of ten, that divides a length into about six.
fn even_step(length: f64) -> f64 {
    let rough = (length / 6.0).max(1e-9);
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|n| *n >= rough).unwrap_or(rough)
}

/// The ends of an axis, and its labels.
pub(super) struct Axis {
    low: f64,
    high: f64,
    pub(super) labels: Vec<f64>,
}

impl Axis {
    /// How far along the axis a place lies, 0 to 1.
    pub(super) fn share(&self, place: f64) -> f64 {
        (place - self.low) / (self.high - self.low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_labels() {
        let axis = Scale::Linear.axis([3.0, 5_900.0].into_iter(), End::AtLabel);
        assert_eq!(axis.labels, [0.0, 1000.0, 2000.0, 3000.0, 4000.0, 5000.0, 6000.0]);
        let axis = Scale::Powers.axis([1.0, 64.0].into_iter(), End::AtLabel);
        assert_eq!((axis.low, axis.high, axis.labels.len()), (0.0, 6.0, 7));
        assert_eq!(Scale::Powers.label(5.0), "32");
        assert_eq!(Scale::Sizes.label(20.0), "1 MiB");
    }

    #[test]
    fn axes_end_with_the_data() {
        // From 64 KiB to 512 MiB is more than ten powers: labels are two apart, and 1 GiB has no data.
        let sizes = [65_536.0, 536_870_912.0];
        let axis = Scale::Sizes.axis(sizes.into_iter(), End::WithData);
        assert_eq!((axis.low, axis.high), (16.0, 29.0));
        assert_eq!(axis.labels, [16.0, 18.0, 20.0, 22.0, 24.0, 26.0, 28.0]);
        let axis = Scale::Linear.axis([1.0, 120.0].into_iter(), End::WithData);
        assert_eq!((axis.low, axis.high, axis.labels.last()), (0.0, 120.0, Some(&120.0)));
        let one = Scale::Powers.axis([8.0].into_iter(), End::WithData);
        assert!(one.share(3.0).is_finite());
    }
}
