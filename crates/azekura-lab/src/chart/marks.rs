//! Colours, dashes and marks of lines, chosen so that no line hides another: each has a colour, a rhythm of
//! dashes and a shape of its own, and marks that would fall on one another stand side by side.

use anyhow::Result;
use plotters::prelude::*;

use super::canvas::{Area, INK, drawn};

/// Told apart also by people who see few colours, and in print (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(110, 110, 110),
    RGBColor(20, 20, 20),
];

/// Lengths drawn and left out. All but the first have gaps, through which a line below is seen.
const DASHES: [&str; 8] = ["", "9 4", "4 3", "2 3", "14 4", "6 6", "9 3 2 3", "3 6"];

/// Corners around a mark's middle; none for a circle.
const SHAPES: [&[(i32, i32)]; 5] = [
    &[],
    &[(0, -6), (5, 3), (-5, 3)],
    &[(-4, -4), (4, -4), (4, 4), (-4, 4)],
    &[(0, -6), (5, 0), (0, 6), (-5, 0)],
    &[(0, 6), (5, -3), (-5, -3)],
];

/// Width of curves and of nothing else.
pub(super) const CURVE_WIDTH: u32 = 2;

/// How a curve is drawn.
pub(super) fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// How a mark is drawn.
#[derive(Clone, Copy)]
pub(super) enum Mark {
    /// Of the curve with this number.
    Filled(usize),
    /// A published value that goes with the curve with this number.
    Hollow(usize),
    /// A published value that goes with no curve: the how many-th kind of published values it is.
    Other(usize),
}

impl Mark {
    /// Draws the mark.
    pub(super) fn draw(self, area: &Area<'_>, (x, y): (i32, i32)) -> Result<()> {
        let (shape, colour, filled) = match self {
            Self::Filled(index) => (index, colour(index), true),
            Self::Hollow(index) => (index, colour(index), false),
            Self::Other(number) => (number, INK, false),
        };
        let style = if filled { colour.filled() } else { colour.stroke_width(1) };
        let corners = SHAPES[shape % SHAPES.len()];
        if corners.is_empty() {
            return drawn(area.draw(&Circle::new((x, y), 4, style)));
        }
        let corner = |(right, down): &(i32, i32)| (x + right, y + down);
        if filled {
            let around: Vec<(i32, i32)> = corners.iter().map(corner).collect();
            return drawn(area.draw(&Polygon::new(around, style)));
        }
        let around: Vec<(i32, i32)> = corners.iter().chain(corners.first()).map(corner).collect();
        drawn(area.draw(&PathElement::new(around, style)))
    }
}

/// Where marks stand already.
#[derive(Default)]
pub(super) struct Taken(Vec<(i32, i32)>);

impl Taken {
    /// A place for one more mark: the one that is wanted, or one beside it.
    pub(super) fn beside(&mut self, mark: Mark, (x, y): (i32, i32)) -> (i32, i32) {
        const NEAR: i32 = 4;
        let is_free = |place: &(i32, i32)| {
            !self.0.iter().any(|(a, b)| (a - place.0).abs() < NEAR && (b - place.1).abs() < NEAR)
        };
        // A point of a curve stays near where it is; published values may all be the same for six lines.
        let tries = if matches!(mark, Mark::Filled(_)) { 4 } else { 6 };
        let places = (0..tries).map(|n| (x + n * NEAR, y));
        let place = places.clone().find(is_free).unwrap_or((x, y));
        self.0.push(place);
        place
    }
}

/// Gives curves their dashes, which the library that draws cannot: each curve is one line of the picture and
/// one of its legend, in this order, and nothing else has their width.
pub(super) fn dashed(svg: &str) -> String {
    let line = format!("stroke-width=\"{CURVE_WIDTH}\" points=");
    let mut text = String::with_capacity(svg.len());
    for (number, piece) in svg.split(&line).enumerate() {
        if number > 0 {
            let dashes = DASHES[(number - 1) / 2 % DASHES.len()];
            if !dashes.is_empty() {
                text.extend(["stroke-dasharray=\"", dashes, "\" "]);
            }
            text.push_str(&line);
        }
        text.push_str(piece);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_stand_side_by_side() {
        let mut taken = Taken::default();
        let (filled, hollow) = (Mark::Filled(0), Mark::Hollow(0));
        assert_eq!(taken.beside(filled, (10, 10)), (10, 10));
        assert_eq!(taken.beside(filled, (11, 10)), (15, 10));
        assert_eq!(taken.beside(filled, (10, 30)), (10, 30));
        for x in [22, 26] {
            assert_eq!(taken.beside(hollow, (10, 10)), (x, 10));
        }
        assert_eq!(taken.beside(filled, (10, 10)), (10, 10), "not far from its point");
        assert_eq!(taken.beside(hollow, (10, 10)), (30, 10));
    }
}
