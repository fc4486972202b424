//! A thread of another process under ptrace(2), for the moment in which a call is made in its name.

#![allow(unsafe_code)]

use std::io;

use libc::{c_int, c_long, c_void};
use rustix::io::Errno;

use super::check_long;

/// The thread: let go when this is dropped. All is to be done by the thread that seized it.
pub(crate) struct Tracee(i32);

/// Why a thread under trace stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// As was asked for, or with its whole process.
    Interrupted,
    /// Before or after a call.
    Call,
    /// It runs another program now.
    Executed,
    /// A signal is about to reach it.
    Signal(c_int),
    /// It has ended.
    Gone,
}

/// The registers of a thread.
#[derive(Clone, Copy)]
pub(crate) struct Registers(libc::user_regs_struct);

#[cfg(target_arch = "x86_64")]
impl Registers {
    /// The length of the instruction that makes a call.
    pub(crate) const CALL_BYTES: u64 = 2;

    /// Whether the thread stands where a call that began at `instruction` is about to begin anew.
    pub(crate) fn is_about_to_repeat(&self, number: i64, instruction: u64) -> bool {
        // ERESTARTSYS .. ERESTART_RESTARTBLOCK of linux/errno.h, which no program ever sees.
        let restarts = (-516..=-512).contains(&(self.0.rax as i64));
        self.0.orig_rax as i64 == number && restarts && self.0.rip == instruction + Self::CALL_BYTES
    }

    /// Has the thread make another call by the instruction there.
    pub(crate) fn set_call(&mut self, instruction: u64, number: i64, args: [u64; 6]) {
        let regs = &mut self.0;
        [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
        regs.rax = number as u64;
        // Not in a call, so that none is begun anew.
        regs.orig_rax = u64::MAX;
        regs.rip = instruction;
    }

    /// Has the thread go on as after a call with this result.
    pub(crate) fn set_result(&mut self, instruction: u64, result: i64) {
        self.0.rax = result as u64;
        self.0.orig_rax = u64::MAX;
        self.0.rip = instruction + Self::CALL_BYTES;
    }

    /// The number of the call that it stands in.
    pub(crate) fn number(&self) -> i64 {
        self.0.orig_rax as i64
    }

    /// The result of the call that it stands after.
    pub(crate) fn result(&self) -> i64 {
        self.0.rax as i64
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers {
    /// The length of the instruction that makes a call.
    pub(crate) const CALL_BYTES: u64 = 4;

    /// Whether the thread stands where a call that began at `instruction` is about to begin anew. This
    /// architecture has put everything back by the time that a tracer sees it.
    pub(crate) fn is_about_to_repeat(&self, number: i64, instruction: u64) -> bool {
        self.0.regs[8] as i64 == number && self.0.pc == instruction
    }

    /// Has the thread make another call by the instruction there.
    pub(crate) fn set_call(&mut self, instruction: u64, number: i64, args: [u64; 6]) {
        self.0.regs[..6].copy_from_slice(&args);
        self.0.regs[8] = number as u64;
        self.0.pc = instruction;
    }

    /// Has the thread go on as after a call with this result.
    pub(crate) fn set_result(&mut self, instruction: u64, result: i64) {
        self.0.regs[0] = result as u64;
        self.0.pc = instruction + Self::CALL_BYTES;
    }

    /// The number of the call that it stands in.
    pub(crate) fn number(&self) -> i64 {
        self.0.regs[8] as i64
    }

    /// The result of the call that it stands after.
    pub(crate) fn result(&self) -> i64 {
        self.0.regs[0] as i64
    }
}

impl Tracee {
    /// Begins to trace a thread, which runs on.
    pub(crate) fn seize(tid: i32) -> io::Result<Self> {
        let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACEEXEC;
        // SAFETY: takes numbers.
        check_long(unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, 0_usize, options as usize) })?;
        Ok(Self(tid))
    }

    /// The thread is to stand before it returns to its program.
    pub(crate) fn interrupt(&self) -> io::Result<()> {
        // SAFETY: takes numbers.
        check_long(unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, self.0, 0_usize, 0_usize) })?;
        Ok(())
    }

    /// Runs on to the next call, or the end of this one.
    pub(crate) fn resume(&self) -> io::Result<()> {
        // SAFETY: takes numbers.
        check_long(unsafe { libc::ptrace(libc::PTRACE_SYSCALL, self.0, 0_usize, 0_usize) })?;
        Ok(())
    }

    pub(crate) fn registers(&self) -> io::Result<Registers> {
        // SAFETY: plain data, for which all zeros is a value.
        let mut registers = Registers(unsafe { std::mem::zeroed() });
        self.registers_by(libc::PTRACE_GETREGSET, &mut registers)?;
        Ok(registers)
    }

    pub(crate) fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        let mut registers = *registers;
        self.registers_by(libc::PTRACE_SETREGSET, &mut registers)
    }

    fn registers_by(&self, request: libc::c_uint, registers: &mut Registers) -> io::Result<()> {
        let base: *mut c_void = (&raw mut registers.0).cast();
        let mut part = libc::iovec { iov_base: base, iov_len: size_of::<libc::user_regs_struct>() };
        let set = libc::NT_PRSTATUS as usize;
        // SAFETY: the kernel reads or writes no more than the part says, which is alive.
        check_long(unsafe { libc::ptrace(request, self.0, set, &raw mut part) })?;
        Ok(())
    }

    /// Waits until the thread stands. An execution may give it another id, which is kept here.
    pub(crate) fn wait(&mut self) -> io::Result<Stop> {
        let (seen, tid) = wait_for_any(libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT)?;
        if !matches!(seen.si_code, libc::CLD_TRAPPED | libc::CLD_STOPPED) {
            if !is_own_child(tid) {
                // Nobody else hears of its end before its tracer does. A child is its parent's.
                let _ = wait_for_any(libc::WEXITED);
            }
            self.0 = 0;
            return Ok(Stop::Gone);
        }
        // Taken, since a stop after an execution can be acted on only then.
        wait_for_any(libc::WSTOPPED)?;
        self.0 = tid;
        // SAFETY: a stop has a status.
        let status = unsafe { seen.si_status() };
        let (signal, event) = (status & 0xff, status >> 8);
        Ok(match event {
            libc::PTRACE_EVENT_EXEC => Stop::Executed,
            0 if signal == libc::SIGTRAP | 0x80 => Stop::Call,
            0 => Stop::Signal(signal),
            _ => Stop::Interrupted,
        })
    }

    /// Lets the thread go, and sends it the signals that were held back.
    pub(crate) fn release(self, held: &[c_int]) {
        let tid = self.0;
        drop(self);
        if tid > 0 {
            for signal in held {
                // SAFETY: takes numbers. It may have ended.
                let _ = unsafe { libc::syscall(libc::SYS_tkill, tid, *signal) };
            }
        }
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if self.0 > 0 {
            // SAFETY: takes numbers. It may have ended.
            let _ = unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0_usize, 0_usize) };
        }
    }
}

/// Waits for a thread that this thread traces; this thread has no children of its own.
fn wait_for_any(flags: c_int) -> io::Result<(libc::siginfo_t, i32)> {
    loop {
        // SAFETY: plain data, for which all zeros is a value.
        let mut seen: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let flags = flags | libc::__WALL | libc::__WNOTHREAD;
        // SAFETY: the structure is alive.
        let waited: c_long = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut seen, flags) }.into();
        match check_long(waited) {
            // SAFETY: waitid has filled it in.
            Ok(_) => return Ok((seen, unsafe { seen.si_pid() })),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether a process that has ended is a child of this one.
fn is_own_child(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may hold anything; then come the state and the parent.
    let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
    parent.and_then(|parent| parent.parse().ok()) == Some(std::process::id())
}
