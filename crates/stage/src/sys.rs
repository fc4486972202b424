//! System calls that no safe crate offers. The only unsafe code of the crate; decides nothing.

pub(crate) mod lease;
