//! What a program sees of files: data, names, attributes, and what other clients do to them.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use azekura_posix::{
    Access, Allocation, AttrUpdate, CachePolicy, Credentials, Errno, FileKind, LEFT, Namespace,
    NewEntry, OFlags, OpenOptions, RenameMode, SeekTo, SetTime, Timestamp, XattrMode,
};
use azekura_proto::ObjectClass;
use azekura_proto::attr::Inheritance;
use azekura_testkit::Cluster;

/// Small chunks, so that small files are striped.
fn small_chunks() -> Inheritance {
    Inheritance { chunk_bytes: 4096, ..Inheritance::default() }
}

fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        })
        .collect()
}

#[test]
fn data_come_back_as_they_were_written() {
    let cluster = Cluster::start(2, 2, small_chunks());
    let (one, other) = (cluster.root(), cluster.root());
    for bytes in [0, 1, 4095, 4096, 4097, 50_000, 9_000_000] {
        let data = pattern(bytes, bytes as u64);
        one.write("/file", &data).unwrap();
        assert!(other.read("/file").unwrap() == data, "{bytes} bytes");
        assert_eq!(other.metadata("/file").unwrap().size, bytes as u64);
    }
    let file = one.open("/file", &OpenOptions::read_only()).unwrap();
    let mut buffer = vec![7; 10_000];
    assert_eq!(file.read_at(&mut buffer, 8_995_000).unwrap(), 5_000);
    assert_eq!(file.read_at(&mut buffer, 9_000_000).unwrap(), 0);
    assert_eq!(file.read_at(&mut buffer, u64::MAX - 5).unwrap(), 0);
    assert_eq!(file.write_at(b"x", 0), Err(Errno::BADF));
}

#[test]
fn holes_read_as_zeros_and_the_end_is_found() {
    let cluster = Cluster::start(1, 3, small_chunks());
    let fs = cluster.root();
    let file = fs.open("/sparse", &OpenOptions::create()).unwrap();
    file.write_all_at(b"end", 5 << 40).unwrap();
    assert_eq!(file.len().unwrap(), (5 << 40) + 3);
    let mut buffer = vec![7; 40_000];
    assert_eq!(file.read_at(&mut buffer, 100).unwrap(), 40_000);
    assert!(buffer.iter().all(|byte| *byte == 0));
    assert_eq!(file.seek(0, SeekTo::Data).unwrap() & !4095, 5 << 40);
    assert_eq!(file.seek(0, SeekTo::Hole), Ok(0));
    assert_eq!(file.seek(5 << 40, SeekTo::Hole), Ok((5 << 40) + 3));
    assert_eq!(file.seek((5 << 40) + 3, SeekTo::Hole), Err(Errno::NXIO));
    file.set_len(10_000).unwrap();
    assert_eq!(file.read_at(&mut buffer, 9_000).unwrap(), 1_000);
    file.set_len(0).unwrap();
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 0);
    file.set_len(20_000).unwrap();
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 20_000);
    assert!(buffer[..20_000].iter().all(|byte| *byte == 0));
    assert_eq!(file.set_len(u64::MAX), Err(Errno::FBIG));
    assert_eq!(file.write_at(b"xy", i64::MAX as u64 - 1), Err(Errno::FBIG));
}

#[test]
fn a_change_shows_by_its_time_however_soon_it_comes_and_what_is_set_back_with_it() {
    let cluster = Cluster::start(1, 2, small_chunks());
    let (one, other) = (cluster.root(), cluster.root());
    one.write("/file", b"text").unwrap();
    let file = one.open("/file", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
    // Many within each step of the clock that the kernel stamps files with.
    for round in 0..300 {
        let before = other.metadata("/file").unwrap();
        file.write_all_at(b"more", 0).unwrap();
        let mtime = Some(SetTime::At(before.mtime));
        file.set_attr(&AttrUpdate { mtime, ..AttrUpdate::default() }).unwrap();
        let after = other.metadata("/file").unwrap();
        assert_eq!((after.mtime, after.size), (before.mtime, before.size));
        assert!(after.ctime > before.ctime, "{round}: {before:?} {after:?}");
        one.set_xattr("/file", b"user.round", &[round as u8], XattrMode::Set).unwrap();
        let tagged = other.metadata("/file").unwrap().ctime;
        assert!(tagged > after.ctime, "{round}: {after:?} {tagged:?}");
        one.hard_link("/file", "/other").unwrap();
        let linked = other.metadata("/file").unwrap().ctime;
        assert!(linked > tagged, "{round}: {tagged:?} {linked:?}");
        one.remove_file("/other").unwrap();
        assert!(other.metadata("/file").unwrap().ctime > linked, "{round}: {linked:?}");
    }
}

#[test]
fn a_reader_sees_that_another_client_made_the_file_wide() {
    let cluster = Cluster::start(2, 2, small_chunks());
    let (one, other) = (cluster.root(), cluster.root());
    one.write("/file", b"narrow").unwrap();
    let reader = other.open("/file", &OpenOptions::new(OFlags::RDWR, 0)).unwrap();
    let data = pattern(30_000, 3);
    one.open("/file", &OpenOptions::new(OFlags::WRONLY, 0))
        .unwrap()
        .write_all_at(&data, 10)
        .unwrap();
    let mut buffer = vec![0; 40_000];
    assert_eq!(reader.read_at(&mut buffer, 20_010).unwrap(), 10_000);
    assert!(buffer[..10_000] == data[20_000..]);
    assert_eq!(reader.read_at(&mut buffer, 0).unwrap(), 30_010);
    assert!(buffer[10..30_010] == data);
    reader.sync().unwrap();
}

#[test]
fn appends_of_several_clients_stay_whole() {
    let cluster = Cluster::start(2, 2, small_chunks());
    let clients: Vec<Namespace> = (0..3).map(|_| cluster.root()).collect();
    clients[0].write("/log", b"").unwrap();
    std::thread::scope(|scope| {
        for (index, client) in clients.iter().enumerate() {
            scope.spawn(move || {
                let options = OpenOptions::new(OFlags::WRONLY | OFlags::APPEND, 0);
                let file = client.open("/log", &options).unwrap();
                for round in 0..100 {
                    let record = format!("{index}:{round:04}:{}\n", "x".repeat(40 + round % 7));
                    assert_eq!(file.write_at(record.as_bytes(), 0).unwrap(), record.len());
                }
            });
        }
    });
    let log = String::from_utf8(clients[0].read("/log").unwrap()).unwrap();
    let mut next = [0; 3];
    for line in log.lines() {
        let (index, rest) = line.split_once(':').unwrap();
        let (round, text) = rest.split_once(':').unwrap();
        let (index, round): (usize, usize) = (index.parse().unwrap(), round.parse().unwrap());
        assert_eq!(next[index], round);
        assert_eq!(text, "x".repeat(40 + round % 7));
        next[index] += 1;
    }
    assert_eq!(next, [100; 3]);
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    let cluster = Cluster::start(2, 1, small_chunks());
    let (one, other) = (cluster.root(), cluster.root());
    one.write("/file", &pattern(20_000, 1)).unwrap();
    let open = one.open("/file", &OpenOptions::read_only()).unwrap();
    other.remove_file("/file").unwrap();
    assert_eq!(other.metadata("/file"), Err(Errno::NOENT));
    let mut buffer = vec![0; 20_000];
    assert_eq!(open.read_at(&mut buffer, 0).unwrap(), 20_000);
    assert_eq!(open.metadata().unwrap().nlink, 0);
    let oid = open.handle().oid();
    drop(open);
    one.filesystem().pool().tick();
    let gone = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        one.filesystem().getattr(oid) == Err(Errno::STALE)
    });
    assert!(gone, "the file is still there after its last close");
}

#[test]
fn a_nameless_file_gets_a_name() {
    let cluster = Cluster::start(2, 2, small_chunks());
    let fs = cluster.root();
    let options = OpenOptions::new(OFlags::TMPFILE | OFlags::RDWR, 0o600);
    let file = fs.open("/", &options).unwrap();
    file.write_all_at(b"content", 0).unwrap();
    assert_eq!(file.metadata().unwrap().nlink, 0);
    let (root, oid) = (fs.filesystem().root(), file.handle().oid());
    let attr = fs.filesystem().link(&Credentials::ROOT, oid, root, b"named").unwrap();
    assert_eq!(attr.nlink, 1);
    drop(file);
    assert_eq!(fs.read("/named").unwrap(), b"content");
}

#[test]
fn paths_are_walked_as_posix_says() {
    let cluster = Cluster::start(2, 2, small_chunks());
    let fs = Namespace::new(cluster.mount(CachePolicy::AUTO), Credentials::ROOT);
    fs.create_dir_all("/a/b/c", 0o755).unwrap();
    fs.write("a/b/c/file", b"data").unwrap();
    fs.symlink(b"b/c", "/a/short").unwrap();
    fs.symlink(b"/a/short/../c/file", "/direct").unwrap();
    fs.symlink(b"loop", "/loop").unwrap();
    fs.symlink(b"nowhere", "/dangling").unwrap();
    assert_eq!(fs.read("/a/short/file").unwrap(), b"data");
    assert_eq!(fs.read("/direct").unwrap(), b"data");
    assert_eq!(fs.read("//a/./b/../short//file").unwrap(), b"data");
    assert_eq!(fs.symlink_metadata("/direct").unwrap().kind, FileKind::Symlink);
    assert_eq!(fs.metadata("/loop"), Err(Errno::LOOP));
    assert_eq!(fs.metadata("/direct/"), Err(Errno::NOTDIR));
    assert_eq!(fs.metadata("/a/short/").unwrap().kind, FileKind::Directory);
    assert_eq!(fs.metadata("/direct/x"), Err(Errno::NOTDIR));
    assert_eq!(fs.metadata(""), Err(Errno::NOENT));
    assert_eq!(fs.metadata("x".repeat(256)), Err(Errno::NAMETOOLONG));
    assert_eq!(fs.metadata("x/".repeat(2100)), Err(Errno::NAMETOOLONG));
    assert_eq!(fs.create_dir("/a/b/.", 0o755), Err(Errno::EXIST));
    assert_eq!(fs.remove_dir("/a/b/."), Err(Errno::INVAL));
    assert_eq!(fs.remove_dir("/a/b/.."), Err(Errno::NOTEMPTY));
    assert_eq!(fs.remove_dir("/a/b"), Err(Errno::NOTEMPTY));
    assert_eq!(fs.remove_file("/a/b"), Err(Errno::ISDIR));
    assert_eq!(fs.remove_file("/a/b/c/file/"), Err(Errno::NOTDIR));
    let exclusive = OpenOptions::new(OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, 0o600);
    assert_eq!(fs.open("/dangling", &exclusive).err(), Some(Errno::EXIST));
    fs.write("/dangling", b"made").unwrap();
    assert_eq!(fs.read("/nowhere").unwrap(), b"made");
    let no_follow = OpenOptions::new(OFlags::NOFOLLOW, 0);
    assert_eq!(fs.open("/dangling", &no_follow).err(), Some(Errno::LOOP));
    let c = fs.metadata("/a/b/c").unwrap().oid;
    assert_eq!(fs.at(c).read("file").unwrap(), b"data");
    assert_eq!(fs.at(c).read("../c/file").unwrap(), b"data");
    fs.rename("/a/b", "/moved", RenameMode::Replace).unwrap();
    assert_eq!(fs.read("/moved/c/file").unwrap(), b"data");
    assert_eq!(fs.read("/a/short/file"), Err(Errno::NOENT));
    assert_eq!(fs.at(c).metadata("..").unwrap().oid, fs.metadata("/moved").unwrap().oid);
    fs.remove_dir_all("/moved").unwrap();
    assert_eq!(fs.metadata("/moved"), Err(Errno::NOENT));
}

#[test]
fn directories_list_every_entry_once() {
    let cluster = Cluster::start(2, 2, small_chunks());
    let fs = cluster.root();
    let dir = fs.create_dir("/dir", 0o755).unwrap();
    let mut made: Vec<Vec<u8>> = (0..700).map(|i| format!("entry.{i}").into_bytes()).collect();
    for name in &made {
        let caller = &Credentials::ROOT;
        fs.filesystem().make(caller, dir.oid, name, 0o644, NewEntry::Regular).unwrap();
    }
    let mut listed: Vec<Vec<u8>> =
        fs.read_dir("/dir").unwrap().map(|entry| entry.unwrap().name).collect();
    made.sort();
    listed.sort();
    assert_eq!(made, listed);
    for page_bytes in [1, 1000, 1 << 20] {
        let (mut cookie, mut names, mut complete) = (0, Vec::new(), true);
        loop {
            let wanted = azekura_posix::AttrsWanted::All;
            let caller = &Credentials::ROOT;
            let page =
                fs.filesystem().readdir(caller, dir.oid, cookie, page_bytes, wanted).unwrap();
            let Some(last) = page.entries.last() else { break };
            cookie = last.cookie;
            for entry in page.entries {
                complete &= entry.attr.is_some() || entry.name.starts_with(b".");
                names.push(entry.name);
            }
        }
        assert!(complete);
        assert_eq!(&names[..2], [b".".to_vec(), b"..".to_vec()]);
        let mut names = names.split_off(2);
        names.sort();
        assert_eq!(names, made, "pages of {page_bytes} bytes");
    }
}

#[test]
fn pages_end_within_any_shard() {
    let cluster = Cluster::start(1, 4, small_chunks());
    let filesystem = cluster.root();
    let fs = filesystem.filesystem();
    let (root, caller) = (fs.root(), &Credentials::ROOT);
    for count in 0..420 {
        fs.make(caller, root, format!("entry{count}").as_bytes(), 0o644, NewEntry::Regular)
            .unwrap();
        if count < 250 || count % 8 != 0 {
            continue;
        }
        let (mut cookie, mut listed) = (0, 0);
        loop {
            let page =
                fs.readdir(caller, root, cookie, 8192, azekura_posix::AttrsWanted::No).unwrap();
            let Some(last) = page.entries.last() else { break };
            assert!(page.entries.windows(2).all(|two| two[0].cookie < two[1].cookie));
            cookie = last.cookie;
            listed += page.entries.len();
        }
        // Those up to `count`, and the dots.
        assert_eq!(listed, count + 3);
    }
}

#[test]
fn attributes_are_kept_and_inherited() {
    let cluster = Cluster::start(2, 2, Inheritance::default());
    let fs = cluster.root();
    fs.create_dir("/dir", 0o755).unwrap();
    fs.set_xattr("/dir", b"user.azekura.class", b"S2", XattrMode::Set).unwrap();
    fs.set_xattr("/dir", b"user.azekura.chunk_size", b"64K", XattrMode::Set).unwrap();
    fs.create_dir("/dir/sub", 0o755).unwrap();
    fs.write("/dir/sub/file", b"").unwrap();
    let attr = fs.metadata("/dir/sub/file").unwrap();
    assert_eq!((attr.oid.class(), attr.chunk_bytes), (ObjectClass::S2, 65_536));
    assert_eq!(fs.get_xattr("/dir/sub/file", b"user.azekura.class").unwrap(), b"S2");
    assert_eq!(fs.get_xattr("/dir/sub", b"user.azekura.chunk_size").unwrap(), b"65536");
    assert_eq!(fs.list_xattrs("/dir").unwrap(), b"");
    fs.set_xattr("/dir/sub/file", b"user.azekura.chunk_size", b"8192", XattrMode::Set).unwrap();
    assert_eq!(fs.metadata("/dir/sub/file").unwrap().chunk_bytes, 8192);
    fs.write("/dir/sub/file", b"data").unwrap();
    let late = fs.set_xattr("/dir/sub/file", b"user.azekura.chunk_size", b"4096", XattrMode::Set);
    assert!(late.is_err(), "a file with data keeps its chunk size");

    fs.set_xattr("/dir", b"user.colour", b"green", XattrMode::Create).unwrap();
    let again = fs.set_xattr("/dir", b"user.colour", b"red", XattrMode::Create);
    assert_eq!(again, Err(Errno::EXIST));
    assert_eq!(fs.list_xattrs("/dir").unwrap(), b"user.colour\0");
    assert_eq!(fs.get_xattr("/dir", b"user.shape"), Err(Errno::NODATA));
    let big = vec![7; 65_536];
    fs.set_xattr("/dir", b"user.big", &big, XattrMode::Set).unwrap();
    assert_eq!(fs.get_xattr("/dir", b"user.big").unwrap(), big);
    fs.remove_xattr("/dir", b"user.colour").unwrap();
    assert_eq!(fs.remove_xattr("/dir", b"user.colour"), Err(Errno::NODATA));

    let when = Timestamp { secs: -5, nanos: 123_456_789 };
    let times = AttrUpdate {
        atime: Some(SetTime::At(when)),
        mtime: Some(SetTime::At(when)),
        ..AttrUpdate::default()
    };
    let attr = fs.set_attr("/dir/sub/file", true, &times).unwrap();
    assert_eq!((attr.atime, attr.mtime), (when, when));
    assert_eq!(fs.metadata("/dir/sub/file").unwrap().mtime, when);
}

#[test]
fn permissions_bind_ordinary_users() {
    let cluster = Cluster::start(1, 2, Inheritance::default());
    let fs = cluster.mount(CachePolicy::AUTO);
    let root = Namespace::new(fs.clone(), Credentials::ROOT);
    let user = |uid| Credentials { uid, gid: uid, groups: vec![50], process: None };
    let ann = Namespace::new(fs.clone(), user(1001));
    let bob = Namespace::new(fs.clone(), user(1002));
    let chmod = |mode| AttrUpdate { mode: Some(mode), ..AttrUpdate::default() };
    root.set_attr("/", true, &chmod(0o755)).unwrap();
    root.create_dir("/shared", 0o1777).unwrap();
    ann.write("/shared/ann", b"mine").unwrap();
    assert_eq!(bob.read("/shared/ann").unwrap(), b"mine");
    assert_eq!(bob.write("/shared/ann", b"x"), Err(Errno::ACCESS));
    assert_eq!(bob.remove_file("/shared/ann"), Err(Errno::PERM));
    assert_eq!(bob.rename("/shared/ann", "/shared/b", RenameMode::Replace), Err(Errno::PERM));
    assert_eq!(bob.set_attr("/shared/ann", true, &chmod(0o777)), Err(Errno::PERM));
    ann.set_attr("/shared/ann", true, &chmod(0o6777)).unwrap();
    bob.open("/shared/ann", &OpenOptions::new(OFlags::WRONLY, 0))
        .unwrap()
        .write_all_at(b"x", 0)
        .unwrap();
    assert_eq!(root.metadata("/shared/ann").unwrap().mode, 0o777);
    assert_eq!(ann.create_dir("/top", 0o755), Err(Errno::ACCESS));
    root.create_dir("/team", 0o755).unwrap();
    let team = AttrUpdate { gid: Some(50), mode: Some(0o2775), ..AttrUpdate::default() };
    root.set_attr("/team", true, &team).unwrap();
    ann.write("/team/file", b"").unwrap();
    let sub = ann.create_dir("/team/sub", 0o755).unwrap();
    assert_eq!(root.metadata("/team/file").unwrap().gid, 50);
    assert_eq!((sub.gid, sub.mode), (50, 0o2755));
    root.create_dir("/closed", 0o700).unwrap();
    root.write("/closed/file", b"").unwrap();
    assert_eq!(ann.metadata("/closed/file"), Err(Errno::ACCESS));
    assert_eq!(ann.read_dir("/closed").err(), Some(Errno::ACCESS));
    let wanted = Access { execute: true, ..Access::default() };
    assert_eq!(ann.access("/closed", wanted), Err(Errno::ACCESS));
    assert_eq!(ann.make_node("/shared/dev", 0o600, NewEntry::CharDevice(259)), Err(Errno::PERM));
}

#[test]
fn capabilities_go_with_a_change_of_the_data() {
    let cluster = Cluster::start(1, 2, Inheritance::default());
    let fs = cluster.root();
    let capability = b"security.capability";
    let give = |path: &str| {
        fs.write(path, b"program").unwrap();
        fs.set_xattr(path, capability, b"can", XattrMode::Set).unwrap();
        fs.set_xattr(path, b"user.other", b"stays", XattrMode::Set).unwrap();
    };
    let open = |path: &str, flags| fs.open(path, &OpenOptions::new(flags, 0)).unwrap();
    give("/written");
    open("/written", OFlags::WRONLY).write_all_at(b"x", 0).unwrap();
    give("/appended");
    open("/appended", OFlags::WRONLY | OFlags::APPEND).write_all_at(b"x", 0).unwrap();
    give("/emptied");
    drop(open("/emptied", OFlags::WRONLY | OFlags::TRUNC));
    give("/cut");
    fs.set_attr("/cut", true, &AttrUpdate::size(1)).unwrap();
    give("/given");
    fs.set_attr("/given", true, &AttrUpdate { uid: Some(5), ..AttrUpdate::default() }).unwrap();
    for path in ["/written", "/appended", "/emptied", "/cut", "/given"] {
        assert_eq!(fs.get_xattr(path, capability), Err(Errno::NODATA), "{path}");
        assert_eq!(fs.get_xattr(path, b"user.other").unwrap(), b"stays");
    }
}

#[test]
fn space_is_reserved_punched_and_copied() {
    let cluster = Cluster::start(2, 2, small_chunks());
    let fs = cluster.root();
    let file = fs.open("/file", &OpenOptions::create()).unwrap();
    let data = pattern(60_000, 9);
    file.write_all_at(&data, 0).unwrap();
    file.allocate(8192, 24_576, Allocation::PunchHole).unwrap();
    assert_eq!(file.seek(0, SeekTo::Hole), Ok(8192));
    assert_eq!(file.seek(8192, SeekTo::Data), Ok(32_768));
    let mut expected = data.clone();
    expected[8192..32_768].fill(0);
    file.allocate(100, 50, Allocation::ZeroKeepSize).unwrap();
    expected[100..150].fill(0);
    assert!(fs.read("/file").unwrap() == expected);
    file.allocate(50_000, 50_000, Allocation::Grow).unwrap();
    assert_eq!(file.len().unwrap(), 100_000);
    file.allocate(0, 200_000, Allocation::KeepSize).unwrap();
    assert_eq!(file.len().unwrap(), 100_000);
    // A length that makes no sense is told first.
    let reading = fs.open("/file", &OpenOptions::read_only()).unwrap();
    assert_eq!(reading.allocate(0, 0, Allocation::PunchHole), Err(Errno::INVAL));
    assert_eq!(reading.allocate(0, 1, Allocation::PunchHole), Err(Errno::BADF));
    assert!(file.metadata().unwrap().blocks_512 >= 200_000 / 512);
    let copy = fs.open("/copy", &OpenOptions::create()).unwrap();
    let copied = file.copy_range(0, &copy, 0, u64::MAX).unwrap();
    assert_eq!(copied, 100_000);
    expected.resize(100_000, 0);
    assert!(fs.read("/copy").unwrap() == expected);
    let stat = fs.filesystem().statfs().unwrap();
    assert!(stat.total_bytes >= stat.available_bytes && stat.available_bytes > 0);
    fs.filesystem().syncfs().unwrap();
}

#[test]
fn a_path_has_one_form_without_symlinks_and_dots() {
    let cluster = Cluster::start(1, 2, Inheritance::default());
    let root = cluster.root().standing_at(b"/mnt/pool");
    root.create_dir_all("/a/b", 0o755).unwrap();
    root.write("/a/b/file", b"").unwrap();
    root.symlink(b"/mnt/pool/a", "/absolute").unwrap();
    root.symlink(b"../b/", "/a/b/relative").unwrap();
    root.symlink(b"/etc/passwd", "/out").unwrap();
    root.symlink(b"loop", "/loop").unwrap();
    let of = |path: &str| root.canonicalize(b"", path).map(|(path, _)| path);
    assert_eq!(of("/"), Ok(b"".to_vec()));
    assert_eq!(of("//a/./b//../b/"), Ok(b"/a/b".to_vec()));
    assert_eq!(of("/absolute/b/relative/relative/file"), Ok(b"/a/b/file".to_vec()));
    assert_eq!(of("/a/b/relative"), Ok(b"/a/b".to_vec()));
    assert_eq!(of("/a/b/file/"), Err(Errno::NOTDIR));
    assert_eq!(of("/a/b/file/x"), Err(Errno::NOTDIR));
    assert_eq!(of("/a/none"), Err(Errno::NOENT));
    assert_eq!(of(""), Err(Errno::NOENT));
    assert_eq!(of("/loop"), Err(Errno::LOOP));
    assert_eq!(of("/out"), Err(LEFT));
    assert_eq!(root.way_out("/out"), Some(b"/etc/passwd".to_vec()));
    assert_eq!(of("/a/../../x"), Err(LEFT));
    assert_eq!(root.way_out("/a/../../x"), Some(b"/mnt/x".to_vec()));
    assert_eq!(root.way_out("/out/of/it"), Some(b"/etc/passwd/of/it".to_vec()));
    assert_eq!(root.way_out("/absolute/b"), None);
    assert_eq!(root.way_out("/a/none"), None);
    let (path, attr) = root.canonicalize(b"", "/a/b").unwrap();
    let below = root.at(attr.oid);
    assert_eq!(below.canonicalize(&path, "../b/file").unwrap().0, b"/a/b/file");
    assert_eq!(below.canonicalize(&path, ".").unwrap().0, b"/a/b");
}
