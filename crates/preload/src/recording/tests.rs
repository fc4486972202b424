//! The recording mode as a whole, in this very process: in a test program the hooks stand before the C library
//! as they do in a program that the library is put into.

use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use azekura_proto::recording::layout::{self, call, header};
use azekura_proto::recording::{End, File as Recorded, Process, decode};

use super::{area, ending, process};

/// A record file as `azekura profile` makes it.
fn make_record(path: &Path) {
    let mut head = vec![0_u8; layout::HEADER_BYTES];
    for (word, value) in [(header::MAGIC, layout::MAGIC), (header::VERSION, layout::VERSION)] {
        head[word * 8..word * 8 + 8].copy_from_slice(&value.to_ne_bytes());
    }
    let mut file = File::create(path).unwrap();
    file.write_all(&head).unwrap();
    file.set_len(layout::FILE_BYTES).unwrap();
}

/// The first process of the record, and how many chunks there are.
fn read_record(path: &Path) -> (Process, usize) {
    let mut file = File::open(path).unwrap();
    let mut bytes = vec![0; layout::HEADER_BYTES];
    file.read_exact(&mut bytes).unwrap();
    let length = azekura_proto::recording::Recording::length(&bytes).unwrap();
    file.take(length - bytes.len() as u64).read_to_end(&mut bytes).unwrap();
    let chunks = (bytes.len() - layout::HEADER_BYTES) / layout::CHUNK_BYTES;
    let mut recording = decode(&bytes).unwrap();
    assert_eq!(recording.lost, 0);
    assert_eq!(recording.processes.len(), 1);
    (recording.processes.remove(0), chunks)
}

fn named(process: &Process, path: &Path) -> Vec<Recorded> {
    let path = path.as_os_str().as_encoded_bytes();
    process.files.iter().filter(|file| file.path == path).cloned().collect()
}

fn exercise(dir: &Path) {
    let mut one = File::create(dir.join("one")).unwrap();
    for _ in 0..10 {
        one.write_all(&[1; 1000]).unwrap();
    }
    one.seek(SeekFrom::Start(0)).unwrap();
    one.write_all(&[2; 10]).unwrap();
    drop(one);
    let source = File::open(dir.join("one")).unwrap();
    for place in [9000, 3000, 6000] {
        source.read_exact_at(&mut [0; 512], place).unwrap();
    }
    let mut again = File::open(dir.join("one")).unwrap();
    let mut room = [0; 4096];
    while again.read(&mut room).unwrap() > 0 {}
    let mut end = OpenOptions::new().append(true).open(dir.join("one")).unwrap();
    end.write_all(b"12345").unwrap();
    assert!(File::open(dir.join("missing")).is_err());
    std::fs::create_dir(dir.join("made")).unwrap();
    std::fs::rename(dir.join("one"), dir.join("two")).unwrap();
    std::fs::remove_file(dir.join("two")).unwrap();
}

#[test]
fn what_this_process_does_stands_in_the_record() {
    let place = tempfile::tempdir().unwrap();
    let dir = std::fs::canonicalize(place.path()).unwrap();
    let record = dir.join("record");
    make_record(&record);
    let short = dir.join("short");
    std::fs::write(&short, [0; 100]).unwrap();
    // For the life of the process, as that of the environment is kept.
    let c_path = |path: &Path| -> &'static CStr {
        Box::leak(CString::new(path.to_str().unwrap()).unwrap().into_boxed_c_str())
    };
    assert!(!area::open(c_path(&short)), "a touch behind its end would be the end of the program");
    assert!(!area::open(c"relative"));
    assert!(!area::is_there());
    process::renew();
    assert!(area::open(c_path(&record)));
    process::entry().unwrap();

    exercise(&dir);
    // More than a chunk holds.
    let many = 200;
    for number in 0..many {
        std::fs::write(dir.join(format!("{number:0>200}")), b"x").unwrap();
    }
    ending::end(false);

    let (process, chunks) = read_record(&record);
    assert!(chunks > 1, "{chunks} chunks");
    assert_eq!((process.pid, process.end), (u64::from(std::process::id()), End::Exit));
    let [one] = &named(&process, &dir.join("one"))[..] else { panic!("one entry for one file") };
    assert_eq!((one.opens, one.creates, one.size_before, one.end), (4, 1, 0, 10_005));
    assert_eq!((one.written.requests, one.written.bytes), (12, 10_015));
    assert_eq!(one.written.sizes, [(1000, 10), (5, 1), (10, 1)]);
    // All but the one after the seek.
    assert_eq!((one.written.sequential, one.seeks), (11, 1));
    assert_eq!((one.read.requests, one.read.bytes), (6, 3 * 512 + 10_000));
    assert_eq!(one.read.sizes, [(512, 3), (4096, 3)]);
    assert_eq!(one.read.sequential, 3);
    for number in 0..many {
        let files = named(&process, &dir.join(format!("{number:0>200}")));
        assert_eq!(files.iter().map(|file| file.written.bytes).sum::<u64>(), 1, "{number}");
    }
    // Other tests of this program may have done more.
    for (which, least) in [
        (call::CREATES, many + 1),
        (call::FAILED_OPENS, 1),
        (call::MAKES, 1),
        (call::RENAMES, 1),
        (call::REMOVES, 1),
    ] {
        assert!(process.calls[which] >= least, "{}: {:?}", layout::CALLS[which], process.calls);
    }
}
