//! Object classes: over how many targets an object is sharded. Owns the codes that go into object
//! ids; a code, once given, is never given another meaning. Replicated and erasure-coded classes
//! will take the codes from 0x40 up.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Over how many targets an object is sharded (the DAOS names).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum ObjectClass {
    /// One target.
    S1,
    /// Two targets.
    S2,
    /// Four targets.
    S4,
    /// Eight targets.
    S8,
    /// Sixteen targets.
    S16,
    /// Thirty-two targets.
    S32,
    /// All targets of the pool.
    SX,
}

impl ObjectClass {
    /// Every class, narrowest first.
    pub const ALL: [Self; 7] =
        [Self::S1, Self::S2, Self::S4, Self::S8, Self::S16, Self::S32, Self::SX];

    /// The byte that stands for the class in an object id.
    pub const fn code(self) -> u8 {
        match self {
            Self::S1 => 1,
            Self::S2 => 2,
            Self::S4 => 3,
            Self::S8 => 4,
            Self::S16 => 5,
            Self::S32 => 6,
            Self::SX => 0x3f,
        }
    }

    /// The class that a byte of an object id stands for.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.code() == code)
    }

    /// The number of shards in a pool of `targets` targets: never more than there are targets.
    pub fn shards(self, targets: u16) -> u16 {
        let wanted = match self {
            Self::S1 => 1,
            Self::S2 => 2,
            Self::S4 => 4,
            Self::S8 => 8,
            Self::S16 => 16,
            Self::S32 => 32,
            Self::SX => targets,
        };
        wanted.min(targets).max(1)
    }

    /// The name as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::S1 => "S1",
            Self::S2 => "S2",
            Self::S4 => "S4",
            Self::S8 => "S8",
            Self::S16 => "S16",
            Self::S32 => "S32",
            Self::SX => "SX",
        }
    }
}

impl fmt::Display for ObjectClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ObjectClass {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|class| class.name().eq_ignore_ascii_case(text))
            .ok_or("an object class is one of S1, S2, S4, S8, S16, S32, SX")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_lead_back_to_their_class() {
        for class in ObjectClass::ALL {
            assert_eq!(ObjectClass::from_code(class.code()), Some(class));
            assert_eq!(class.name().parse(), Ok(class));
        }
    }

    #[test]
    fn an_object_never_has_more_shards_than_the_pool_has_targets() {
        assert_eq!(ObjectClass::S8.shards(3), 3);
        assert_eq!(ObjectClass::SX.shards(12), 12);
        assert_eq!(ObjectClass::S2.shards(12), 2);
    }
}
