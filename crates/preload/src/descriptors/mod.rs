//! Descriptor numbers that stand for files of the pool. A number is reserved from the kernel, so that
//! no other call gives it out; what it stands for is a [`Description`], which several numbers may
//! share, as after `dup`, and several processes, as after `fork`.

mod cell;
mod description;
pub(crate) mod inherit;
mod page;
mod position;
pub(crate) mod reserve;
pub(crate) mod size_limit;
pub(crate) mod table;

pub(crate) use description::{Backing, CHANGEABLE, Description};
pub(crate) use position::Position;

use std::ffi::c_int;
use std::sync::Arc;

use azekura_posix::Result;

use crate::host::Failing;
use crate::report::Counter;
use crate::{guard, hook};

/// A call with a descriptor: `ours` if it stands for a file of the pool, else `hosts`.
pub(crate) fn on_fd<R: Failing>(
    counter: &'static Counter,
    fd: c_int,
    ours: impl FnOnce(&Arc<Description>) -> Result<R>,
    hosts: impl FnOnce() -> R,
) -> R {
    dispatch(counter, fd, false, ours, hosts)
}

/// As [`on_fd`], for a call that moves data: ours also where a mount has opened the file.
pub(crate) fn on_data<R: Failing>(
    counter: &'static Counter,
    fd: c_int,
    ours: impl FnOnce(&Arc<Description>) -> Result<R>,
    hosts: impl FnOnce() -> R,
) -> R {
    dispatch(counter, fd, true, ours, hosts)
}

fn dispatch<R: Failing>(
    counter: &'static Counter,
    fd: c_int,
    moves_data: bool,
    ours: impl FnOnce(&Arc<Description>) -> Result<R>,
    hosts: impl FnOnce() -> R,
) -> R {
    if !table::is_ours(fd) {
        counter.passed();
        return hosts();
    }
    if moves_data {
        guard::cancellation_point();
    }
    let result = hook::run(|| match table::get(fd) {
        Some(description) if moves_data || description.backing() == Backing::Reserved => {
            ours(&description).map(Some)
        }
        _ => Ok(None),
    });
    hook::conclude_or(counter, result, || {
        counter.passed();
        hosts()
    })
}
