//! Line charts as SVG, in one quiet style: light grid, one colour, dash and mark a line, legend to the
//! right of the plot, bars from least to most where a point has them, hollow marks for what others have
//! published. Owns how things look; what is drawn comes from the caller.

mod axis;
mod canvas;
mod marks;
mod published;

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(crate) use axis::Scale;
use axis::{Axis, End};
use canvas::{Area, INK, drawn};
use marks::{CURVE_WIDTH, Mark, Taken, colour, dashed};
pub(crate) use published::{Place, Published};

const WIDTH: u32 = 760;
const HEIGHT: u32 = 420;
/// Room beside the plot, in pixels: for the mark, and for each letter of the longest title.
const LEGEND_MARK: usize = 52;
const LEGEND_LETTER: usize = 7;
const LEGEND_LEAST: usize = 190;
const LEGEND_MOST: usize = 280;
const FONT: &str = "Helvetica, Arial, sans-serif";
// The library divides sizes by 1.24 on their way into the file.
const SMALL: i32 = 15;
const MIDDLE: i32 = 16;
const LARGE: i32 = 19;
const GRID: RGBColor = RGBColor(225, 225, 225);

/// A line: its name, and its points in order of x.
#[derive(Default)]
pub(crate) struct Curve {
    pub(crate) title: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// Bars: x, and the least and the most that was found there.
    pub(crate) ranges: Vec<(f64, f64, f64)>,
}

/// A whole chart.
#[derive(Default)]
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    pub(crate) x_title: &'a str,
    pub(crate) x_scale: Scale,
    pub(crate) y_title: &'a str,
    pub(crate) y_scale: Scale,
    pub(crate) curves: Vec<Curve>,
    pub(crate) published: Vec<Published>,
}

impl Chart<'_> {
    /// Pixels that the longest title of the legend takes.
    fn legend_width(&self) -> i32 {
        let curves = self.curves.iter().map(|curve| curve.title.chars().count());
        let published = self.published.iter().map(|published| published.title().chars().count());
        let letters = curves.chain(published).max().unwrap_or(0);
        (LEGEND_MARK + LEGEND_LETTER * letters).clamp(LEGEND_LEAST, LEGEND_MOST) as i32
    }

    /// Every value of x and y that has to be on the picture.
    fn extent(&self) -> (Vec<f64>, Vec<f64>) {
        let curves = self.curves.iter().flat_map(|curve| &curve.points);
        let (mut xs, mut ys): (Vec<f64>, Vec<f64>) = curves.copied().unzip();
        for place in self.published.iter().flat_map(|published| &published.places) {
            xs.extend(place.x());
            ys.extend(place.y());
        }
        for (x, low, high) in self.curves.iter().flat_map(|curve| &curve.ranges) {
            xs.push(*x);
            ys.extend([*low, *high]);
        }
        (xs, ys)
    }
}

/// The rectangle that curves are drawn in, in pixels, with its axes.
struct Frame {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
    x_scale: Scale,
    x_axis: Axis,
    y_scale: Scale,
    y_axis: Axis,
}

impl Frame {
    fn of(chart: &Chart<'_>) -> Self {
        let (xs, ys) = chart.extent();
        Self {
            left: 80,
            right: WIDTH as i32 - chart.legend_width(),
            top: 44,
            bottom: HEIGHT as i32 - 58,
            x_scale: chart.x_scale,
            x_axis: chart.x_scale.axis(xs.into_iter(), End::WithData),
            y_scale: chart.y_scale,
            y_axis: chart.y_scale.axis(ys.into_iter(), End::AtLabel),
        }
    }

    fn x(&self, share: f64) -> i32 {
        self.left + (f64::from(self.right - self.left) * share).round() as i32
    }

    fn y(&self, share: f64) -> i32 {
        self.bottom - (f64::from(self.bottom - self.top) * share).round() as i32
    }

    /// The pixel of a point.
    fn pixel(&self, (x, y): (f64, f64)) -> (i32, i32) {
        self.pixel_of(Place::At(x, y))
    }

    /// The same; what is not known of it puts it on an axis.
    fn pixel_of(&self, place: Place) -> (i32, i32) {
        let x = place.x().map(|x| self.x(self.x_axis.share(self.x_scale.place(x))));
        let y = place.y().map(|y| self.y(self.y_axis.share(self.y_scale.place(y))));
        (x.unwrap_or(self.left), y.unwrap_or(self.bottom))
    }
}

fn text(size: i32, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK).pos(Pos::new(horizontal, vertical))
}

/// Draws a chart; gives the SVG's text.
///
/// # Errors
/// If it cannot be drawn.
pub(crate) fn draw(chart: &Chart<'_>) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        drawn(area.fill(&WHITE))?;
        let frame = Frame::of(chart);
        draw_axes(&area, chart, &frame)?;
        let mut taken = Taken::default();
        for (index, curve) in chart.curves.iter().enumerate() {
            draw_curve(&area, &frame, index, curve, &mut taken)?;
            let (x, y) = legend_place(index, &frame);
            let line = [(x, y), (x + 24, y)];
            drawn(area.draw(&PathElement::new(line, colour(index).stroke_width(CURVE_WIDTH))))?;
            draw_legend(&area, Mark::Filled(index), &curve.title, (x, y))?;
        }
        for (number, published) in chart.published.iter().enumerate() {
            let curve = chart.curves.iter().position(|curve| curve.title == published.curve);
            let mark = curve.map_or(Mark::Other(number), Mark::Hollow);
            for place in &published.places {
                mark.draw(&area, taken.beside(mark, frame.pixel_of(*place)))?;
            }
            let beside = legend_place(chart.curves.len() + number, &frame);
            draw_legend(&area, mark, &published.title(), beside)?;
        }
        drawn(area.present())?;
    }
    let mut svg = dashed(&svg);
    if !svg.ends_with('\n') {
        svg.push('\n');
    }
    Ok(svg)
}

fn draw_axes(area: &Area<'_>, chart: &Chart<'_>, frame: &Frame) -> Result<()> {
    let (x_axis, y_axis) = (&frame.x_axis, &frame.y_axis);
    let line = |from, to, style: ShapeStyle| drawn(area.draw(&PathElement::new([from, to], style)));
    for place in &y_axis.labels {
        let y = frame.y(y_axis.share(*place));
        line((frame.left, y), (frame.right, y), GRID.into())?;
        let style = text(SMALL, HPos::Right, VPos::Center);
        drawn(area.draw(&Text::new(chart.y_scale.label(*place), (frame.left - 8, y), style)))?;
    }
    for place in &x_axis.labels {
        let x = frame.x(x_axis.share(*place));
        line((x, frame.top), (x, frame.bottom), GRID.into())?;
        let style = text(SMALL, HPos::Center, VPos::Top);
        drawn(area.draw(&Text::new(chart.x_scale.label(*place), (x, frame.bottom + 8), style)))?;
    }
    line((frame.left, frame.bottom), (frame.right, frame.bottom), INK.into())?;
    line((frame.left, frame.top), (frame.left, frame.bottom), INK.into())?;
    let middle_x = i32::midpoint(frame.left, frame.right);
    let middle_y = i32::midpoint(frame.top, frame.bottom);
    let title = text(LARGE, HPos::Center, VPos::Center);
    drawn(area.draw(&Text::new(chart.title.to_owned(), (middle_x, 22), title)))?;
    let x_title = text(MIDDLE, HPos::Center, VPos::Bottom);
    let below = HEIGHT as i32 - 12;
    drawn(area.draw(&Text::new(chart.x_title.to_owned(), (middle_x, below), x_title)))?;
    let upright = (FONT, MIDDLE).into_font().transform(FontTransform::Rotate270).color(&INK);
    let y_title = upright.pos(Pos::new(HPos::Center, VPos::Center));
    drawn(area.draw(&Text::new(chart.y_title.to_owned(), (16, middle_y), y_title)))
}

fn draw_curve(
    area: &Area<'_>,
    frame: &Frame,
    index: usize,
    curve: &Curve,
    taken: &mut Taken,
) -> Result<()> {
    const CAP: i32 = 3;
    for (x, low, high) in &curve.ranges {
        let ((x, low), (_, high)) = (frame.pixel((*x, *low)), frame.pixel((*x, *high)));
        for ends in [
            [(x, low), (x, high)],
            [(x - CAP, low), (x + CAP, low)],
            [(x - CAP, high), (x + CAP, high)],
        ] {
            drawn(area.draw(&PathElement::new(ends, colour(index).stroke_width(1))))?;
        }
    }
    let points: Vec<(i32, i32)> = curve.points.iter().map(|point| frame.pixel(*point)).collect();
    let style = colour(index).stroke_width(CURVE_WIDTH);
    drawn(area.draw(&PathElement::new(points.clone(), style)))?;
    let mark = Mark::Filled(index);
    points.into_iter().try_for_each(|point| mark.draw(area, taken.beside(mark, point)))
}

/// Where a line of the legend begins.
fn legend_place(line: usize, frame: &Frame) -> (i32, i32) {
    (frame.right + 14, frame.top + 10 + 20 * line as i32)
}

fn draw_legend(area: &Area<'_>, mark: Mark, title: &str, (x, y): (i32, i32)) -> Result<()> {
    mark.draw(area, (x + 12, y))?;
    let style = text(SMALL, HPos::Left, VPos::Center);
    drawn(area.draw(&Text::new(title.to_owned(), (x + 31, y), style)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(curves: Vec<Curve>) -> Chart<'static> {
        Chart {
            title: "Reading",
            x_title: "transfer size",
            x_scale: Scale::Sizes,
            y_title: "MiB/s",
            y_scale: Scale::Linear,
            curves,
            published: Vec::new(),
        }
    }

    #[test]
    fn everything_is_written_on_a_chart() {
        let curve = |title: &str, factor: f64| Curve {
            title: title.to_owned(),
            points: vec![(16_384.0, 100.0 * factor), (4_194_304.0, 5_000.0 * factor)],
            ..Curve::default()
        };
        let svg = draw(&chart(vec![curve("one & <two>", 1.0), curve("b", 2.0)])).unwrap();
        for text in ["Reading", "transfer size", "MiB/s", "16 KiB", "4 MiB", "10,000"] {
            assert!(svg.contains(text), "{text} is missing in {svg}");
        }
        assert!(svg.contains("one &amp; &lt;two&gt;"), "{svg}");
        assert_eq!(svg.matches("<polyline").count() - svg.matches("#E1E1E1").count(), 2 + 2 + 2);
        assert!(svg.contains("stroke-dasharray"), "{svg}");
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn a_chart_without_points_is_drawn_too() {
        for points in [vec![], vec![(1024.0, 0.0)]] {
            let empty = Curve { title: "empty".to_owned(), points, ..Curve::default() };
            assert!(draw(&chart(vec![empty])).unwrap().contains("empty"));
        }
        assert!(draw(&chart(vec![])).is_ok());
    }

    #[test]
    fn bars_and_published_values_are_drawn() {
        let measured = |ranges| Curve {
            title: "read".to_owned(),
            points: vec![(16_384.0, 100.0), (4_194_304.0, 200.0)],
            ranges,
        };
        let plain = draw(&chart(vec![measured(vec![])])).unwrap();
        let barred = draw(&chart(vec![measured(vec![(16_384.0, 90.0, 120.0)])])).unwrap();
        // Three strokes make a bar: the range and its two ends.
        assert_eq!(barred.matches("<polyline").count() - plain.matches("<polyline").count(), 3);
        let curve = |title: &str| Curve {
            title: title.to_owned(),
            points: vec![(16_384.0, 100.0), (4_194_304.0, 200.0)],
            ..Curve::default()
        };
        let published = |curve: &str| Published {
            curve: curve.to_owned(),
            places: vec![Place::At(1_048_576.0, 11_135.0)],
        };
        let chart = Chart {
            published: vec![published("read"), published("elsewhere")],
            ..chart(vec![curve("read"), curve("the same")])
        };
        let svg = draw(&chart).unwrap();
        assert!(svg.contains("paper: read") && svg.contains("paper: elsewhere"));
        assert!(svg.contains("12,000"), "the axis has room for what was published: {svg}");
        // The second line lies on the first one, which is seen through its gaps.
        assert_eq!(svg.matches("stroke-dasharray=\"9 4\"").count(), 2);
        assert_eq!(svg.matches("stroke-dasharray").count(), 2);
    }

    #[test]
    fn what_is_published_in_part_stands_on_an_axis() {
        let curve = |title: &str| Curve {
            title: title.to_owned(),
            points: vec![(65_536.0, 10.0), (16_777_216.0, 90.0)],
            ..Curve::default()
        };
        let published =
            |place| Published { curve: "0 ms".to_owned(), places: vec![place, place, place] };
        let (x, y) = (Place::X(1_048_576.0), Place::Y(120.0));
        let chart = Chart {
            published: vec![published(x), published(y)],
            ..chart(vec![curve("0 ms"), curve("10 ms")])
        };
        let frame = Frame::of(&chart);
        assert_eq!(frame.pixel_of(x), (frame.x(0.5), frame.bottom));
        assert_eq!(frame.pixel_of(y), (frame.left, frame.top), "the axis has room for it");
        let svg = draw(&chart).unwrap();
        assert!(svg.contains("paper: 0 ms, x alone") && svg.contains("paper: 0 ms, y alone"));
        // The curve's two and the legend's, and for each kind three hollow ones and the legend's.
        assert_eq!(svg.matches("<circle").count(), 3 + 2 * 4, "{svg}");
    }
}
