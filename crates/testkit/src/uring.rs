//! The kernel's switch for FUSE over io_uring, which belongs to the whole machine: tests turn it on for
//! as long as they need it, and put it back.

use std::fs;

use parking_lot::Mutex;

use crate::skip::skip;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// How many tests of this process need it on, and whether it has to be put back after the last.
static USERS: Mutex<(usize, bool)> = Mutex::new((0, false));

/// The switch is on while this lives.
#[derive(Debug)]
pub struct UringAllowed(());

impl UringAllowed {
    /// Turns it on; if that is not possible, the calling test is skipped.
    pub fn new() -> Option<Self> {
        let mut users = USERS.lock();
        if users.0 == 0 {
            let Ok(before) = fs::read_to_string(SWITCH) else {
                skip("this kernel has no FUSE over io_uring: Linux 6.14 or newer does");
                return None;
            };
            users.1 = before.trim() != "Y";
            if let (true, Err(error)) = (users.1, fs::write(SWITCH, "Y")) {
                skip(&format!("{SWITCH} cannot be switched on: {error}"));
                return None;
            }
        }
        users.0 += 1;
        Some(Self(()))
    }
}

impl Drop for UringAllowed {
    fn drop(&mut self) {
        let mut users = USERS.lock();
        users.0 -= 1;
        if *users == (0, true) {
            fs::write(SWITCH, "N").unwrap();
        }
    }
}
