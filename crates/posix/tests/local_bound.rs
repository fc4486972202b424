//! How many files one process reads past engines is bounded; the others are read as ever. In a program of its
//! own, since the bound is that of a process.

#![allow(clippy::unwrap_used, reason = "a test stops where something fails")]

use azekura_posix::{CachePolicy, Credentials, FileSystem, FsConfig, Namespace, OpenOptions};
use azekura_proto::attr::Inheritance;
use azekura_proto::limits::LOCAL_DESCRIPTORS_MAX;
use azekura_testkit::Cluster;

#[test]
fn beyond_the_bound_files_are_read_by_requests() {
    let cluster = Cluster::start_near_and_far(1, 1, Inheritance::default());
    let config = FsConfig { cache: CachePolicy::None, ..FsConfig::default() };
    let fs = FileSystem::mount(cluster.pool(), "default", config).unwrap();
    let root = Namespace::new(fs, Credentials::ROOT);
    let count = LOCAL_DESCRIPTORS_MAX as usize + 20;
    let content = |number: usize| format!("this is file {number}").into_bytes();
    let read = |file: &azekura_posix::File, number: usize| {
        let mut buffer = content(number);
        buffer.fill(0);
        assert_eq!(file.read_at(&mut buffer, 0), Ok(buffer.len()));
        assert!(buffer == content(number));
    };
    let mut files: Vec<_> = (0..count)
        .map(|number| {
            let path = format!("/file{number}");
            root.write(&path, &content(number)).unwrap();
            let file = root.open(&path, &OpenOptions::read_only()).unwrap();
            (0..3).for_each(|_| read(&file, number));
            file
        })
        .collect();
    let passed = cluster.count("shard_descriptor");
    let open_files = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    assert!(passed <= LOCAL_DESCRIPTORS_MAX, "{passed}");
    assert!(passed > 20, "this process may have few descriptors: raise its limit");
    assert!(open_files >= passed);
    for (number, file) in files.iter().enumerate() {
        read(file, number);
    }
    assert_eq!(cluster.count("shard_descriptor"), passed);
    // One that is closed makes room for another.
    let last = files.pop().unwrap();
    files.truncate(10);
    for _ in 0..70 {
        read(&last, count - 1);
    }
    assert_eq!(cluster.count("shard_descriptor"), passed + 1);
}
