//! Files come to the nodes when programs ask for them.

mod fixture;

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use azekura_stage::front::Recipients;
use fixture::{Setting, noise};

#[test]
fn a_file_that_is_asked_for_comes_whole_with_its_attributes() {
    let job = Setting::read_only(2, Recipients::All).start();
    let files = [("small", 10), ("none", 0), ("piece", 65_536), ("large", 20_000_001)]
        .map(|(name, bytes)| (name, noise(bytes, 7)));
    for (name, content) in &files {
        job.write(&format!("data/{name}"), content);
    }
    for (name, content) in &files {
        let path = job.home(&format!("data/{name}"));
        let home = fs::metadata(&path).unwrap();
        for node in 0..2 {
            let here = job.program(node).stage(&path);
            assert!(fs::read(&here).unwrap() == *content, "{name} on node {node}");
            let here = fs::metadata(here).unwrap();
            assert_eq!((here.mode(), here.mtime()), (home.mode(), home.mtime()));
            assert_eq!(here.mtime_nsec(), home.mtime_nsec());
        }
    }
    job.end();
}
