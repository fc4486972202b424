//! Quantities with their units, so that seconds are never added to bytes. Owns what a value of each may
//! be at all; knows nothing of files or models.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul};

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Bytes of a mebibyte, the unit of every throughput here.
pub const MIB: f64 = 1_048_576.0;

/// What numbers a quantity admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admits {
    /// More than zero.
    Positive,
    /// Zero or more.
    NotNegative,
    /// At most one; what is below zero counts against.
    AtMostOne,
    /// Any.
    Any,
}

/// A number with a unit.
pub trait Quantity: Copy {
    /// The unit, as it is written in files and tables.
    const UNIT: &'static str;
    /// What it may be.
    const ADMITS: Admits;

    /// From its number.
    fn of(number: f64) -> Self;
    /// Its number.
    fn number(self) -> f64;
}

/// Why a number cannot be the quantity that is asked for; `None` if it can.
pub(crate) fn objection<Q: Quantity>(number: f64) -> Option<String> {
    let unit = Q::UNIT;
    let admitted = match Q::ADMITS {
        Admits::Positive => number > 0.0,
        Admits::NotNegative => number >= 0.0,
        Admits::AtMostOne => number <= 1.0,
        Admits::Any => true,
    };
    let wanted = match Q::ADMITS {
        Admits::Positive => "above 0",
        Admits::NotNegative => "of 0 or more",
        Admits::AtMostOne => "of at most 1",
        Admits::Any => "that is finite",
    };
    (!admitted || !number.is_finite())
        .then(|| format!("{number} cannot be: write a number {wanted}, in {unit}"))
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $unit:literal, $admits:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub f64);

        impl Quantity for $name {
            const UNIT: &'static str = $unit;
            const ADMITS: Admits = Admits::$admits;

            fn of(number: f64) -> Self {
                Self(number)
            }
            fn number(self) -> f64 {
                self.0
            }
        }
    };
}

quantity! {
    /// A time.
    Seconds, "s", NotNegative
}
quantity! {
    /// A throughput; its files and tables say MiB (2^20 bytes), as the paper's "MB" are.
    MibPerSecond, "MiB/s", Positive
}
quantity! {
    /// A slope of throughput, of either sign.
    Slope, "MiB/s", Any
}
quantity! {
    /// An amount of data.
    Mebibytes, "MiB", Positive
}
quantity! {
    /// Operations a second.
    PerSecond, "1/s", Positive
}
quantity! {
    /// How much of the shorter of two works goes on while the longer does: 1 all of it, 0 none; below
    /// 0 they hinder each other.
    Overlap, "of the shorter", AtMostOne
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// Bytes are read from a whole number, or from text as "4 MiB".
struct BytesVisitor;

impl Visitor<'_> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of bytes, or a size in KiB, MiB, GiB or TiB, as \"4 MiB\"")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Bytes, E> {
        Ok(Bytes(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Bytes, E> {
        u64::try_from(number).map(Bytes).map_err(|_| {
            E::custom(format!("{number} cannot be: write a number of 0 or more bytes"))
        })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
        Bytes::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BytesVisitor)
    }
}

impl Bytes {
    /// From text: a whole number and, after a space or not, KiB, MiB, GiB, TiB, B or nothing.
    pub fn parse(text: &str) -> Option<Self> {
        let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let shift = match unit.trim() {
            "" | "B" => 0,
            "KiB" => 10,
            "MiB" => 20,
            "GiB" => 30,
            "TiB" => 40,
            _ => return None,
        };
        number.parse::<u64>().ok()?.checked_mul(1 << shift).map(Self)
    }

    /// In mebibytes.
    pub fn mib(self) -> f64 {
        self.0 as f64 / MIB
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Div<MibPerSecond> for Bytes {
    type Output = Seconds;
    fn div(self, rate: MibPerSecond) -> Seconds {
        Seconds(self.mib() / rate.0)
    }
}

impl Div<Seconds> for Bytes {
    type Output = MibPerSecond;
    fn div(self, time: Seconds) -> MibPerSecond {
        MibPerSecond(self.mib() / time.0)
    }
}

impl Add for Seconds {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Seconds {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sum for Seconds {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        Self(times.map(|time| time.0).sum())
    }
}

impl Mul<f64> for Seconds {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self(self.0 * factor)
    }
}

impl Div<f64> for Seconds {
    type Output = Self;
    fn div(self, divisor: f64) -> Self {
        Self(self.0 / divisor)
    }
}

impl Mul<f64> for MibPerSecond {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self(self.0 * factor)
    }
}

impl MibPerSecond {
    /// The smaller of two.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }
}
