//! What a target stores beside array data: the form of each record, reading one, changing several at
//! once.

pub(crate) mod record;
pub(crate) mod stored;
pub(crate) mod update;
