//! Which files the kernel is lent when they are opened, to read and write them by itself.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use azekura_posix::{Attr, AttrUpdate, Credentials, Errno, LocalUse, OFlags, OpenFile, Privileges};

use crate::answer::Result;
use crate::convert;
use crate::front_end::FrontEnd;
use crate::passthrough::{Opened, Past, WORTH_BYTES, Way};

impl FrontEnd {
    /// How the kernel is to use a file that was opened just now; `is_new`: it is empty.
    ///
    /// # Errors
    /// `EBUSY` if the node is open already, past this process, and may not be written so.
    pub(crate) fn way_of(
        &self,
        attr: &Attr,
        file: &OpenFile,
        flags: u32,
        is_new: bool,
    ) -> Result<Opened> {
        let decide = || self.decide(attr, file).map_or(Way::Cached, Way::Past);
        let opened = self.passthrough.open(file.oid(), is_new && file.is_writable(), decide);
        if let Some(past) = opened.past()
            && file.is_writable()
        {
            self.let_write(past, attr, file)?;
            if convert::open_flags(flags).intersects(OFlags::SYNC | OFlags::DSYNC) {
                // The kernel makes what it writes durable, and knows nothing of what leads there.
                self.fs.fsync(file)?;
            }
        }
        Ok(opened)
    }

    /// Lends the kernel the file with the data, if that is possible and worth it.
    fn decide(&self, attr: &Attr, file: &OpenFile) -> Option<Arc<Past>> {
        let lender = self.kernel.get()?.lender.as_ref()?;
        let is_long = attr.size >= WORTH_BYTES;
        let may_become_long = file.is_writable() && self.passthrough.expects_long_files();
        let special = OFlags::DIRECT | OFlags::SYNC | OFlags::DSYNC;
        if !self.passthrough.may_lend()
            || !(is_long || may_become_long)
            || file.flags().intersects(special)
            || !Privileges::of(attr).are_none()
            || !self.fs.lies_here(file)
        {
            return None;
        }
        let purpose =
            if file.is_writable() { LocalUse::Write { wait: false } } else { LocalUse::Read };
        let data = self.fs.local_data(file, purpose)?;
        match lender.lend(data.as_fd()) {
            Ok(lent) => {
                tracing::trace!(oid = %file.oid(), "the kernel reads and writes by itself");
                Some(Past::new(lent, file.is_writable()))
            }
            Err(errno) => {
                self.passthrough.note_refused(errno);
                None
            }
        }
    }

    /// The file is to be written to by the kernel itself, which the engine has to know.
    fn let_write(&self, past: &Past, attr: &Attr, file: &OpenFile) -> Result<()> {
        if past.is_writable() {
            return Ok(());
        }
        if !Privileges::of(attr).are_none() {
            // It got them while it was open. Nobody hears of the write that would take them away.
            let update = AttrUpdate { drop_set_id: true, ..AttrUpdate::default() };
            self.change(|| self.fs.setattr(&Credentials::ROOT, file.oid(), None, &update))?;
            self.change(|| self.fs.take_capability(file.oid()))?;
        }
        // While the kernel has it the engine finds it open, so that this descriptor is not needed.
        let asked = self.fs.local_data(file, LocalUse::Write { wait: true });
        asked.map(drop).ok_or(Errno::BUSY)?;
        past.note_writable();
        Ok(())
    }
}
