//! Line charts as SVG, in one quiet style: light grid, one colour and mark a line, legend to the
//! right of the plot. Owns how things look; what is drawn comes from the caller.

use anyhow::{Result, anyhow};
use azekura::report::{format_bytes, format_rate};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: u32 = 760;
const HEIGHT: u32 = 420;
const LEGEND_WIDTH: u32 = 190;
const FONT: &str = "Helvetica, Arial, sans-serif";
// The library divides sizes by 1.24 on their way into the file.
const SMALL: i32 = 15;
const MIDDLE: i32 = 16;
const LARGE: i32 = 19;
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(225, 225, 225);
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

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Evenly, from zero.
    Linear,
    /// In powers of two, as numbers.
    Powers,
    /// In powers of two, as sizes.
    Sizes,
}

/// A line: its name, and its points in order of x.
pub(crate) struct Curve {
    pub(crate) title: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// For each point the least and the most of what it is the mean of; or nothing at all.
    pub(crate) bars: Vec<(f64, f64)>,
}

/// A whole chart.
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    pub(crate) x_title: &'a str,
    pub(crate) x_scale: Scale,
    pub(crate) y_title: &'a str,
    pub(crate) y_scale: Scale,
    pub(crate) curves: Vec<Curve>,
}

impl Scale {
    /// Where a value lies along the axis.
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Powers | Self::Sizes => value.max(f64::MIN_POSITIVE).log2(),
        }
    }

    /// What stands at a place of the axis.
    fn label(self, place: f64) -> String {
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
    fn axis(self, values: impl Iterator<Item = f64>) -> Axis {
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
        let last = ((high / step - 1e-9).ceil()).max(first + 1.0);
        let labels = (0..=(last - first) as u32).map(|n| (first + f64::from(n)) * step);
        Axis { low: first * step, high: last * step, labels: labels.collect() }
    }
}

/// A step of 1, 2 or 5 by a power of ten, that divides a length into about six.
fn even_step(length: f64) -> f64 {
    let rough = (length / 6.0).max(1e-9);
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|n| *n >= rough).unwrap_or(rough)
}

struct Axis {
    low: f64,
    high: f64,
    labels: Vec<f64>,
}

impl Axis {
    /// How far along the axis a place lies, 0 to 1.
    fn share(&self, place: f64) -> f64 {
        (place - self.low) / (self.high - self.low)
    }
}

/// The rectangle that curves are drawn in, in pixels.
struct Frame {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

impl Frame {
    fn x(&self, share: f64) -> i32 {
        self.left + (f64::from(self.right - self.left) * share).round() as i32
    }

    fn y(&self, share: f64) -> i32 {
        self.bottom - (f64::from(self.bottom - self.top) * share).round() as i32
    }
}

fn text(size: i32, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK).pos(Pos::new(horizontal, vertical))
}

fn drawn<E: std::error::Error + Send + Sync>(
    result: Result<(), DrawingAreaErrorKind<E>>,
) -> Result<()> {
    result.map_err(|error| anyhow!("cannot draw: {error}"))
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
        let all = || chart.curves.iter().flat_map(|curve| curve.points.iter());
        let x_axis = chart.x_scale.axis(all().map(|(x, _)| *x));
        let ends = chart.curves.iter().flat_map(|curve| curve.bars.iter());
        let ends = ends.flat_map(|(low, high)| [*low, *high]);
        let y_axis = chart.y_scale.axis(all().map(|(_, y)| *y).chain(ends));
        let frame = Frame {
            left: 80,
            right: (WIDTH - LEGEND_WIDTH) as i32,
            top: 44,
            bottom: HEIGHT as i32 - 58,
        };
        draw_axes(&area, chart, &frame, &x_axis, &y_axis)?;
        for (index, curve) in chart.curves.iter().enumerate() {
            let points: Vec<(i32, i32)> = curve
                .points
                .iter()
                .map(|(x, y)| {
                    let x = x_axis.share(chart.x_scale.place(*x));
                    let y = y_axis.share(chart.y_scale.place(*y));
                    (frame.x(x), frame.y(y))
                })
                .collect();
            let y_of = |y: f64| frame.y(y_axis.share(chart.y_scale.place(y)));
            for ((x, _), (low, high)) in points.iter().zip(&curve.bars) {
                draw_bar(&area, index, *x, (y_of(*low), y_of(*high)))?;
            }
            draw_curve(&area, index, &points)?;
            draw_legend(&area, index, &curve.title, &frame)?;
        }
        drawn(area.present())?;
    }
    if !svg.ends_with('\n') {
        svg.push('\n');
    }
    Ok(svg)
}

fn draw_axes(
    area: &Area<'_>,
    chart: &Chart<'_>,
    frame: &Frame,
    x_axis: &Axis,
    y_axis: &Axis,
) -> Result<()> {
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

fn draw_curve(area: &Area<'_>, index: usize, points: &[(i32, i32)]) -> Result<()> {
    let colour = COLOURS[index % COLOURS.len()];
    drawn(area.draw(&PathElement::new(points, colour.stroke_width(2))))?;
    points.iter().try_for_each(|point| draw_mark(area, index, *point))
}

/// From the least to the most, with a cap at each end.
fn draw_bar(area: &Area<'_>, index: usize, x: i32, (low, high): (i32, i32)) -> Result<()> {
    let colour = COLOURS[index % COLOURS.len()];
    for ends in
        [[(x, low), (x, high)], [(x - 3, low), (x + 3, low)], [(x - 3, high), (x + 3, high)]]
    {
        drawn(area.draw(&PathElement::new(ends, colour.stroke_width(1))))?;
    }
    Ok(())
}

/// Circle, triangle, square and cross in turn.
fn draw_mark(area: &Area<'_>, index: usize, point: (i32, i32)) -> Result<()> {
    let colour = COLOURS[index % COLOURS.len()];
    let (x, y) = point;
    match index % 4 {
        0 => drawn(area.draw(&Circle::new(point, 4, colour.filled()))),
        1 => drawn(area.draw(&TriangleMarker::new(point, 5, colour.filled()))),
        2 => {
            let corners = [(x - 4, y - 4), (x + 4, y + 4)];
            drawn(area.draw(&Rectangle::new(corners, colour.filled())))
        }
        _ => drawn(area.draw(&Cross::new(point, 4, colour.stroke_width(2)))),
    }
}

fn draw_legend(area: &Area<'_>, index: usize, title: &str, frame: &Frame) -> Result<()> {
    let colour = COLOURS[index % COLOURS.len()];
    let (x, y) = (frame.right + 14, frame.top + 10 + 20 * index as i32);
    let line = PathElement::new([(x, y), (x + 24, y)], colour.stroke_width(2));
    drawn(area.draw(&line))?;
    draw_mark(area, index, (x + 12, y))?;
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
        }
    }

    #[test]
    fn everything_is_written_on_a_chart() {
        let curve = |title: &str, factor: f64| Curve {
            title: title.to_owned(),
            points: vec![(16_384.0, 100.0 * factor), (4_194_304.0, 5_000.0 * factor)],
            bars: Vec::new(),
        };
        let svg = draw(&chart(vec![curve("one & <two>", 1.0), curve("b", 2.0)])).unwrap();
        for text in ["Reading", "transfer size", "MiB/s", "16 KiB", "4 MiB", "10,000"] {
            assert!(svg.contains(text), "{text} is missing in {svg}");
        }
        assert!(svg.contains("one &amp; &lt;two&gt;"), "{svg}");
        assert_eq!(svg.matches("<polyline").count() - svg.matches("#E1E1E1").count(), 2 + 2 + 2);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn a_chart_without_points_is_drawn_too() {
        for points in [vec![], vec![(1024.0, 0.0)]] {
            let empty = Curve { title: "empty".to_owned(), points, bars: Vec::new() };
            assert!(draw(&chart(vec![empty])).unwrap().contains("empty"));
        }
        assert!(draw(&chart(vec![])).is_ok());
    }

    #[test]
    fn bars_are_drawn_and_have_room() {
        let curve = |bars| Curve { title: "c".to_owned(), points: vec![(1024.0, 5.0)], bars };
        let plain = draw(&chart(vec![curve(Vec::new())])).unwrap();
        let barred = draw(&chart(vec![curve(vec![(4.0, 60.0)])])).unwrap();
        let lines = |svg: &str| svg.matches("#0072B2").count();
        assert!(lines(&barred) >= lines(&plain) + 3, "{barred}");
        assert!(!plain.contains(">60<") && barred.contains(">60<"), "{barred}");
    }

    #[test]
    fn axes_end_at_labels() {
        let axis = Scale::Linear.axis([3.0, 5_900.0].into_iter());
        assert_eq!(axis.labels, [0.0, 1000.0, 2000.0, 3000.0, 4000.0, 5000.0, 6000.0]);
        let axis = Scale::Powers.axis([1.0, 64.0].into_iter());
        assert_eq!((axis.low, axis.high, axis.labels.len()), (0.0, 6.0, 7));
        assert_eq!(Scale::Powers.label(5.0), "32");
        assert_eq!(Scale::Sizes.label(20.0), "1 MiB");
    }
}
