//! The library's beginning and end in a process. At the beginning it reads the environment and looks
//! which files of the pool it was started with; it connects to nothing for a program that needs
//! nothing.

use std::ffi::{c_char, c_int};

use crate::calls::fork;
use crate::descriptors::inherit;
use crate::paths::working_directory;
use crate::scope::RECORDS_ONLY;
use crate::{hook, recording, report, service, settings, staging, stdio};

unsafe extern "C" {
    static mut environ: *const *const c_char;
}

/// Gets what `main` gets, from the loader.
extern "C" fn begin(_count: c_int, _words: *const *const c_char, variables: *const *const c_char) {
    // SAFETY: the process has one thread yet. This library's beginning comes before the C library's
    // own, which sets the same.
    unsafe {
        if environ.is_null() {
            environ = variables;
        }
    }
    if RECORDS_ONLY {
        begin_recording();
        return;
    }
    hook::inside(|| {
        // What a defect has to say stands in the report, not in the host's output.
        if !cfg!(test) {
            std::panic::set_hook(Box::new(|_| {}));
        }
        let warnings = settings::read();
        staging::start();
        #[cfg(not(records_only))]
        if settings::get().is_some() || staging::get().is_some() {
            crate::allocator::reserve();
        }
        begin_recording();
        if staging::get().is_some() {
            staging::launch::restore_variables();
            fork::watch();
        }
        let Some(settings) = settings::get() else { return };
        if let Some(file) = &settings.report {
            report::enable(file);
        }
        for line in &warnings {
            report::trouble(line);
        }
        // SAFETY: reading the mask takes setting it; the process has one thread yet.
        unsafe {
            let mask = libc::syscall(libc::SYS_umask, 0);
            libc::syscall(libc::SYS_umask, mask);
            service::set_umask(mask as u32);
        }
        inherit::adopt_all();
        working_directory::adopt();
        fork::watch();
    });
    stdio::adopt();
}

/// Watches forks too where nothing but recording is to be told of them.
fn begin_recording() {
    if recording::start() && staging::get().is_none() && settings::get().is_none() {
        fork::watch();
        fork::leave_vfork_alone();
    }
}

extern "C" fn end() {
    // The C library writes its streams out only after this, and those of ours need the pool.
    if !RECORDS_ONLY || recording::has_files() {
        // SAFETY: null stands for all streams.
        unsafe { libc::fflush(std::ptr::null_mut()) };
    }
    recording::end(false);
    hook::inside(|| {
        service::leave();
        report::write();
    });
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
