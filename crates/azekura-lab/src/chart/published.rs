//! What others have published of a curve: points, or one of a point's two numbers where no more was said.
//! Owns what the legend calls them; draws nothing.

/// What was published of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    /// Both numbers, x and y.
    At(f64, f64),
    /// x alone; drawn on the x axis.
    X(f64),
    /// y alone; drawn on the y axis.
    Y(f64),
}

impl From<(f64, f64)> for Place {
    fn from((x, y): (f64, f64)) -> Self {
        Self::At(x, y)
    }
}

impl Place {
    /// From the numbers that are known; `None` if none is.
    pub(crate) fn of(x: Option<f64>, y: Option<f64>) -> Option<Self> {
        match (x, y) {
            (Some(x), Some(y)) => Some(Self::At(x, y)),
            (Some(x), None) => Some(Self::X(x)),
            (None, Some(y)) => Some(Self::Y(y)),
            (None, None) => None,
        }
    }

    /// Its x, if known.
    pub(crate) fn x(self) -> Option<f64> {
        match self {
            Self::At(x, _) | Self::X(x) => Some(x),
            Self::Y(_) => None,
        }
    }

    /// Its y, if known.
    pub(crate) fn y(self) -> Option<f64> {
        match self {
            Self::At(_, y) | Self::Y(y) => Some(y),
            Self::X(_) => None,
        }
    }

    /// Whether the same numbers are known of another.
    pub(crate) fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// What the legend adds to a name.
    fn note(self) -> &'static str {
        match self {
            Self::At(..) => "",
            Self::X(_) => ", x alone",
            Self::Y(_) => ", y alone",
        }
    }
}

/// Values that others have published, drawn as hollow marks without a line.
pub(crate) struct Published {
    /// Name of the curve that they are held against; its colour and shape, where there is such a curve.
    pub(crate) curve: String,
    /// Of all of them the same numbers are known.
    pub(crate) places: Vec<Place>,
}

impl Published {
    /// What the legend calls them.
    pub(super) fn title(&self) -> String {
        let note = self.places.first().map_or("", |place| place.note());
        format!("paper: {}{note}", self.curve)
    }
}
