//! A pool file as somebody may have edited it: it loads or says what is wrong, and one that loads
//! is a map that holds.

#![no_main]

use std::cell::OnceCell;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use azekura_client::PoolFile;
use libfuzzer_sys::fuzz_target;

thread_local! {
    static PLACE: OnceCell<PathBuf> = const { OnceCell::new() };
}

fn place() -> PathBuf {
    PLACE.with(|place| {
        place
            .get_or_init(|| {
                let dir = std::env::temp_dir().join(format!("azekura-fuzz-{}", std::process::id()));
                std::fs::create_dir_all(&dir).expect("a place for the file");
                dir.join("pool.toml")
            })
            .clone()
    })
}

fuzz_target!(|bytes: &[u8]| {
    let path = place();
    std::fs::write(&path, bytes).expect("a file to write");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("our own file");
    if let Ok(file) = PoolFile::load(&path) {
        assert!(file.map.validate().is_ok());
        let _ = file.secret();
    }
});
