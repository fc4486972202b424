//! `set-attr` and `get-attr`: over how many targets files are striped, and in what pieces. Class
//! and chunk size pass from a directory to what is made in it.

use anyhow::{Context as _, Result, bail};
use azekura_posix::{Access, Attr, Errno, FileKind};
use azekura_proto::ObjectClass;
use azekura_proto::attr::{AttrChange, Inheritance, NewInode};
use azekura_proto::message::typed::{Create, Creation, SetAttr};
use clap::Args;

use super::opened::{Opened, OpenedOnce};
use super::paths::split_last;
use crate::commands::container::check_chunk_bytes;
use crate::host::process;
use crate::names::Location;
use crate::outcome::usage;
use crate::reading::ReadArgs;
use crate::report::{self, Table, format_bytes, parse_size_u32};

/// `azekura fs set-attr`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura fs set-attr default:/dir class=S2 chunk_size=256KiB\n  \
    azekura fs set-attr default:/dir/new.bin class=SX chunk_size=4MiB\n\n\
    Of a directory: what new files (class, chunk_size) and new directories (dir_class) in it start \
    with. Of a file that is not there: it is made, empty, with these. Of an empty file: its \
    chunk_size can be set, its class not. Files with data stay as they are.")]
pub(crate) struct SetAttrArgs {
    /// Place: POOL:/path
    #[arg(value_name = "PLACE")]
    place: Location,
    /// class=S1..SX, dir_class=S1..SX, chunk_size=SIZE
    #[arg(value_name = "NAME=VALUE", required = true)]
    settings: Vec<Setting>,
}

/// `azekura fs get-attr`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  azekura fs get-attr default:/dir default:/dir/big.bin")]
pub(crate) struct GetAttrArgs {
    /// Places: POOL:/path
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<Location>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    Class(ObjectClass),
    DirClass(ObjectClass),
    ChunkBytes(u32),
}

impl std::str::FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            format!("'{text}' is not a setting: write class=S2 or chunk_size=256KiB")
        })?;
        match name {
            "class" => Ok(Self::Class(value.parse()?)),
            "dir_class" => Ok(Self::DirClass(value.parse()?)),
            "chunk_size" => Ok(Self::ChunkBytes(parse_size_u32(value)?)),
            _ => Err(format!(
                "there is no attribute '{name}': there are class, dir_class and chunk_size"
            )),
        }
    }
}

/// What is to be set.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    class: Option<ObjectClass>,
    dir_class: Option<ObjectClass>,
    chunk_bytes: Option<u32>,
}

impl Wanted {
    fn of(settings: &[Setting]) -> Result<Self> {
        let mut wanted = Self::default();
        for setting in settings {
            match setting {
                Setting::Class(class) => wanted.class = Some(*class),
                Setting::DirClass(class) => wanted.dir_class = Some(*class),
                Setting::ChunkBytes(bytes) => {
                    check_chunk_bytes(*bytes)?;
                    wanted.chunk_bytes = Some(*bytes);
                }
            }
        }
        Ok(wanted)
    }

    fn over(self, before: Inheritance) -> Inheritance {
        Inheritance {
            file_class: self.class.unwrap_or(before.file_class),
            dir_class: self.dir_class.unwrap_or(before.dir_class),
            chunk_bytes: self.chunk_bytes.unwrap_or(before.chunk_bytes),
        }
    }
}

/// Runs `azekura fs set-attr`.
pub(super) fn set(args: &SetAttrArgs) -> Result<()> {
    let wanted = Wanted::of(&args.settings)?;
    let container = Opened::open(&args.place.container, &ReadArgs::default())?;
    match container.names.metadata(&args.place.path) {
        Ok(attr) => match attr.kind {
            FileKind::Directory => set_directory(&container, &args.place, &attr, wanted),
            FileKind::Regular => set_file(&container, &args.place, &attr, wanted),
            _ => bail!("{} is neither a file nor a directory", args.place),
        },
        Err(Errno::NOENT) => create(&container, &args.place, wanted),
        Err(error) => Err(error).with_context(|| format!("cannot look at {}", args.place)),
    }
}

/// Only the owner may set these, as with other attributes of the inode.
fn check_owner(container: &Opened, place: &Location, attr: &Attr) -> Result<()> {
    if container.caller.is_root() || container.caller.uid == attr.uid {
        return Ok(());
    }
    bail!("{place} belongs to user {}: only that user or root can set its attributes", attr.uid)
}

fn change(container: &Opened, place: &Location, attr: &Attr, change: AttrChange) -> Result<()> {
    let oid = attr.oid;
    container
        .fs
        .pool()
        .call(oid.home(), SetAttr { oid, change })
        .map(drop)
        .with_context(|| format!("cannot set attributes of {place}"))
}

fn set_directory(container: &Opened, place: &Location, attr: &Attr, wanted: Wanted) -> Result<()> {
    check_owner(container, place, attr)?;
    let inheritance = wanted.over(attr.inheritance.unwrap_or_default());
    let request = AttrChange { inheritance: Some(inheritance), ..AttrChange::default() };
    change(container, place, attr, request)
}

fn set_file(container: &Opened, place: &Location, attr: &Attr, wanted: Wanted) -> Result<()> {
    check_owner(container, place, attr)?;
    if wanted.dir_class.is_some() {
        return Err(usage(format!("{place} is a file: dir_class is for directories")));
    }
    if wanted.class.is_some_and(|class| class != attr.oid.class()) {
        bail!(
            "{place} has class {} for good: set it on the directory, or on a name that is not \
             there yet, and copy the file",
            attr.oid.class()
        );
    }
    match wanted.chunk_bytes.filter(|bytes| *bytes != attr.chunk_bytes) {
        Some(_) if attr.size > 0 => bail!("{place} has data: its chunk size stays as it is"),
        Some(bytes) => {
            let request = AttrChange { chunk_bytes: Some(bytes), ..AttrChange::default() };
            change(container, place, attr, request)
        }
        None => Ok(()),
    }
}

/// Makes an empty file. The class is part of the object's id, so it has to be known at birth.
fn create(container: &Opened, place: &Location, wanted: Wanted) -> Result<()> {
    if wanted.dir_class.is_some() {
        return Err(usage(format!("{place} would be a new file: dir_class is for directories")));
    }
    let cannot = || format!("cannot make {place}");
    let (above, name) = split_last(&place.path).with_context(cannot)?;
    let dir = container.names.metadata(above).with_context(cannot)?;
    let access = Access { write: true, execute: true, ..Access::default() };
    container.fs.access(&container.caller, dir.oid, access).with_context(cannot)?;
    let inherited = wanted.over(dir.inheritance.unwrap_or_default());
    let inode = NewInode {
        kind: FileKind::Regular,
        mode: (0o666 & !process::umask()) as u16,
        uid: container.caller.uid,
        // A setgid directory gives its group to what is made in it.
        gid: if dir.mode & 0o2000 == 0 { container.caller.gid } else { dir.gid },
        rdev: 0,
        symlink_text: Vec::new(),
        class: inherited.file_class,
        chunk_bytes: inherited.chunk_bytes,
        inheritance: None,
    };
    let (dir, name) = (dir.oid, name.as_bytes());
    azekura_proto::message::check_name(name).with_context(cannot)?;
    let pool = container.fs.pool();
    let target = pool.placement().entry_target(dir, name);
    let request = Create { dir, name, inode, open: false };
    match pool.call(target, request).with_context(cannot)? {
        Creation::New(_) => Ok(()),
        Creation::Existing(..) => bail!("{place} was made by somebody else just now: try again"),
    }
}

/// Runs `azekura fs get-attr`.
pub(super) fn get(args: &GetAttrArgs) -> Result<()> {
    let mut opened = OpenedOnce::default();
    let mut table = Table::new(&["place", "class", ">shards", ">chunk", "new files", "new dirs"]);
    let mut all = Vec::new();
    for place in &args.places {
        let container = opened.of(place)?;
        let attr = container
            .names
            .metadata(&place.path)
            .with_context(|| format!("cannot look at {place}"))?;
        let class = attr.oid.class();
        let shards = container.fs.pool().placement().shards(attr.oid);
        let given = |what: fn(&Inheritance) -> ObjectClass| {
            attr.inheritance.as_ref().map(what).map(ObjectClass::name)
        };
        let (file_class, dir_class) = (given(|all| all.file_class), given(|all| all.dir_class));
        table.row([
            place.to_string(),
            class.to_string(),
            shards.to_string(),
            format_bytes(u64::from(attr.chunk_bytes)),
            file_class.unwrap_or("-").to_owned(),
            dir_class.unwrap_or("-").to_owned(),
        ]);
        all.push(serde_json::json!({
            "place": place.to_string(),
            "class": class.name(),
            "shards": shards,
            "chunk_bytes": attr.chunk_bytes,
            "file_class": file_class,
            "dir_class": dir_class,
        }));
    }
    if args.json {
        return report::say_json(&serde_json::json!({ "files": all }));
    }
    report::say(table);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_written() {
        assert_eq!("class=s2".parse(), Ok(Setting::Class(ObjectClass::S2)));
        assert_eq!("chunk_size=256KiB".parse(), Ok(Setting::ChunkBytes(262_144)));
        for text in ["class", "class=S3", "color=red", "chunk_size=many"] {
            assert!(text.parse::<Setting>().is_err(), "{text}");
        }
    }
}
