//! One change of one key in the form in which the database takes it. Does no I/O.

use super::space::Space;

/// A stored value: cheap to clone, read as bytes.
pub type Value = fjall::Slice;

/// One change as the database takes it.
pub(crate) struct Change {
    pub(crate) space: Space,
    /// Stored form, with the space's byte.
    pub(crate) key: Value,
    /// `None` deletes.
    pub(crate) value: Option<Value>,
}

impl Change {
    /// Roughly what the change takes in memory and in the journal, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        change_bytes(&self.key, self.value.as_deref())
    }
}

/// Roughly what a change takes in memory and in the journal, in bytes.
pub(super) fn change_bytes(key: &[u8], value: Option<&[u8]>) -> u64 {
    const OVERHEAD: usize = 64;
    (key.len() + value.map_or(0, <[u8]>::len) + OVERHEAD) as u64
}
