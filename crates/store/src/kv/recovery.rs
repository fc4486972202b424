//! What an opening finds in the front journal: the commits that the last process answered and did
//! not bring to the database. The marker in the database says which those are. It reads
//! the journal, and never writes records.

use std::collections::VecDeque;
use std::sync::Arc;

use azekura_proto::{Dependences, TargetId};

use super::database::{Database, Marker, read_marker};
use super::front::{Front, Opened};
use super::front_journal::FrontJournal;
use super::history::{HISTORY_KEY, History};
use super::overlay::{Pending, newest_changes};
use super::record::Changes;
use super::reliance;
use super::space::{Space, Tree};
use crate::disk::Directory;
use crate::error::StoreError;
use crate::free_space::FreeSpace;

/// Bounds of what goes to the database at once: batches, and bytes of their records.
const GROUP_BATCHES: usize = 512;
const GROUP_BYTES: usize = 512 * 1024;

/// Opens the front of the database of a target, and brings to the database what it still lacks: up to
/// the first commit that relies on another target, which may have lost that. What was committed from
/// there on stays pending. The commits from now on are of epoch `epoch`.
pub(crate) fn recover(
    target: TargetId,
    dir: &Arc<dyn Directory>,
    database: &dyn Database,
    epoch: u64,
    gauge: Arc<FreeSpace>,
) -> Result<Front, StoreError> {
    let damaged = |detail: &str| StoreError::Damaged {
        path: dir.path().to_path_buf(),
        detail: detail.to_owned(),
    };
    let known = read_marker(database, damaged)?;
    let mut journal = FrontJournal::open(Arc::clone(dir), known.is_some())?;
    let first = known.unwrap_or(Marker { epoch, seq: 0, end: 0 });
    let mut history = match database.get(Tree::Passing, HISTORY_KEY)? {
        None => History::new(first.epoch),
        Some(bytes) => History::from_bytes(&bytes)
            .ok_or_else(|| damaged("the list of epochs makes no sense"))?,
    };
    let mut marker = first;
    let mut tail = VecDeque::new();
    if known.is_some() {
        (marker, tail) = read_tail(&journal, database, &history, first)?;
    }
    let last =
        tail.back().map_or((marker.seq, marker.end), |batch: &Arc<Pending>| (batch.seq, batch.end));
    if last.0 > first.seq {
        let (path, batches, pending) = (journal.path().display(), last.0 - first.seq, tail.len());
        tracing::info!(%path, batches, pending, "commits recovered from the front journal");
    }
    journal.allocate(known.is_some())?;
    journal.go_on_at(last.1);
    if known.is_none() {
        database.commit(Vec::new(), marker)?;
    } else {
        history.begin(epoch, last.0);
    }
    database.note(HISTORY_KEY, &history.to_bytes())?;
    // Nothing of the new epoch may be durable before it is known that there is one.
    database.sync()?;
    Ok(Front::new(target, Opened { journal, history, marker, pending: tail }, gauge))
}

/// Reads the records that follow on the marker. Those that rely on nobody go to the database; gives the
/// marker that it has then, and the records from the first one that does rely on others.
fn read_tail(
    journal: &FrontJournal,
    database: &dyn Database,
    history: &History,
    mut marker: Marker,
) -> Result<(Marker, VecDeque<Arc<Pending>>), StoreError> {
    let mut tail = VecDeque::new();
    let mut read_to = marker;
    loop {
        let (mut group, next) = read_group(journal, history, read_to)?;
        if group.is_empty() {
            return Ok((marker, tail));
        }
        assert!(next.seq > read_to.seq, "records that lead backwards");
        read_to = next;
        if tail.is_empty() {
            let ready = group.iter().take_while(|batch| batch.relies_on.is_empty()).count();
            let rest = group.split_off(ready);
            if let Some(last) = group.last() {
                marker = Marker { epoch: last.epoch, seq: last.seq, end: last.end };
                let changes: Vec<&Changes> = group.iter().map(|batch| &batch.changes).collect();
                database.commit(newest_changes(&changes), marker)?;
            }
            group = rest;
        }
        tail.extend(group.into_iter().map(Arc::new));
    }
}

/// The records that follow on the marker, and the marker that they lead to. The first one that is
/// missing or not whole ends them: what comes after it was never answered, or is older.
fn read_group(
    journal: &FrontJournal,
    history: &History,
    mut marker: Marker,
) -> Result<(Vec<Pending>, Marker), StoreError> {
    let mut group = Vec::new();
    let mut bytes = 0;
    while group.len() < GROUP_BATCHES && bytes < GROUP_BYTES {
        let seq = marker.seq + 1;
        let epoch = history.epoch_of(seq);
        let Some((changes, end)) = journal.read(marker.end, epoch, seq)? else { break };
        bytes += changes.record_bytes();
        marker = Marker { epoch, seq, end };
        let at = end - changes.record_bytes() as u64;
        let relies_on = relies_on(&changes).ok_or_else(|| StoreError::Damaged {
            path: journal.path().to_path_buf(),
            detail: "what a commit relies on makes no sense".to_owned(),
        })?;
        group.push(Pending { epoch, seq, at, end, changes, relies_on });
    }
    Ok((group, marker))
}

/// What a commit carries that it relies on; `None` if that makes no sense.
fn relies_on(changes: &Changes) -> Option<Dependences> {
    let carried = changes.slots().iter().find(|slot| slot.space == Space::Reliance);
    let Some(slot) = carried else { return Some(Dependences::NONE) };
    changes.value(slot).and_then(reliance::decode)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;
    use std::path::Path;

    use tempfile::TempDir;

    use super::*;
    use crate::environment::Environment;
    use crate::kv::background::Sealer;
    use crate::kv::batch::Batch;
    use crate::kv::{KeyValues, KvSizes};

    /// Key-values without the applier: what is committed stays in the front until it is drained,
    /// and dropping them is like killing the process.
    struct Bare {
        // Dropped in this order.
        _sealer: Sealer,
        kv: Arc<KeyValues>,
        dir: TempDir,
    }

    fn open(dir: &Path) -> Result<KeyValues, StoreError> {
        let sizes = KvSizes { value_cache_bytes: 100_000, block_cache_bytes: 100_000 };
        let environment = Environment::system();
        let dir = environment.disk.open_dir(dir).unwrap();
        let gauge = FreeSpace::new(Arc::clone(&dir), Arc::clone(&environment.platform));
        KeyValues::open(&environment, (TargetId(0), dir), sizes, Arc::new(gauge))
    }

    impl Bare {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let environment = Environment::system();
            let target = environment.disk.open_dir(dir.path()).unwrap();
            environment.engine.create(&*target).unwrap();
            Self::open(dir)
        }

        fn open(dir: TempDir) -> Self {
            let kv = Arc::new(open(dir.path()).unwrap());
            Self { _sealer: Sealer::start(&kv).unwrap(), kv, dir }
        }

        fn close(self) -> TempDir {
            self.dir
        }

        fn killed(self, then: impl FnOnce(&Path)) -> Self {
            let dir = self.close();
            then(&dir.path().join("kv-front"));
            Self::open(dir)
        }

        fn put(&self, key: &[u8], value: &[u8]) {
            let mut batch = Batch::new();
            batch.put(Space::Inode, key, value);
            batch.put(Space::Reply, b"last", value);
            self.kv.commit(batch).unwrap();
        }

        fn put_numbers(&self, numbers: std::ops::Range<u32>) {
            for i in numbers {
                self.put(&i.to_be_bytes(), &i.to_be_bytes());
            }
        }

        fn get(&self, space: Space, key: &[u8]) -> Option<Vec<u8>> {
            self.kv.get(space, key).unwrap().map(|value| value.to_vec())
        }

        /// That there are the numbers below `end`, and nothing of the others.
        fn assert_numbers(&self, end: u32) {
            for i in 0..end + 50 {
                let value = (i < end).then(|| i.to_be_bytes().to_vec());
                assert_eq!(self.get(Space::Inode, &i.to_be_bytes()), value, "{i} of {end}");
            }
            let last = self.get(Space::Reply, b"last");
            assert_eq!(last, Some((end - 1).to_be_bytes().to_vec()));
        }
    }

    /// Writes into the record that begins with the `n`th key of the file.
    fn garble(path: &Path, number: u32) {
        let bytes = std::fs::read(path).unwrap();
        let mut key = vec![b'i'];
        key.extend_from_slice(&number.to_be_bytes());
        let at = bytes.windows(key.len()).position(|window| window == key).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&[0xee], at as u64 + 2).unwrap();
    }

    #[test]
    fn what_was_answered_is_there_after_a_kill_and_is_recovered_once() {
        let target = Bare::new();
        target.put_numbers(0..2000);
        assert!(target.kv.front().has_pending());
        target.assert_numbers(2000);
        let target = target.killed(|_| {});
        assert!(!target.kv.front().has_pending());
        target.assert_numbers(2000);
        // Killed before anything more was committed, and again after a few commits.
        let target = target.killed(|_| {});
        target.put_numbers(2000..2003);
        let target = target.killed(|_| {}).killed(|_| {});
        target.assert_numbers(2003);
    }

    #[test]
    fn a_bad_record_ends_the_recovery_and_what_follows_it_never_comes_back() {
        let target = Bare::new();
        target.put_numbers(0..1000);
        let target = target.killed(|path| garble(path, 700));
        target.assert_numbers(700);
        // New records, as long as the old ones, before those that lie behind the bad one.
        target.put_numbers(700..702);
        let target = target.killed(|_| {});
        target.assert_numbers(702);
    }

    #[test]
    fn a_truncated_journal_gives_what_is_left_of_it() {
        let target = Bare::new();
        target.put_numbers(0..1000);
        let target = target.killed(|path| {
            let bytes = std::fs::read(path).unwrap();
            let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
            let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(used as u64 - 3).unwrap();
        });
        target.assert_numbers(999);
        target.put_numbers(999..1100);
        target.killed(|_| {}).assert_numbers(1100);
    }

    #[test]
    fn records_that_the_database_has_are_not_applied_again() {
        let target = Bare::new();
        target.put(b"a", b"0");
        target.put(b"a", b"1");
        let journal = target.dir.path().join("kv-front");
        let old = std::fs::read(&journal).unwrap();
        target.kv.drain().unwrap();
        target.put(b"a", b"2");
        target.kv.drain().unwrap();
        // Only the record of the first value is left, as after a crash of the machine.
        let target = target.killed(|path| std::fs::write(path, &old).unwrap());
        assert_eq!(target.get(Space::Inode, b"a"), Some(b"2".to_vec()));
        target.put(b"a", b"3");
        target.kv.drain().unwrap();
        let target = target.killed(|path| std::fs::write(path, &old).unwrap());
        assert_eq!(target.get(Space::Inode, b"a"), Some(b"3".to_vec()));
    }

    #[test]
    fn a_batch_too_long_for_the_journal_keeps_its_place_in_the_order() {
        let target = Bare::new();
        for round in 0..3u8 {
            target.put(b"a", &[round]);
            target.put(b"a", &vec![round; 300_000]);
            assert_eq!(target.get(Space::Inode, b"a"), Some(vec![round; 300_000]));
            target.put(b"a", &[round, round]);
            assert_eq!(target.get(Space::Inode, b"a"), Some(vec![round, round]));
        }
        let target = target.killed(|_| {});
        assert_eq!(target.get(Space::Inode, b"a"), Some(vec![2, 2]));
        target.put(b"b", &vec![9; 300_000]);
        let target = target.killed(|_| {});
        assert_eq!(target.get(Space::Inode, b"b"), Some(vec![9; 300_000]));
    }

    #[test]
    fn commits_help_themselves_when_too_much_is_pending() {
        let target = Bare::new();
        target.put_numbers(0..20_000);
        target.assert_numbers(20_000);
        // Long records fill the journal long before there are many of them.
        for i in 0..200u8 {
            target.put(&[i], &vec![i; 100_000]);
        }
        for i in 0..200u8 {
            assert_eq!(target.get(Space::Inode, &[i]), Some(vec![i; 100_000]));
        }
        let target = target.killed(|_| {});
        assert_eq!(target.get(Space::Inode, &[199]), Some(vec![199; 100_000]));
        assert_eq!(target.get(Space::Inode, &7u32.to_be_bytes()), Some(vec![0, 0, 0, 7]));
    }

    #[test]
    fn a_scan_sees_what_is_pending_and_only_drains_its_own_space() {
        let target = Bare::new();
        target.put_numbers(0..300);
        let count = |space| {
            let mut count = 0;
            let visit = |_: &[u8], _| {
                count += 1;
                std::ops::ControlFlow::Continue(())
            };
            target.kv.scan_visit(space, b"", None, visit).unwrap();
            count
        };
        assert_eq!(count(Space::Entry), 0);
        assert!(target.kv.front().has_pending());
        assert_eq!(count(Space::Inode), 300);
        assert!(!target.kv.front().has_pending());
        let mut batch = Batch::new();
        batch.delete(Space::Inode, &7u32.to_be_bytes());
        target.kv.commit(batch).unwrap();
        assert_eq!(count(Space::Inode), 299);
    }

    #[test]
    fn a_missing_journal_is_damage() {
        let dir = Bare::new().close();
        std::fs::remove_file(dir.path().join("kv-front")).unwrap();
        assert!(matches!(open(dir.path()), Err(StoreError::Damaged { .. })));
        assert!(!dir.path().join("kv-front").exists());
    }
}
