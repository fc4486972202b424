//! The number of the calling process, asked of the kernel once: it is wanted several times in every operation. Owns
//! when that is right; never a lock, since it is asked for anywhere.

use std::sync::atomic::Ordering;

use crate::sys::wiped_on_fork;

/// The number of the calling process; another one after a fork. The child of a `vfork` has that of its parent, whose
/// memory it uses.
pub fn this_process() -> u32 {
    let Some(remembered) = wiped_on_fork() else { return asked() };
    let known = remembered.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let number = asked();
    remembered.store(number, Ordering::Relaxed);
    number
}

fn asked() -> u32 {
    rustix::process::getpid().as_raw_nonzero().get().unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_the_number_that_the_kernel_gives() {
        assert_eq!(this_process(), std::process::id());
        assert_eq!(this_process(), std::process::id());
    }
}
