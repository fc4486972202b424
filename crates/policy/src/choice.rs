//! The choice of a read policy and its spelling on a command line. Owns names and error texts;
//! must never decide anything about a read.

use std::fmt;
use std::str::FromStr;

use crate::adaptive::AdaptiveParameters;
use crate::predict::PredictiveParameters;

/// Largest request of `fixed=SIZE`, in bytes.
const FIXED_MAX_BYTES: u64 = 1 << 30;

/// What stands behind the name of a policy whose requests are cut into parts.
const STRIPED: &str = "-striped";

/// How remote reads are turned into requests.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadPolicy {
    /// One request at a time, its size following how much of it is used.
    SyncAdaptive(AdaptiveParameters),
    /// One request at a time, always of this many bytes.
    Fixed(u64),
    /// One of the two above, each of whose requests is cut into parts that go over several connections,
    /// and to several targets where the file is striped.
    Striped(Box<Self>),
    /// The pattern is predicted and requests are kept in flight.
    Predictive(PredictiveParameters),
    /// Every read is one request of just its bytes.
    Off,
}

impl Default for ReadPolicy {
    fn default() -> Self {
        Self::Predictive(PredictiveParameters::default())
    }
}

impl ReadPolicy {
    /// What it is but for the way that its requests take.
    pub fn unstriped(&self) -> &Self {
        match self {
            Self::Striped(inner) => inner.unstriped(),
            other => other,
        }
    }

    /// Whether a window is one request, over one connection.
    pub fn is_one_at_a_time(&self) -> bool {
        matches!(self, Self::SyncAdaptive(_) | Self::Fixed(_))
    }
}

/// Why a text names no read policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadPolicyError {
    /// The name is none of the known ones.
    UnknownName(String),
    /// `fixed` came without a size, or with one that can't be read.
    BadSize(String),
    /// The size is a number, but not a usable one.
    SizeOutOfRange(u64),
    /// A value was given to a policy that takes none.
    UnwantedValue(String),
}

impl fmt::Display for ReadPolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName(name) => write!(
                f,
                "no read policy is called \"{name}\"; give predictive, sync-adaptive, fixed=SIZE \
                 (as fixed=1M) or off; sync-adaptive and fixed=SIZE also with -striped behind"
            ),
            Self::BadSize(size) => write!(
                f,
                "the read policy \"fixed\" needs a size, not \"{size}\"; give it as fixed=1M or \
                 fixed=65536"
            ),
            Self::SizeOutOfRange(bytes) => write!(
                f,
                "the read policy \"fixed\" can't ask for {bytes} bytes at a time; give a size \
                 from 1 byte to 1G"
            ),
            Self::UnwantedValue(name) => {
                write!(f, "the read policy \"{name}\" takes no value; give just \"{name}\"")
            }
        }
    }
}

impl std::error::Error for ReadPolicyError {}

impl FromStr for ReadPolicy {
    type Err = ReadPolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(inner) = text.strip_suffix(STRIPED) {
            let inner = inner.parse::<Self>().ok().filter(Self::is_one_at_a_time);
            let unknown = || ReadPolicyError::UnknownName(text.to_owned());
            return inner.map(|inner| Self::Striped(Box::new(inner))).ok_or_else(unknown);
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let policy = match name {
            "fixed" => return fixed(value.unwrap_or_default()),
            "sync-adaptive" => Self::SyncAdaptive(AdaptiveParameters::default()),
            "predictive" => Self::Predictive(PredictiveParameters::default()),
            "off" => Self::Off,
            _ => return Err(ReadPolicyError::UnknownName(name.to_owned())),
        };
        if value.is_some() {
            return Err(ReadPolicyError::UnwantedValue(name.to_owned()));
        }
        Ok(policy)
    }
}

impl fmt::Display for ReadPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SyncAdaptive(_) => f.write_str("sync-adaptive"),
            Self::Fixed(bytes) => {
                let units = [("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];
                for (unit, unit_bytes) in units {
                    if bytes % unit_bytes == 0 {
                        return write!(f, "fixed={}{unit}", bytes / unit_bytes);
                    }
                }
                write!(f, "fixed={bytes}")
            }
            Self::Striped(inner) => write!(f, "{inner}{STRIPED}"),
            Self::Predictive(_) => f.write_str("predictive"),
            Self::Off => f.write_str("off"),
        }
    }
}

fn fixed(size: &str) -> Result<ReadPolicy, ReadPolicyError> {
    let bytes = size_bytes(size).ok_or_else(|| ReadPolicyError::BadSize(size.to_owned()))?;
    if bytes == 0 || bytes > FIXED_MAX_BYTES {
        return Err(ReadPolicyError::SizeOutOfRange(bytes));
    }
    Ok(ReadPolicy::Fixed(bytes))
}

/// Reads a size as `65536`, `64K`, `1M`, `1MiB` or `1G`; units are powers of 1024.
fn size_bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::{ReadPolicy, ReadPolicyError};

    #[test]
    fn every_policy_is_read_back_from_its_text() {
        let texts = [
            "sync-adaptive",
            "fixed=1M",
            "fixed=64K",
            "fixed=1000",
            "predictive",
            "off",
            "sync-adaptive-striped",
            "fixed=4M-striped",
        ];
        for text in texts {
            let policy: ReadPolicy = text.parse().unwrap();
            assert_eq!(policy.to_string(), text);
        }
        assert_eq!("fixed=65536".parse(), Ok(ReadPolicy::Fixed(65536)));
        assert_eq!("fixed=1MiB".parse(), Ok(ReadPolicy::Fixed(1 << 20)));
    }

    #[test]
    fn errors_say_what_to_give() {
        let error = |text: &str| text.parse::<ReadPolicy>().unwrap_err();
        assert!(error("adaptive").to_string().contains("sync-adaptive"));
        for text in ["off-striped", "predictive-striped", "fixed=1M-striped-striped", "-striped"] {
            assert_eq!(error(text), ReadPolicyError::UnknownName(text.into()));
        }
        assert_eq!(error("fixed"), ReadPolicyError::BadSize(String::new()));
        assert_eq!(error("fixed=1X"), ReadPolicyError::BadSize("1X".into()));
        assert_eq!(error("fixed=0"), ReadPolicyError::SizeOutOfRange(0));
        assert_eq!(error("fixed=99999999999G"), ReadPolicyError::BadSize("99999999999G".into()));
        assert_eq!(error("off=1"), ReadPolicyError::UnwantedValue("off".into()));
    }
}
