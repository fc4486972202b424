//! NFS version 3 (RFC 1813): what its procedures are called with and what they answer. Owns the
//! translation into calls of the file system, one module per family; bytes on the wire only through
//! `xdr`, sockets not at all.

mod attributes;
pub(crate) mod batch;
mod create;
mod data;
mod directories;
mod names;
pub(crate) mod place;
pub(crate) mod status;
mod system;
mod types;

use crate::procedure::Procedure;

/// In the order of [`crate::procedures::NFS`].
pub(crate) const PROCEDURES: &[Procedure] = &[
    Procedure::Nothing,
    Procedure::Repeatable(attributes::getattr),
    Procedure::Once(attributes::setattr),
    Procedure::Repeatable(names::lookup),
    Procedure::Repeatable(attributes::access),
    Procedure::Repeatable(names::readlink),
    Procedure::Repeatable(data::read),
    Procedure::Repeatable(data::write),
    Procedure::Once(create::create),
    Procedure::Once(create::mkdir),
    Procedure::Once(create::symlink),
    Procedure::Once(create::mknod),
    Procedure::Once(names::remove),
    Procedure::Once(names::rmdir),
    Procedure::Once(names::rename),
    Procedure::Once(names::link),
    Procedure::Repeatable(directories::readdir),
    Procedure::Repeatable(directories::readdirplus),
    Procedure::Repeatable(system::fsstat),
    Procedure::Repeatable(system::fsinfo),
    Procedure::Repeatable(system::pathconf),
    Procedure::Repeatable(data::commit),
];
