//! Values in memory, in front of the database. Owns the rule that makes the cache exact: a read
//! puts what it found into the cache only if no write of the same stripe began or ended since the
//! read began, and a write does so only if it was alone in its stripe. So a value that was
//! replaced can never come back. Does no I/O.

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use super::change::{Change, Value};

const STRIPES: usize = 256;
/// Larger values stay outside.
const VALUE_BYTES_MAX: usize = 16 * 1024;
/// What an entry takes beside key and value, in bytes.
const ENTRY_OVERHEAD_BYTES: u64 = 112;
/// For sizing the tables only.
const ENTRY_BYTES_TYPICAL: u64 = 256;

#[derive(Clone)]
struct Weight;

impl Weighter<Value, Option<Value>> for Weight {
    fn weight(&self, key: &Value, value: &Option<Value>) -> u64 {
        let value_bytes = value.as_ref().map_or(0, |value| value.len() as u64);
        key.len() as u64 + value_bytes + ENTRY_OVERHEAD_BYTES
    }
}

#[derive(Default, Clone, Copy)]
struct Stripe {
    /// Changes at the beginning and at the end of every write.
    version: u64,
    writers: u32,
}

/// The cache. `None` stands for a key that is known to be absent.
pub(crate) struct ValueCache {
    values: Cache<Value, Option<Value>, Weight, DefaultHashBuilder>,
    stripes: Box<[Mutex<Stripe>]>,
    hasher: DefaultHashBuilder,
}

/// What the cache knows of a key.
pub(crate) enum Known {
    Value(Value),
    /// The database has no value for it.
    Absent,
    Nothing,
}

/// A read that missed, from before it asked the database.
pub(crate) struct Miss {
    stripe: usize,
    /// `None` if a write was under way.
    version: Option<u64>,
}

/// A write that is under way.
pub(crate) struct Writing {
    /// Its stripes, and the version that each had after the start.
    stripes: Vec<(usize, u64)>,
    /// Its cached keys by stripe, with their new values.
    changes: Vec<(usize, Value, Option<Value>)>,
}

impl ValueCache {
    pub(crate) fn new(bytes: u64) -> Self {
        let items = (bytes / ENTRY_BYTES_TYPICAL).max(64) as usize;
        let hasher = DefaultHashBuilder::default();
        let options = OptionsBuilder::new()
            .estimated_items_capacity(items)
            .weight_capacity(bytes)
            .shards(16)
            .build();
        let values = match options {
            Ok(options) => Cache::with_options(
                options,
                Weight,
                hasher.clone(),
                quick_cache::sync::DefaultLifecycle::default(),
            ),
            // Only missing sizes are refused, and both are given.
            Err(_) => Cache::with(
                items,
                bytes,
                Weight,
                hasher.clone(),
                quick_cache::sync::DefaultLifecycle::default(),
            ),
        };
        let stripes = (0..STRIPES).map(|_| Mutex::default()).collect();
        Self { values, stripes, hasher }
    }

    /// What is known of `key`.
    pub(crate) fn lookup(&self, key: &[u8]) -> Known {
        match self.values.get(key) {
            Some(Some(value)) => Known::Value(value),
            Some(None) => Known::Absent,
            None => Known::Nothing,
        }
    }

    pub(crate) fn begin_read(&self, key: &[u8]) -> Miss {
        let stripe = self.stripe_of(key);
        let state = *self.stripes[stripe].lock();
        Miss { stripe, version: (state.writers == 0).then_some(state.version) }
    }

    /// Keeps what a read found in the database, unless it may be old by now.
    pub(crate) fn finish_read(&self, miss: &Miss, key: &[u8], value: Option<&Value>) {
        let Some(version) = miss.version else { return };
        if value.is_some_and(|value| value.len() > VALUE_BYTES_MAX) {
            return;
        }
        // Copied, since the database's value would keep a whole block in memory.
        let entry = (Value::from(key), value.map(|value| Value::from(&**value)));
        let state = self.stripes[miss.stripe].lock();
        if state.version == version && state.writers == 0 {
            self.values.insert(entry.0, entry.1);
        }
    }

    pub(crate) fn begin_write(&self, changes: &[Change]) -> Writing {
        let mut changes: Vec<_> = changes
            .iter()
            .filter(|change| change.space.is_cached())
            .map(|change| (self.stripe_of(&change.key), change.key.clone(), change.value.clone()))
            .collect();
        changes.sort_unstable_by_key(|change| change.0);
        let mut stripes: Vec<(usize, u64)> = Vec::with_capacity(changes.len());
        for change in &changes {
            if stripes.last().is_none_or(|last| last.0 != change.0) {
                let mut state = self.stripes[change.0].lock();
                state.version += 1;
                state.writers += 1;
                stripes.push((change.0, state.version));
            }
        }
        Writing { stripes, changes }
    }

    /// Ends a write that the database took (`done`) or refused.
    pub(crate) fn finish_write(&self, writing: Writing, done: bool) {
        let mut changes = writing.changes.into_iter().peekable();
        for (stripe, version) in writing.stripes {
            let mut state = self.stripes[stripe].lock();
            let alone = state.version == version && state.writers == 1;
            while let Some((_, key, value)) = changes.next_if(|change| change.0 == stripe) {
                match value {
                    Some(value) if done && alone && value.len() <= VALUE_BYTES_MAX => {
                        self.values.insert(key, Some(value));
                    }
                    _ => {
                        self.values.remove(&*key);
                    }
                }
            }
            assert!(state.writers > 0, "a write ended that had not begun");
            state.version += 1;
            state.writers -= 1;
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        for stripe in &self.stripes {
            stripe.lock().version += 1;
        }
        self.values.clear();
    }

    fn stripe_of(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize % STRIPES
    }
}
