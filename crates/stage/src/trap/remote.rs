//! Calls made by a thread of the program in place of the one that it waits in. Only the thread itself can run
//! another program or change its directory, and only by a path in its memory, which may be read-only, shared
//! with a parent (vfork) or seen in the new program's arguments: so nothing is written there. The thread is
//! stopped (ptrace(2)) and given other registers: a descriptor takes the path's place. Before it goes on, all
//! registers are as they were, but for the result. Owns that what it makes is not trapped again, and that whatever
//! the program calls afterwards is.

use std::collections::HashSet;
use std::io;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::caller::Caller;
use crate::sys::tracee::{Registers, Stop, Tracee};

/// `ERESTARTNOINTR` of linux/errno.h: the call begins anew once the thread runs again.
const BEGIN_ANEW: i32 = 513;
/// Signals that are held back while calls are made at most; further ones are lost.
const HELD_MAX: usize = 64;

/// Threads that make a call by a descriptor just now: it is not to be trapped again.
#[derive(Default)]
pub(super) struct Running(Mutex<HashSet<i32>>);

/// That the calls of a thread are not trapped.
pub(super) struct Untrapped<'r> {
    running: &'r Running,
    tid: i32,
}

impl Running {
    pub(super) fn has(&self, tid: i32) -> bool {
        self.0.lock().contains(&tid)
    }

    /// The calls of the caller are not trapped from now on.
    pub(super) fn enter(&self, caller: &Caller) -> Untrapped<'_> {
        let tid = caller.call.tid;
        self.0.lock().insert(tid);
        Untrapped { running: self, tid }
    }
}

impl Drop for Untrapped<'_> {
    fn drop(&mut self) {
        self.running.0.lock().remove(&self.tid);
    }
}

/// A thread that stands where its call is to begin.
pub(super) struct Remote<'r> {
    /// Gone before the thread is let go: the next call may be the program's own.
    untrapped: Option<Untrapped<'r>>,
    tracee: Tracee,
    /// What it had when it stopped.
    registers: Registers,
    /// Where the instruction is that makes a call.
    instruction: u64,
    held: Vec<i32>,
}

/// What came of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// Its result: from -4095 on, the number of an error.
    Result(i64),
    /// The thread runs another program, or nothing any more.
    Left,
}

impl<'r> Remote<'r> {
    /// Stops the thread whose call waits; the call waits no longer. `None` if it has ended.
    ///
    /// # Errors
    /// If another tracer has the thread, or it may not be traced: the call waits still.
    pub(super) fn stop(
        caller: &Caller,
        untrapped: Option<Untrapped<'r>>,
    ) -> io::Result<Option<Self>> {
        let call = &caller.call;
        let mut tracee = Tracee::seize(call.tid)?;
        tracee.interrupt()?;
        // Where the interruption has ended the wait already (before Linux 5.19), this is refused, and the
        // kernel begins the call anew by itself.
        caller.listener.answer(call.id, Err(BEGIN_ANEW));
        let mut held = Vec::new();
        loop {
            match tracee.wait()? {
                Stop::Interrupted => break,
                Stop::Gone => return Ok(None),
                Stop::Signal(signal) => hold(&mut held, signal),
                Stop::Call | Stop::Executed => {}
            }
            tracee.resume()?;
        }
        let registers = tracee.registers()?;
        let instruction = call.instruction - Registers::CALL_BYTES;
        if !registers.is_about_to_repeat(call.number, instruction) {
            // It goes on as it would have.
            tracee.release(&held);
            return Err(Errno::NOTRECOVERABLE.into());
        }
        Ok(Some(Self { untrapped, tracee, registers, instruction, held }))
    }

    /// Has the thread make a call.
    pub(super) fn call(&mut self, number: i64, args: [u64; 6]) -> io::Result<Outcome> {
        let mut registers = self.registers;
        registers.set_call(self.instruction, number, args);
        self.tracee.set_registers(&registers)?;
        let mut is_inside = false;
        loop {
            self.tracee.resume()?;
            match self.tracee.wait()? {
                Stop::Call if is_inside => {
                    return Ok(Outcome::Result(self.tracee.registers()?.result()));
                }
                Stop::Call => is_inside = self.tracee.registers()?.number() == number,
                Stop::Executed | Stop::Gone => return Ok(Outcome::Left),
                Stop::Signal(signal) => hold(&mut self.held, signal),
                Stop::Interrupted => {}
            }
        }
    }

    /// Lets the thread go on as after its own call, with this result.
    pub(super) fn finish(self, result: i64) -> io::Result<()> {
        let mut registers = self.registers;
        registers.set_result(self.instruction, result);
        self.tracee.set_registers(&registers)?;
        self.let_go();
        Ok(())
    }

    /// Lets the thread go.
    pub(super) fn let_go(self) {
        drop(self.untrapped);
        self.tracee.release(&self.held);
    }
}

fn hold(held: &mut Vec<i32>, signal: i32) {
    if held.len() < HELD_MAX {
        held.push(signal);
    }
}
