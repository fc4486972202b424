//! What the kernel asks for, one module per family of operations. Each translates requests into calls
//! of the file system; which request goes where stands in [`crate::dispatch`].

mod attributes;
mod directories;
mod files;
mod locks;
mod names;
mod passthrough;
mod xattrs;
