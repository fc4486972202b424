//! Losses of power and of the process at any moment, under seeds: what was synced is there, and the
//! key-values are those after some number of whole batches, in their order. No data are missed that may
//! be gone.

use std::collections::BTreeMap;

use azekura_store::{Batch, Space, Store};

use crate::fixture::{get, oid};
use crate::simulation::{Random, Simulated};

const SEEDS: u64 = 320;
/// Losses that a seed's target goes through.
const LOSSES: u64 = 4;
const KEYS: u64 = 40;
const FILES: u64 = 6;
const FILE_BYTES: usize = 20_000;
const SPACES: [Space; 3] = [Space::Inode, Space::Entry, Space::Reply];

/// One change of the key-values: a space, a key, and the new value.
type Change = (usize, u64, Option<Vec<u8>>);

/// What a shard's file may hold.
#[derive(Clone, Default)]
struct File {
    synced: Option<Vec<u8>>,
    /// Which of the synced bytes were written or cut since.
    touched: Vec<bool>,
    now: Vec<u8>,
}

/// All that was done to a target.
#[derive(Default)]
struct History {
    /// The batches, in their order; of the last ones it may be unknown whether they were made.
    batches: Vec<Vec<Change>>,
    /// So many of them were answered, and so many were synced.
    answered: usize,
    synced: usize,
    files: BTreeMap<u64, File>,
}

impl History {
    /// The key-values after the first `count` batches.
    fn values(&self, count: usize) -> BTreeMap<(usize, u64), Vec<u8>> {
        let mut values = BTreeMap::new();
        for (space, key, value) in self.batches[..count].iter().flatten() {
            match value {
                Some(value) => values.insert((*space, *key), value.clone()),
                None => values.remove(&(*space, *key)),
            };
        }
        values
    }
}

/// One random step. Fails when the power is gone.
fn step(store: &Store, history: &mut History, random: &mut Random) -> Result<(), ()> {
    let gone = |_| ();
    match random.below(100) {
        0..60 => commit(store, history, random),
        60..70 => store.pass().map_err(gone),
        70..75 => {
            let answered = history.answered;
            store.sync().map_err(gone)?;
            history.synced = answered;
            Ok(())
        }
        75..86 => write_file(store, history, random),
        86..94 => sync_file(store, history, random),
        94..97 => cut_file(store, history, random),
        97 => remove_file(store, history, random),
        _ => store.note_shard_lengths().map_err(gone),
    }
}

/// Bytes that no other batch has: else what is left of two of them could make up a third.
fn noise(bytes: usize, random: &mut Random) -> Vec<u8> {
    let word = random.draw();
    let words = (0..=bytes as u64 / 8).flat_map(|at| word.wrapping_add(at).to_le_bytes());
    words.take(bytes).collect()
}

fn commit(store: &Store, history: &mut History, random: &mut Random) -> Result<(), ()> {
    let number = history.batches.len() as u64 + 1;
    let mut changes: Vec<Change> = (0..=random.below(3))
        .map(|_| {
            let (space, key) = (random.below(3) as usize, random.below(KEYS));
            let long = if random.below(60) == 0 { 150_000 } else { 300 };
            let bytes = random.below(long) as usize;
            (space, key, (random.below(4) > 0).then(|| noise(bytes, random)))
        })
        .collect();
    // Says how many batches there are.
    changes.push((0, KEYS, Some(number.to_be_bytes().to_vec())));
    let mut batch = Batch::new();
    for (space, key, value) in &changes {
        match value {
            Some(value) => batch.put(SPACES[*space], &key.to_be_bytes(), value),
            None => batch.delete(SPACES[*space], &key.to_be_bytes()),
        }
    }
    history.batches.push(changes);
    store.commit(batch).map_err(|_| ())?;
    history.answered = history.batches.len();
    Ok(())
}

fn write_file(store: &Store, history: &mut History, random: &mut Random) -> Result<(), ()> {
    let serial = random.below(FILES);
    let file = history.files.entry(serial).or_default();
    let offset = random.below(FILE_BYTES as u64) as usize;
    let length = 1 + random.below(6000) as usize;
    let byte = random.draw() as u8;
    let end = offset + length;
    file.now.resize(file.now.len().max(end), 0);
    file.now[offset..end].fill(byte);
    let synced = file.touched.len();
    file.touched[offset.min(synced)..end.min(synced)].fill(true);
    let shard = store.shard_create(oid(serial), 0).map_err(|_| ())?;
    shard.write_at(&vec![byte; length], offset as u64).map_err(|_| ())
}

fn cut_file(store: &Store, history: &mut History, random: &mut Random) -> Result<(), ()> {
    let serial = random.below(FILES);
    let file = history.files.entry(serial).or_default();
    let bytes = random.below(file.now.len() as u64 + 1) as usize;
    file.now.truncate(bytes);
    file.touched.truncate(bytes);
    if let Some(synced) = &mut file.synced {
        synced.truncate(bytes);
    }
    let Some(shard) = store.shard(oid(serial), 0).map_err(|_| ())? else { return Ok(()) };
    shard.truncate(bytes as u64).map_err(|_| ())
}

fn remove_file(store: &Store, history: &mut History, random: &mut Random) -> Result<(), ()> {
    let serial = random.below(FILES);
    history.files.insert(serial, File::default());
    store.shard_remove(oid(serial), 0).map(drop).map_err(|_| ())
}

fn sync_file(store: &Store, history: &mut History, random: &mut Random) -> Result<(), ()> {
    let serial = random.below(FILES);
    let Some(shard) = store.shard(oid(serial), 0).map_err(|_| ())? else { return Ok(()) };
    shard.sync(random.below(2) == 0).map_err(|_| ())?;
    let file = history.files.entry(serial).or_default();
    file.synced = Some(file.now.clone());
    file.touched = vec![false; file.now.len()];
    Ok(())
}

/// That the store holds what it must; the history then ends where the store does.
fn check(store: &Store, history: &mut History, at_least: usize, seed: u64) {
    let counter = get(store, SPACES[0], &KEYS.to_be_bytes());
    let count = counter.map_or(0, |value| u64::from_be_bytes(value.try_into().unwrap())) as usize;
    let attempted = history.batches.len();
    assert!(
        (at_least..=attempted).contains(&count),
        "seed {seed}: {count} batches of {attempted}, and {at_least} must be there"
    );
    let values = history.values(count);
    for (index, space) in SPACES.into_iter().enumerate() {
        let expected: Vec<_> = values
            .range((index, 0)..=(index, u64::MAX))
            .map(|((_, key), value)| (key.to_be_bytes().to_vec(), value.clone()))
            .collect();
        for (key, value) in &expected {
            assert!(get(store, space, key).as_ref() == Some(value), "seed {seed}: {space:?}");
        }
        let listed = store.scan(space, b"", None, usize::MAX).unwrap();
        let listed: Vec<_> = listed.into_iter().map(|(key, value)| (key, value.to_vec())).collect();
        assert!(listed == expected, "seed {seed}: a listing of {space:?}");
    }
    history.batches.truncate(count);
    history.answered = count;
}

fn read_file(store: &Store, serial: u64) -> Option<Vec<u8>> {
    let shard = store.shard(oid(serial), 0).unwrap()?;
    let mut bytes = vec![0; shard.stat().unwrap().bytes as usize];
    assert_eq!(shard.read_at(&mut bytes, 0).unwrap(), bytes.len());
    Some(bytes)
}

fn check_files(store: &Store, history: &mut History, is_power_loss: bool, seed: u64) {
    for (serial, file) in &mut history.files {
        let found = read_file(store, *serial).unwrap_or_default();
        if !is_power_loss {
            assert!(found == file.now, "seed {seed}: file {serial} after a kill");
        }
        if let Some(synced) = &file.synced {
            assert!(found.len() >= synced.len(), "seed {seed}: the length of file {serial}");
            let kept = synced.iter().zip(&found).zip(&file.touched);
            let lost = kept.filter(|((synced, found), touched)| !**touched && synced != found);
            assert_eq!(lost.count(), 0, "seed {seed}: bytes of file {serial} that were synced");
        }
        file.now = found;
    }
    let mut visit = |shard, noted, found| {
        panic!("seed {seed}: {shard:?} has {found} bytes and {noted} are missed");
    };
    store.shard_find_lost(&[], None, usize::MAX, &mut visit).unwrap();
}

/// Opens the target; the power may go meanwhile, and again.
fn open(simulated: &Simulated, seed: u64) -> Store {
    loop {
        let run = simulated.disk.runs();
        match simulated.open() {
            Ok(store) => return store,
            Err(error) => assert_ne!(simulated.disk.runs(), run, "seed {seed}: {error}"),
        }
    }
}

/// Lets a target go through random work and losses; gives how many batches were left each time.
fn run(seed: u64) -> Vec<usize> {
    let simulated = Simulated::new(seed);
    let mut random = Random(seed ^ 0x5eed);
    let mut history = History::default();
    let mut left = Vec::new();
    simulated.disk.cut_power_after(random.below(600));
    while let Err(error) = simulated.create() {
        assert_eq!(simulated.disk.runs(), 1, "seed {seed}: {error}");
    }
    for _ in 0..LOSSES {
        let is_power_loss = random.below(5) > 0;
        let run = simulated.disk.runs();
        // Now and then already while the target is being opened.
        simulated.disk.cut_power_after(if is_power_loss { random.below(300) } else { u64::MAX });
        let mut store = open(&simulated, seed);
        for _ in 0..random.below(250) {
            if simulated.disk.runs() != run {
                break;
            }
            if step(&store, &mut history, &mut random).is_err() {
                assert_ne!(simulated.disk.runs(), run, "seed {seed}: refused without a loss");
            } else if random.below(100) == 0 {
                drop(store);
                store = open(&simulated, seed);
            }
        }
        if is_power_loss && simulated.disk.runs() == run {
            simulated.disk.cut_power();
        } else if !is_power_loss {
            simulated.disk.kill();
        }
        drop(store);
        let store = open(&simulated, seed);
        let at_least = if is_power_loss { history.synced } else { history.answered };
        check(&store, &mut history, at_least, seed);
        check_files(&store, &mut history, is_power_loss, seed);
        left.push(history.answered);
    }
    left
}

#[test]
fn what_was_synced_survives_any_loss_of_power_and_what_was_answered_any_kill() {
    let mut batches = 0;
    for seed in 0..SEEDS {
        let left = run(seed);
        assert_eq!(left.len() as u64, LOSSES);
        batches += left.iter().sum::<usize>();
    }
    // Else the losses came before anything was done.
    assert!(batches as u64 > SEEDS * LOSSES * 10, "{batches}");
}

#[test]
fn a_seed_always_gives_the_same_run() {
    for seed in [3, 77, 1_000_003] {
        assert_eq!(run(seed), run(seed));
    }
}
