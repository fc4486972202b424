//! The store through its public API: what must hold for every caller.

mod coherence;
mod fixture;
mod full_disk;
mod identity;
mod key_values;
mod object_kv;
mod restart;
mod shards;
