//! The store through its public API: what must hold for every caller.

#[cfg(test)]
mod coherence;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod front;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod held;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod key_values;
#[cfg(test)]
mod lost;
#[cfg(test)]
mod object_kv;
#[cfg(test)]
mod old_target;
#[cfg(test)]
mod power;
#[cfg(test)]
mod reliance;
#[cfg(test)]
mod restart;
#[cfg(test)]
mod shards;
#[cfg(test)]
mod simulation;
