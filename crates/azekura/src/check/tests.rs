use azekura_proto::attr::{FileKind, Inheritance};
use azekura_proto::message::{DirShardStat, ScanItem};
use azekura_proto::pool_map::EngineEntry;
use azekura_proto::transaction::{Entry, TransactionId};
use azekura_proto::{Attr, ContainerId, ObjectClass, Oid, Placement, PoolId, PoolMap, TargetId};

use super::analysis::{Paths, analyse, orphans};
use super::snapshot::Snapshot;

const TARGETS: u16 = 4;

fn placement() -> Placement {
    let engines = vec![EngineEntry { addresses: Vec::new() }];
    Placement::of(&PoolMap::deal(PoolId([1; 16]), "p".to_owned(), engines, &[TARGETS]))
}

fn oid(serial: u64) -> Oid {
    Oid::new(ContainerId(1), ObjectClass::SX, TargetId((serial % 4) as u16), serial)
}

/// A container under construction: `/dir/file`, with everything in order.
struct Builder {
    snapshot: Snapshot,
}

impl Builder {
    fn sound() -> Self {
        let mut builder = Self { snapshot: Snapshot::empty(oid(1), placement()) };
        builder.inode(oid(1), FileKind::Directory, 1, Some(oid(1)));
        builder.inode(oid(2), FileKind::Directory, 1, Some(oid(1)));
        builder.inode(oid(3), FileKind::Regular, 1, None);
        builder.entry(oid(1), "dir", oid(2), FileKind::Directory);
        builder.entry(oid(2), "file", oid(3), FileKind::Regular);
        builder.data(oid(3), 0, 100);
        builder
    }

    fn inode(&mut self, oid: Oid, kind: FileKind, nlink: u32, parent: Option<Oid>) {
        let inheritance = Some(Inheritance::default());
        let attr = Attr {
            oid,
            nlink,
            chunk_bytes: 1 << 20,
            inheritance,
            parent,
            ..azekura_testkit::attr(kind)
        };
        self.snapshot.add(oid.home(), ScanItem::Inode { attr, orphan: nlink == 0 });
    }

    /// An entry where it belongs, counted in its shard.
    fn entry(&mut self, dir: Oid, name: &str, oid: Oid, kind: FileKind) {
        let target = placement().entry_target(dir, name.as_bytes());
        self.uncounted_entry(target, dir, name, oid, kind);
        let stat = self.snapshot.dir_shards.entry((dir, target)).or_default();
        stat.entries += 1;
        stat.subdirs += u32::from(kind == FileKind::Directory);
    }

    fn uncounted_entry(
        &mut self,
        target: TargetId,
        dir: Oid,
        name: &str,
        oid: Oid,
        kind: FileKind,
    ) {
        let entry = Entry { oid, kind };
        let item = ScanItem::Entry { dir, name: name.as_bytes().to_vec(), entry };
        self.snapshot.add(target, item);
    }

    fn data(&mut self, oid: Oid, shard: u16, bytes: u64) {
        let target = placement().shard_target(oid, shard);
        self.snapshot.add(target, ScanItem::DataShard { oid, shard, bytes });
    }

    fn kinds(&self) -> Vec<&'static str> {
        analyse(&self.snapshot).iter().map(super::finding::Finding::kind).collect()
    }
}

#[test]
fn a_sound_container_has_no_findings() {
    let mut builder = Builder::sound();
    // A second link, a striped file and a file that is open without a name are all in order.
    builder.inode(oid(5), FileKind::Regular, 2, None);
    builder.entry(oid(1), "one", oid(5), FileKind::Regular);
    builder.entry(oid(2), "two", oid(5), FileKind::Regular);
    builder.inode(oid(6), FileKind::Regular, 0, None);
    builder.data(oid(6), 0, 7);
    assert_eq!(analyse(&builder.snapshot), []);
    assert_eq!(orphans(&builder.snapshot), [oid(6)]);
}

#[test]
fn entries_that_lead_nowhere_are_found() {
    let mut builder = Builder::sound();
    builder.entry(oid(2), "ghost", oid(9), FileKind::Regular);
    assert_eq!(builder.kinds(), ["entry-without-inode"]);
    builder.entry(oid(8), "adrift", oid(3), FileKind::Regular);
    assert_eq!(builder.kinds(), ["entry-without-directory", "entry-without-inode"]);
}

#[test]
fn an_entry_that_leads_to_a_removed_file_leads_nowhere() {
    let mut builder = Builder::sound();
    builder.inode(oid(9), FileKind::Regular, 0, None);
    builder.entry(oid(2), "ghost", oid(9), FileKind::Regular);
    assert_eq!(builder.kinds(), ["entry-without-inode"]);
}

#[test]
fn an_entry_of_another_type_or_in_another_place_is_found() {
    let mut builder = Builder::sound();
    builder.inode(oid(5), FileKind::Fifo, 1, None);
    builder.entry(oid(2), "pipe", oid(5), FileKind::Regular);
    assert_eq!(builder.kinds(), ["entry-of-wrong-kind"]);
    let right = placement().entry_target(oid(2), b"astray");
    let wrong = TargetId((right.0 + 1) % TARGETS);
    builder.uncounted_entry(wrong, oid(2), "astray", oid(3), FileKind::Regular);
    assert!(builder.kinds().contains(&"misplaced-entry"));
}

#[test]
fn wrong_link_counts_and_lost_inodes_are_told_apart() {
    let mut builder = Builder::sound();
    builder.inode(oid(5), FileKind::Regular, 3, None);
    builder.entry(oid(1), "one", oid(5), FileKind::Regular);
    assert_eq!(builder.kinds(), ["wrong-link-count"]);
    builder.inode(oid(6), FileKind::Symlink, 1, None);
    builder.inode(oid(7), FileKind::Directory, 1, Some(oid(1)));
    assert_eq!(builder.kinds(), ["lost-inode", "lost-inode", "wrong-link-count"]);
}

#[test]
fn a_directory_has_one_name_and_knows_who_is_above_it() {
    let mut builder = Builder::sound();
    builder.inode(oid(5), FileKind::Directory, 1, Some(oid(2)));
    builder.entry(oid(1), "moved", oid(5), FileKind::Directory);
    assert_eq!(builder.kinds(), ["wrong-parent"]);
    builder.entry(oid(2), "here too", oid(5), FileKind::Directory);
    let findings = analyse(&builder.snapshot);
    assert_eq!(findings.len(), 1);
    // The name that the parent pointer agrees with stays.
    assert_eq!(findings[0].entry().map(|at| at.name.as_slice()), Some(&b"moved"[..]));
    builder.entry(oid(2), "root", oid(1), FileKind::Directory);
    assert_eq!(builder.kinds(), ["surplus-name", "surplus-name"]);
}

#[test]
fn a_loop_is_named_once() {
    let mut builder = Builder::sound();
    builder.inode(oid(5), FileKind::Directory, 1, Some(oid(6)));
    builder.inode(oid(6), FileKind::Directory, 1, Some(oid(5)));
    builder.entry(oid(6), "a", oid(5), FileKind::Directory);
    builder.entry(oid(5), "b", oid(6), FileKind::Directory);
    builder.inode(oid(7), FileKind::Directory, 1, Some(oid(5)));
    builder.entry(oid(5), "below", oid(7), FileKind::Directory);
    assert_eq!(builder.kinds(), ["loop"]);
    let findings = analyse(&builder.snapshot);
    let paths = Paths::of(&builder.snapshot);
    let shown = findings[0].entry().map(|at| paths.of_entry(at)).unwrap();
    assert!(shown.contains("..."), "{shown}");
}

#[test]
fn shards_that_count_wrongly_are_found() {
    let mut builder = Builder::sound();
    let target = placement().entry_target(oid(2), b"file");
    builder.snapshot.dir_shards.insert((oid(2), target), DirShardStat::default());
    builder.snapshot.dir_shards.insert((oid(9), TargetId(0)), DirShardStat::default());
    assert_eq!(builder.kinds(), ["shard-without-directory", "wrong-shard-count"]);
    builder.snapshot.dir_shards.remove(&(oid(2), target));
    assert_eq!(builder.kinds(), ["shard-without-directory", "wrong-shard-count"]);
}

#[test]
fn data_that_belong_to_no_file_are_found() {
    let mut builder = Builder::sound();
    builder.data(oid(9), 2, 10);
    builder.data(oid(2), 0, 10);
    assert_eq!(builder.kinds(), ["data-without-inode", "data-without-inode"]);
    let mut builder = Builder::sound();
    builder.data(oid(3), 1, 10);
    assert_eq!(builder.kinds(), ["hidden-data"]);
    let mut builder = Builder::sound();
    builder.snapshot.add(
        TargetId((oid(3).home().0 + 1) % TARGETS),
        ScanItem::DataShard { oid: oid(3), shard: 0, bytes: 1 },
    );
    assert_eq!(builder.kinds(), ["misplaced-data"]);
}

#[test]
fn data_that_are_lost_are_found_while_their_object_is_there() {
    let mut builder = Builder::sound();
    let array = Oid::with_user_bits(ContainerId(1), 7, ObjectClass::S1, TargetId(0), 99);
    for oid in [oid(3), oid(9), array] {
        let item = ScanItem::LostData { oid, shard: 0, noted: 9, found: 3 };
        builder.snapshot.add(TargetId(3), item);
    }
    assert_eq!(builder.kinds(), ["lost-data", "lost-data"]);
    let detail = analyse(&builder.snapshot)[0].detail();
    assert!(detail.contains("3 bytes are there of 9 in shard 0 on target 3"), "{detail}");
}

#[test]
fn arrays_of_the_object_api_need_no_inode() {
    let mut builder = Builder::sound();
    let array = Oid::with_user_bits(ContainerId(1), 7, ObjectClass::S1, TargetId(0), 99);
    builder.data(array, 0, 10);
    assert_eq!(analyse(&builder.snapshot), []);
}

#[test]
fn a_missing_root_and_an_unfinished_transaction_are_found() {
    let mut builder = Builder::sound();
    builder.snapshot.inodes.remove(&oid(1));
    let id = TransactionId { coordinator: TargetId(2), number: 5 };
    builder.snapshot.add(TargetId(0), ScanItem::Transaction { id, decided: false });
    assert_eq!(
        builder.kinds(),
        ["entry-without-directory", "lost-inode", "root-missing", "unfinished-transaction"]
    );
}

#[test]
fn paths_lead_from_the_root() {
    let builder = Builder::sound();
    let paths = Paths::of(&builder.snapshot);
    assert_eq!(paths.of_object(oid(3)).as_deref(), Some("/dir/file"));
    assert_eq!(paths.of_object(oid(1)).as_deref(), Some("/"));
    assert_eq!(paths.of_object(oid(99)), None);
}
