//! Compares the database that the store uses (fjall) with its lower half (lsm-tree) under a log of our
//! own: `cargo run --release -p azekura-store --example key_value_engines [rounds] [creates in
//! thousands] [directory]`. The rounds alternate, each in a process of its own; prints medians. What
//! they mean stands in docs/decisions/0021-key-value-engine.md.
//!
//! One thread makes records like those of file creations: an entry (37 byte key, 24 byte value), an
//! inode (17, 120), the directory's record, and one of 64 answers. `grouped` is what the store does
//! behind its front journal, `single` is a commit without one.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fjall::compaction::Leveled;
use fjall::config::{CompressionPolicy, PartitioningPolicy, PinningPolicy};
use fjall::{
    CompressionType, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode,
};
use lsm_tree::config::{
    BloomConstructionPolicy, FilterPolicy, FilterPolicyEntry, RestartIntervalPolicy,
};
use lsm_tree::{
    AbstractTree as _, AnyTree, Cache, Config, DescriptorTable, SeqNo, SequenceNumberCounter,
};
use rustix::time::{ClockId, clock_gettime};

type Outcome<T> = Result<T, Box<dyn Error>>;
/// A key with its tree (0: lasting, 1: passing), and its new value.
type Changes = Vec<(usize, Vec<u8>, Vec<u8>)>;
/// A tree of which a memtable was sealed, and the last segment of the log that this one wants.
type Sealed = (usize, u64, File);

const LIMITS_BYTES: [u64; 2] = [8 << 20, 4 << 20];
const TABLE_BYTES: u64 = 16 << 20;
const BLOCK_CACHE_BYTES: u64 = 8 << 20;
const GROUP: u64 = 512;
const SEALED_MAX: usize = 2;

trait Engine: Sized {
    fn open(dir: &Path) -> Outcome<Self>;
    fn commit(&mut self, changes: &Changes) -> Outcome<()>;
    fn get(&self, tree: usize, key: &[u8]) -> Outcome<Option<usize>>;
    fn sync(&self) -> Outcome<()>;
    /// Whether sealed memtables wait for the disk.
    fn is_busy(&self) -> bool;
}

struct Fjall {
    db: Database,
    trees: [Keyspace; 2],
}

impl Engine for Fjall {
    fn open(dir: &Path) -> Outcome<Self> {
        let db = Database::builder(dir)
            .cache_size(BLOCK_CACHE_BYTES)
            .journal_compression(CompressionType::None)
            .manual_journal_persist(true)
            .max_journaling_size(64 << 20)
            .max_cached_files(Some(64))
            .worker_threads(1)
            .open()?;
        let options = || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(u64::MAX)
                .filter_block_pinning_policy(PinningPolicy::all(true))
                .index_block_pinning_policy(PinningPolicy::all(true))
                .filter_block_partitioning_policy(PartitioningPolicy::all(false))
                .index_block_partitioning_policy(PartitioningPolicy::all(false))
                .data_block_compression_policy(CompressionPolicy::disabled())
                .compaction_strategy(Arc::new(
                    Leveled::default().with_table_target_size(TABLE_BYTES),
                ))
        };
        let trees = [db.keyspace("lasting", options)?, db.keyspace("passing", options)?];
        Ok(Self { db, trees })
    }

    fn commit(&mut self, changes: &Changes) -> Outcome<()> {
        let mut batch = OwnedWriteBatch::with_capacity(self.db.clone(), changes.len())
            .durability(Some(PersistMode::Buffer));
        for (tree, key, value) in changes {
            batch.insert(&self.trees[*tree], key.as_slice(), value.as_slice());
        }
        batch.commit()?;
        for (tree, limit) in self.trees.iter().zip(LIMITS_BYTES) {
            if tree.tree.active_memtable().size() > limit {
                while tree.sealed_memtable_count() >= SEALED_MAX {
                    std::thread::sleep(Duration::from_millis(1));
                }
                tree.rotate_memtable()?;
            }
        }
        Ok(())
    }

    fn get(&self, tree: usize, key: &[u8]) -> Outcome<Option<usize>> {
        Ok(self.trees[tree].get(key)?.map(|value| value.len()))
    }

    fn sync(&self) -> Outcome<()> {
        Ok(self.db.persist(PersistMode::SyncData)?)
    }

    fn is_busy(&self) -> bool {
        self.trees.iter().any(|tree| tree.sealed_memtable_count() > 0)
    }
}

/// Two trees of lsm-tree, a thread that flushes and merges, and a log in segments: one for all that
/// came into the memtables since the last of them was sealed. A segment goes when no memtable wants it.
struct Lsm {
    dir: PathBuf,
    trees: Arc<[AnyTree; 2]>,
    seqno: SequenceNumberCounter,
    visible: SequenceNumberCounter,
    segment: File,
    end: u64,
    /// Segments by number, with the memtables of each tree that still want them.
    wanted: Arc<Mutex<BTreeMap<u64, [bool; 2]>>>,
    number: u64,
    worker: Option<(Sender<Sealed>, JoinHandle<()>)>,
}

fn open_tree(
    path: PathBuf,
    cache: &Arc<Cache>,
    files: &Arc<DescriptorTable>,
    (seqno, visible): (&SequenceNumberCounter, &SequenceNumberCounter),
) -> Outcome<AnyTree> {
    let bloom = FilterPolicyEntry::Bloom;
    let filters = FilterPolicy::new([
        bloom(BloomConstructionPolicy::FalsePositiveRate(0.0001)),
        bloom(BloomConstructionPolicy::BitsPerKey(10.0)),
    ]);
    Ok(Config::new(path, seqno.clone(), visible.clone())
        .use_cache(Arc::clone(cache))
        .use_descriptor_table(Some(Arc::clone(files)))
        .filter_policy(filters)
        .data_block_restart_interval_policy(RestartIntervalPolicy::new([10, 16]))
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_partitioning_policy(PartitioningPolicy::all(false))
        .index_block_partitioning_policy(PartitioningPolicy::all(false))
        .data_block_compression_policy(CompressionPolicy::disabled())
        .open()?)
}

fn segment_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("log.{number:08}"))
}

impl Lsm {
    fn insert(&self, changes: &Changes) {
        let seqno = self.seqno.next();
        for (tree, key, value) in changes {
            self.trees[*tree].insert(key.as_slice(), value.as_slice(), seqno);
        }
        self.visible.fetch_max(seqno + 1);
    }

    /// The changes of a segment, as far as it is whole.
    fn replay(&self, path: &Path) -> Outcome<()> {
        let bytes = std::fs::read(path)?;
        let mut rest = bytes.as_slice();
        let number = |bytes: &[u8]| u32::from_le_bytes(*bytes.first_chunk().unwrap_or(&[0; 4]));
        while rest.len() >= 12 {
            let length = number(&rest[8..]) as usize;
            let Some(mut record) = rest.get(12..12 + length).filter(|_| length > 0) else { break };
            if rest[..8] != xxhash_rust::xxh3::xxh3_64(record).to_le_bytes() {
                break;
            }
            let mut changes = Changes::new();
            while let Some((head, tail)) = record.split_at_checked(9) {
                let (key, tail) = tail.split_at(number(&head[1..]) as usize);
                let (value, tail) = tail.split_at(number(&head[5..]) as usize);
                changes.push((usize::from(head[0]), key.to_vec(), value.to_vec()));
                record = tail;
            }
            self.insert(&changes);
            rest = &rest[12 + length..];
        }
        Ok(())
    }

    fn begin_segment(&mut self, number: u64) -> Outcome<()> {
        self.segment = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(segment_path(&self.dir, number))?;
        (self.number, self.end) = (number, 0);
        if let Ok(mut wanted) = self.wanted.lock() {
            wanted.insert(number, [true; 2]);
        }
        Ok(())
    }

    fn seal(&mut self, tree: usize) -> Outcome<()> {
        while self.trees[tree].sealed_memtable_count() >= SEALED_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.trees[tree].rotate_memtable();
        let (last, segment) = (self.number, self.segment.try_clone()?);
        self.begin_segment(last + 1)?;
        if let Some((sender, _)) = &self.worker {
            sender.send((tree, last, segment))?;
        }
        Ok(())
    }
}

/// Brings a tree's sealed memtables to disk, merges its tables, and forgets the log up to `last`.
fn flush(
    (dir, trees, seqno): (&Path, &[AnyTree; 2], &SequenceNumberCounter),
    wanted: &Mutex<BTreeMap<u64, [bool; 2]>>,
    (tree, last, segment): Sealed,
) -> Outcome<()> {
    // As fjall does before it writes a table.
    segment.sync_data()?;
    let oldest: SeqNo = seqno.get().saturating_sub(1);
    let lock = trees[tree].get_flush_lock();
    trees[tree].flush(&lock, oldest)?;
    drop(lock);
    if let Ok(mut wanted) = wanted.lock() {
        for (_, by_tree) in wanted.range_mut(..=last) {
            by_tree[tree] = false;
        }
        while let Some(first) = wanted.first_entry().filter(|first| *first.get() == [false; 2]) {
            std::fs::remove_file(segment_path(dir, *first.key()))?;
            first.remove();
        }
    }
    let strategy = lsm_tree::compaction::Leveled::default().with_table_target_size(TABLE_BYTES);
    trees[tree].compact(Arc::new(strategy), oldest)?;
    Ok(())
}

impl Engine for Lsm {
    fn open(dir: &Path) -> Outcome<Self> {
        std::fs::create_dir_all(dir)?;
        let (seqno, visible) = (SequenceNumberCounter::default(), SequenceNumberCounter::default());
        let cache = Arc::new(Cache::with_capacity_bytes(BLOCK_CACHE_BYTES));
        let files = Arc::new(DescriptorTable::new(64));
        let open = |name| open_tree(dir.join(name), &cache, &files, (&seqno, &visible));
        let trees = Arc::new([open("lasting")?, open("passing")?]);
        for tree in trees.iter() {
            seqno.fetch_max(tree.get_highest_seqno().map_or(0, |highest| highest + 1));
        }
        visible.set(seqno.get());
        let mut segments: Vec<PathBuf> = std::fs::read_dir(dir)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.is_file())
            .collect();
        segments.sort();
        let wanted = Arc::new(Mutex::new(BTreeMap::new()));
        let mut lsm = Self {
            dir: dir.to_owned(),
            trees: Arc::clone(&trees),
            seqno: seqno.clone(),
            visible,
            segment: File::open(dir)?,
            end: 0,
            wanted: Arc::clone(&wanted),
            number: 0,
            worker: None,
        };
        let mut number = 0;
        for segment in &segments {
            lsm.replay(segment)?;
            let extension = segment.extension().and_then(|extension| extension.to_str());
            number = extension.map_or(Ok(0), str::parse)?;
            if let Ok(mut wanted) = wanted.lock() {
                wanted.insert(number, [true; 2]);
            }
        }
        lsm.begin_segment(number + 1)?;
        let (sender, receiver) = channel();
        let dir = dir.to_owned();
        let thread = std::thread::spawn(move || {
            while let Ok(work) = receiver.recv() {
                if let Err(error) = flush((&dir, &trees, &seqno), &wanted, work) {
                    eprintln!("cannot flush: {error}");
                }
            }
        });
        lsm.worker = Some((sender, thread));
        Ok(lsm)
    }

    fn commit(&mut self, changes: &Changes) -> Outcome<()> {
        let mut record = vec![0; 12];
        for (tree, key, value) in changes {
            record.push(*tree as u8);
            record.extend_from_slice(&(key.len() as u32).to_le_bytes());
            record.extend_from_slice(&(value.len() as u32).to_le_bytes());
            record.extend_from_slice(key);
            record.extend_from_slice(value);
        }
        let checksum = xxhash_rust::xxh3::xxh3_64(&record[12..]);
        let length = record.len() as u32 - 12;
        record[..8].copy_from_slice(&checksum.to_le_bytes());
        record[8..12].copy_from_slice(&length.to_le_bytes());
        self.segment.write_all_at(&record, self.end)?;
        self.end += record.len() as u64;
        self.insert(changes);
        for (tree, limit) in LIMITS_BYTES.into_iter().enumerate() {
            if self.trees[tree].active_memtable().size() > limit {
                self.seal(tree)?;
            }
        }
        Ok(())
    }

    fn get(&self, tree: usize, key: &[u8]) -> Outcome<Option<usize>> {
        Ok(self.trees[tree].get(key, SeqNo::MAX)?.map(|value| value.len()))
    }

    fn sync(&self) -> Outcome<()> {
        Ok(self.segment.sync_data()?)
    }

    fn is_busy(&self) -> bool {
        self.trees.iter().any(|tree| tree.sealed_memtable_count() > 0)
    }
}

impl Drop for Lsm {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.worker.take() {
            drop(sender);
            // It says itself what went wrong.
            let _ = thread.join();
        }
    }
}

fn entry_key(serial: u64) -> Vec<u8> {
    let mut key = b"e0123456789abcdef".to_vec();
    key.extend_from_slice(&serial.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key.extend_from_slice(format!("file.{serial:07}").as_bytes());
    key
}

fn inode_key(serial: u64) -> Vec<u8> {
    let mut key = b"iobjectid".to_vec();
    key.extend_from_slice(&serial.to_be_bytes());
    key
}

fn create(serial: u64, changes: &mut Changes) {
    changes.push((0, entry_key(serial), vec![7; 24]));
    changes.push((0, inode_key(serial), vec![7; 120]));
    changes.push((1, b"d0123456789abcdef".to_vec(), vec![7; 40]));
    changes.push((1, [b"r".as_slice(), &(serial % 64).to_be_bytes()].concat(), vec![7; 60]));
}

/// The last change of each key of a group of creations, as the store brings them to its database.
fn group(first: u64) -> Changes {
    let mut changes = Changes::new();
    (first..first + GROUP).for_each(|serial| create(serial, &mut changes));
    let newest: HashMap<(usize, Vec<u8>), Vec<u8>> =
        changes.into_iter().map(|(tree, key, value)| ((tree, key), value)).collect();
    newest.into_iter().map(|((tree, key), value)| (tree, key, value)).collect()
}

fn process_cpu_us() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

fn disk_mib(dir: &Path) -> Outcome<f64> {
    let mut mib = 0.0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let stat = entry.metadata()?;
        mib += if stat.is_dir() {
            disk_mib(&entry.path())?
        } else {
            std::os::unix::fs::MetadataExt::blocks(&stat) as f64 / 2048.0
        };
    }
    Ok(mib)
}

/// Waits until nothing goes on in the background.
fn settle(engine: &impl Engine) {
    let mut quiet = 0;
    while quiet < 20 {
        let before = process_cpu_us();
        std::thread::sleep(Duration::from_millis(20));
        let is_quiet = process_cpu_us() - before < 1000.0 && !engine.is_busy();
        quiet = if is_quiet { quiet + 1 } else { 0 };
    }
}

/// What the processor spends on commits, and how long they take, for each creation.
fn measure<E: Engine>(
    engine: &mut E,
    name: &str,
    count: u64,
    batches: impl Iterator<Item = Changes>,
) -> Outcome<()> {
    let (mut by_clock, mut slowest, cpu) = (Duration::ZERO, Duration::ZERO, process_cpu_us());
    let mut built_us = 0.0;
    let mut mark = process_cpu_us();
    for changes in batches {
        built_us += process_cpu_us() - mark;
        let began = Instant::now();
        engine.commit(&changes)?;
        by_clock += began.elapsed();
        slowest = slowest.max(began.elapsed());
        drop(changes);
        mark = process_cpu_us();
    }
    settle(engine);
    let cpu_us = (process_cpu_us() - cpu - built_us) / count as f64;
    println!("{name}: clock, us a create\t{:.3}", by_clock.as_secs_f64() * 1e6 / count as f64);
    println!("{name}: processor with background, us\t{cpu_us:.3}");
    println!("{name}: slowest commit, ms\t{:.3}", slowest.as_secs_f64() * 1e3);
    Ok(())
}

fn run<E: Engine>(dir: &Path, creates: u64) -> Outcome<()> {
    let mut engine = E::open(dir)?;
    let groups = creates / GROUP;
    let creates = groups * GROUP;
    measure(&mut engine, "grouped", creates, (0..groups).map(|at| group(at * GROUP)))?;
    println!("resident after it, MiB\t{:.1}", resident_mib());
    println!("on disk after it, MiB\t{:.1}", disk_mib(dir)?);
    let looks = 200_000;
    for (name, first) in
        [("get of an inode: processor, us", 0), ("get of nothing: processor, us", 1 << 40)]
    {
        let cpu = process_cpu_us();
        let mut found = 0;
        for i in 0..looks {
            let serial = first + i * 0x9e37_79b9 % creates;
            found += u64::from(engine.get(0, &inode_key(serial))?.is_some());
        }
        assert_eq!(found, if first == 0 { looks } else { 0 }, "{name}");
        println!("{name}\t{:.3}", (process_cpu_us() - cpu) / looks as f64);
    }
    let singles = 50_000;
    let single = |serial| {
        let mut changes = Changes::new();
        create(serial, &mut changes);
        changes
    };
    measure(&mut engine, "single", singles, (0..singles).map(|at| single(creates + at)))?;
    let mut syncs: Vec<f64> = Vec::new();
    for at in 0..20 {
        engine.commit(&group(creates + singles + at * GROUP))?;
        let began = Instant::now();
        engine.sync()?;
        syncs.push(began.elapsed().as_secs_f64() * 1e6);
    }
    syncs.sort_by(f64::total_cmp);
    println!("sync after a group, us\t{:.1}", syncs[syncs.len() / 2]);
    // As after a kill: what is in the memtables is in the log alone.
    drop(engine);
    let cpu = process_cpu_us();
    let engine = E::open(dir)?;
    println!("opening again: processor, ms\t{:.3}", (process_cpu_us() - cpu) / 1e3);
    let last = creates + singles + 20 * GROUP - 1;
    assert!(engine.get(0, &inode_key(last))?.is_some(), "the last commit is lost");
    Ok(())
}

fn compare(rounds: usize, creates: &str, parent: &Path) -> Outcome<()> {
    let mut rows: Vec<(String, [Vec<f64>; 2])> = Vec::new();
    for _ in 0..rounds {
        for (column, engine) in ["fjall", "lsm-tree"].into_iter().enumerate() {
            let dir = tempfile::tempdir_in(parent)?;
            let child = Command::new(std::env::current_exe()?)
                .args([engine, creates])
                .arg(dir.path())
                .output()?;
            std::io::stderr().write_all(&child.stderr)?;
            for line in String::from_utf8(child.stdout)?.lines() {
                let Some((name, value)) = line.split_once('\t') else { continue };
                let at = rows.iter().position(|row| row.0 == name).unwrap_or(rows.len());
                if at == rows.len() {
                    rows.push((name.to_owned(), [Vec::new(), Vec::new()]));
                }
                rows[at].1[column].push(value.parse()?);
            }
        }
    }
    println!("| | fjall | lsm-tree under our log | ratio |\n|---|---|---|---|");
    for (name, mut columns) in rows {
        let [fjall, lsm] = columns.each_mut().map(|values| {
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
        });
        println!("| {name} | {fjall:.3} | {lsm:.3} | {:.2} |", lsm / fjall);
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize, default: &str| {
        arguments.get(at).map_or_else(|| default.to_owned(), Clone::clone)
    };
    let dir = argument(2, &std::env::temp_dir().to_string_lossy());
    match argument(0, "5").as_str() {
        "fjall" => run::<Fjall>(Path::new(&dir), argument(1, "500").parse::<u64>()? * 1000),
        "lsm-tree" => run::<Lsm>(Path::new(&dir), argument(1, "500").parse::<u64>()? * 1000),
        rounds => compare(rounds.parse()?, &argument(1, "500"), Path::new(&dir)),
    }
}
