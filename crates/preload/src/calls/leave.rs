//! Leaving the process without its exit handlers. What was written arrives, and the report is written,
//! before.

use std::ffi::c_int;

use crate::host::Function;
use crate::{hook, recording, report, service};

fn prepare() {
    recording::end(false);
    hook::inside(|| {
        service::drain_for_good();
        report::write();
    });
}

fn leave(code: c_int) -> ! {
    prepare();
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, code) };
    }
}

/// `_exit`.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(code: c_int) -> ! {
    leave(code)
}

/// `_Exit`.
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(code: c_int) -> ! {
    leave(code)
}

/// `quick_exit`, which runs handlers of its own kind.
#[unsafe(no_mangle)]
pub extern "C" fn quick_exit(code: c_int) -> ! {
    #[unsafe(link_section = ".data.hot")]
    static FOUND: Function = Function::new();
    prepare();
    let address = FOUND.address(c"quick_exit");
    if !address.is_null() {
        // SAFETY: the C library's function of this name has this signature.
        let function: unsafe extern "C" fn(c_int) = unsafe { std::mem::transmute(address) };
        // SAFETY: it has no conditions, and does not come back.
        unsafe { function(code) };
    }
    leave(code)
}
