//! A measured value with its spread: in a file either `{ value = 114.4, sd = 1.2, runs = 3 }` or just a
//! number, which is taken as exact. Owns that form, and which numbers it may hold.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::units::{Quantity, objection};

/// A value and how far single measurements of it were from their mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured<Q> {
    /// The mean.
    pub value: Q,
    /// Standard deviation of one measurement, in the unit of the value; 0 for what is taken as exact.
    pub sd: f64,
    /// Measurements; 1 where a spread was not measured but written down.
    pub runs: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    value: f64,
    #[serde(default)]
    sd: f64,
    #[serde(default = "one")]
    runs: u32,
}

fn one() -> u32 {
    1
}

impl<Q: Quantity> Measured<Q> {
    /// A value without spread.
    pub fn exactly(number: f64) -> Self {
        Self { value: Q::of(number), sd: 0.0, runs: 1 }
    }

    /// Mean and standard deviation of measurements; `None` if there are none.
    pub fn of(measurements: &[f64]) -> Option<Self> {
        let count = measurements.len() as f64;
        let mean = measurements.iter().sum::<f64>() / count;
        let squares: f64 = measurements.iter().map(|one| (one - mean).powi(2)).sum();
        let sd = if count > 1.0 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        let runs = u32::try_from(measurements.len()).ok()?;
        (runs > 0).then_some(Self { value: Q::of(mean), sd, runs })
    }

    /// The value's number.
    pub fn number(&self) -> f64 {
        self.value.number()
    }

    /// Degrees of freedom of the spread; a spread that was written down by hand is believed.
    pub fn freedom(&self) -> f64 {
        if self.runs > 1 { f64::from(self.runs - 1) } else { f64::INFINITY }
    }

    /// The standard deviation of a single further measurement about the mean, which is known from
    /// `runs` measurements itself.
    pub fn uncertainty(&self) -> f64 {
        self.sd * (1.0 + 1.0 / f64::from(self.runs.max(1))).sqrt()
    }

    fn checked(written: &Written) -> Result<Self, String> {
        if let Some(objection) = objection::<Q>(written.value) {
            return Err(objection);
        }
        if !(written.sd >= 0.0 && written.sd.is_finite()) {
            return Err(format!("sd {} cannot be: write 0 or more, in {}", written.sd, Q::UNIT));
        }
        if written.runs == 0 {
            return Err("runs 0 cannot be: a value comes from one measurement at least".to_owned());
        }
        Ok(Self { value: Q::of(written.value), sd: written.sd, runs: written.runs })
    }
}

struct MeasuredVisitor<Q>(PhantomData<Q>);

impl<'de, Q: Quantity> Visitor<'de> for MeasuredVisitor<Q> {
    type Value = Measured<Q>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number in {}, or {{ value = .., sd = .., runs = .. }}", Q::UNIT)
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Self::Value, E> {
        Measured::checked(&Written { value: number, sd: 0.0, runs: 1 }).map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Self::Value, E> {
        self.visit_f64(number as f64)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Self::Value, E> {
        self.visit_f64(number as f64)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Err(E::invalid_type(Unexpected::Str(text), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let written = Written::deserialize(MapAccessDeserializer::new(map))?;
        Measured::checked(&written).map_err(A::Error::custom)
    }
}

impl<'de, Q: Quantity> Deserialize<'de> for Measured<Q> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MeasuredVisitor(PhantomData))
    }
}

impl<Q: Quantity> fmt::Display for Measured<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sd == 0.0 && self.runs == 1 {
            return write!(f, "{}", self.number());
        }
        write!(f, "{{ value = {}, sd = {}, runs = {} }}", self.number(), self.sd, self.runs)
    }
}
