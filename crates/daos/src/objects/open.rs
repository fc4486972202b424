//! Open objects. Owns which object of ours stands for an id of the interface: the table in the container
//! says so, in which an object is entered when it is first written to, and from which none is taken out
//! again, since somebody may have it open.

use std::sync::{Arc, OnceLock};

use azekura_client::{ArrayValues, Pool};
use azekura_proto::{ObjectClass, Oid};

use crate::class;
use crate::handles::{self, ContainerHandle};
use crate::objects::cursor::Cursors;
use crate::objects::table;
use crate::status::Der;
use crate::types::{Handle, ObjectId};

/// Bits of the type of an object in the upper half of its id, and of its class.
pub(super) const TYPE_SHIFT: u32 = 56;
pub(super) const REDUNDANCY_SHIFT: u32 = 48;
pub(super) const GROUPS_SHIFT: u32 = 32;
/// Types there are.
pub(super) const TYPE_MAX: u32 = 14;
/// Open for reading only.
pub(super) const OPEN_READ_ONLY: u32 = 1 << 1;

/// How an object is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Values under dkeys and akeys, or under keys.
    Values,
    /// One array of cells.
    Array { cell_bytes: u64, chunk_cells: u64 },
    /// The list of all objects.
    Table,
}

/// An open object.
pub(super) struct OpenObject {
    pub(super) container: Arc<ContainerHandle>,
    pub(super) id: ObjectId,
    pub(super) read_only: bool,
    pub(super) form: Form,
    /// The object of ours, once it is known.
    ours: OnceLock<Oid>,
    pub(super) cursors: Cursors,
}

impl OpenObject {
    pub(super) fn new(
        container: Arc<ContainerHandle>,
        id: ObjectId,
        read_only: bool,
        form: Form,
    ) -> Self {
        let read_only = read_only || container.read_only;
        let (ours, cursors) = (OnceLock::new(), Cursors::default());
        Self { container, id, read_only, form, ours, cursors }
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.container.pool.pool
    }

    /// The object of ours; `None` if nobody has written to it yet.
    pub(super) fn find(&self) -> Result<Option<Oid>, Der> {
        if let Some(known) = self.ours.get() {
            return Ok(Some(*known));
        }
        let found = table::find(&self.container, self.id)?;
        Ok(found.map(|oid| *self.ours.get_or_init(|| oid)))
    }

    /// The object of ours, to be written to.
    pub(super) fn find_or_make(&self) -> Result<Oid, Der> {
        self.check_writable()?;
        if let Some(known) = self.find()? {
            return Ok(known);
        }
        let defaults = self.container.container.inheritance;
        let class = class_of(self.id)?.unwrap_or(defaults.file_class);
        let oid = table::find_or_make(&self.container, self.id, class)?;
        Ok(*self.ours.get_or_init(|| oid))
    }

    pub(super) fn values(&self, oid: Oid) -> ArrayValues<'_> {
        ArrayValues::new(self.pool(), oid)
    }

    pub(super) fn check_writable(&self) -> Result<(), Der> {
        if self.read_only { Err(Der::NoPerm) } else { Ok(()) }
    }

    /// `DER_NO_HDL` for what is opened in another form.
    pub(super) fn check_values(&self) -> Result<(), Der> {
        if self.form == Form::Values { Ok(()) } else { Err(Der::NoHdl) }
    }
}

/// The class that stands in an id; `None` for that of the container.
pub(super) fn class_of(id: ObjectId) -> Result<Option<ObjectClass>, Der> {
    let redundancy = (id.hi >> REDUNDANCY_SHIFT & 0xff) as u32;
    let groups = (id.hi >> GROUPS_SHIFT & 0xffff) as u32;
    class::wanted(redundancy << 24 | groups).map_err(|_| Der::Inval)
}

/// `DER_NOSYS` for any transaction.
pub(super) fn check_no_transaction(transaction: Handle) -> Result<(), Der> {
    if transaction.cookie == 0 { Ok(()) } else { Err(Der::Nosys) }
}

/// A handle of an object.
pub(super) fn add(object: OpenObject) -> Handle {
    handles::add_object(Arc::new(object))
}

/// The object of a handle.
pub(super) fn object(handle: Handle) -> Result<Arc<OpenObject>, Der> {
    handles::object(handle)?.downcast().map_err(|_| Der::NoHdl)
}
