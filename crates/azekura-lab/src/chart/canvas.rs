//! What is drawn on: an area of pixels, its ink, and how a failure to draw is told.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

pub(super) const INK: RGBColor = RGBColor(40, 40, 40);

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The outcome of drawing one thing.
pub(super) fn drawn<E: std::error::Error + Send + Sync>(
    result: Result<(), DrawingAreaErrorKind<E>>,
) -> Result<()> {
    result.map_err(|error| anyhow!("cannot draw: {error}"))
}
