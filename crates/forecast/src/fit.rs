//! Fits of measured points: straight lines, and y = a/x + b, which is a straight line over 1/x; and
//! Student's distribution, which says what a spread from few measurements is worth. Closed forms only:
//! the same points give the same figures everywhere.

use crate::measured::Measured;
use crate::units::Quantity;

/// A straight line through points, by least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Rise of y for each x.
    pub slope: f64,
    /// y at x = 0.
    pub intercept: f64,
    /// Standard error of the slope; 0 with two points.
    pub slope_sd: f64,
    /// Standard error of the intercept; 0 with two points.
    pub intercept_sd: f64,
    /// Standard deviation of the points about the line; 0 with two points.
    pub residual_sd: f64,
    /// Points.
    pub points: usize,
}

impl Line {
    /// The line through points (x, y); `None` if they have not two different x, or are not all numbers.
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
        let sxx: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        let sxy: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        if !(sxx > 0.0 && sxx.is_finite() && sxy.is_finite()) {
            return None;
        }
        let slope = sxy / sxx;
        let intercept = mean_y - slope * mean_x;
        let squares: f64 = points.iter().map(|(x, y)| (y - intercept - slope * x).powi(2)).sum();
        let variance = if points.len() > 2 { squares / (count - 2.0) } else { 0.0 };
        Some(Self {
            slope,
            intercept,
            slope_sd: (variance / sxx).sqrt(),
            intercept_sd: (variance * (1.0 / count + mean_x * mean_x / sxx)).sqrt(),
            residual_sd: variance.sqrt(),
            points: points.len(),
        })
    }

    /// The curve y = a/x + b through points: a is the slope, b the intercept.
    pub fn over_inverse(points: &[(f64, f64)]) -> Option<Self> {
        let inverted: Vec<(f64, f64)> = points.iter().map(|(x, y)| (1.0 / x, *y)).collect();
        Self::through(&inverted)
    }

    /// The slope with its standard error, as a value of a calibration.
    pub fn measured_slope<Q: Quantity>(&self) -> Measured<Q> {
        Measured { value: Q::of(self.slope), sd: self.slope_sd, runs: self.runs() }
    }

    /// The intercept with its standard error, as a value of a calibration.
    pub fn measured_intercept<Q: Quantity>(&self) -> Measured<Q> {
        Measured { value: Q::of(self.intercept), sd: self.intercept_sd, runs: self.runs() }
    }

    /// As many as leave the line's degrees of freedom, which are two fewer than its points.
    fn runs(&self) -> u32 {
        u32::try_from(self.points.saturating_sub(1)).unwrap_or(u32::MAX).max(1)
    }
}

/// How much of the shorter of two works went on during the longer: `together` is what both took at once,
/// the others what each takes alone. 1: all of it, 0: none, below 0: they hindered each other.
pub fn overlap(one: f64, other: f64, together: f64) -> f64 {
    let shorter = one.min(other);
    if shorter > 0.0 { ((one + other - together) / shorter).min(1.0) } else { 0.0 }
}

/// Quantiles of Student's distribution at 95 %, for 1 to 30 degrees of freedom.
const STUDENT_95: [f64; 30] = [
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771,
    1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706,
    1.703, 1.701, 1.699, 1.697,
];
const NORMAL_95: f64 = 1.645;

/// What a standard deviation has to be multiplied with so that 90 % lie within, 5 % on either side, if
/// it is known with so many degrees of freedom. Between whole ones the smaller counts.
pub fn student_90(freedom: f64) -> f64 {
    let whole = freedom.floor().max(1.0);
    if whole > STUDENT_95.len() as f64 {
        return NORMAL_95;
    }
    STUDENT_95[whole as usize - 1]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() <= 1e-9 * one.abs().max(other.abs()).max(1.0)
    }

    proptest! {
        #[test]
        fn a_line_without_noise_is_found(
            slope in -1e3..1e3f64, intercept in -1e3..1e3f64, count in 2..20usize,
        ) {
            let points: Vec<_> =
                (0..count).map(|x| (x as f64, intercept + slope * x as f64)).collect();
            let line = Line::through(&points).unwrap();
            prop_assert!((line.slope - slope).abs() < 1e-6);
            prop_assert!((line.intercept - intercept).abs() < 1e-6);
            prop_assert!(line.residual_sd < 1e-6);
        }

        #[test]
        fn the_papers_curve_is_found(a in -50.0..200.0f64, b in 0.1..200.0f64) {
            let points: Vec<_> =
                [1.0, 2.0, 4.0, 8.0, 32.0].iter().map(|x| (*x, a / x + b)).collect();
            let curve = Line::over_inverse(&points).unwrap();
            prop_assert!((curve.slope - a).abs() < 1e-6 && (curve.intercept - b).abs() < 1e-6);
        }
    }

    /// A published example (Anscombe's first set): y = 3.00 + 0.500 x, standard errors 1.125 and 0.118.
    #[test]
    fn spreads_are_those_of_a_known_data_set() {
        let x = [10.0, 8.0, 13.0, 9.0, 11.0, 14.0, 6.0, 4.0, 12.0, 7.0, 5.0];
        let y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68];
        let points: Vec<_> = x.into_iter().zip(y).collect();
        let line = Line::through(&points).unwrap();
        let close = |value: f64, wanted: f64| (value - wanted).abs() < 0.0006;
        assert!(close(line.slope, 0.5001) && close(line.intercept, 3.0001), "{line:?}");
        assert!(close(line.slope_sd, 0.1179) && close(line.intercept_sd, 1.1247), "{line:?}");
        assert!(close(line.residual_sd, 1.2366), "{line:?}");
    }

    #[test]
    fn points_that_give_no_line_are_told() {
        for points in
            [&[][..], &[(1.0, 2.0)], &[(1.0, 2.0), (1.0, 3.0)], &[(0.0, 1.0), (f64::NAN, 1.0)]]
        {
            assert_eq!(Line::through(points), None, "{points:?}");
        }
        assert_eq!(Line::over_inverse(&[(0.0, 1.0), (1.0, 2.0)]), None);
    }

    #[test]
    fn works_overlap_wholly_partly_or_not() {
        assert!(near(overlap(4.0, 2.0, 4.0), 1.0));
        assert!(near(overlap(4.0, 2.0, 5.0), 0.5));
        assert!(near(overlap(4.0, 2.0, 6.0), 0.0));
        assert!(near(overlap(4.0, 2.0, 8.0), -1.0));
        assert!(near(overlap(4.0, 2.0, 3.0), 1.0), "measured faster than possible");
        assert!(near(overlap(4.0, 0.0, 4.0), 0.0));
    }

    #[test]
    fn few_measurements_make_wide_intervals() {
        assert!(near(student_90(0.3), 6.314) && near(student_90(2.9), 2.920));
        assert!(near(student_90(30.0), 1.697) && near(student_90(f64::INFINITY), 1.645));
    }
}
