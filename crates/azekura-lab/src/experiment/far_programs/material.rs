//! What the programs work on: trees, archives, a repository, a package, a project. Made once, on
//! this machine, when the first program wants it. Contents cannot be compressed, so that no byte of
//! them spares the link anything. Knows no hosts, and copies nothing to anywhere.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::installed::PATH;
use super::run::to_end;
use crate::experiment::frame::Settings;

const TREE_DIRECTORIES: u64 = 20;
const SMALL_DIRECTORIES: u64 = 5;
const SMALL_FILE_BYTES: usize = 20 << 10;
const FILE_BYTES: usize = 1 << 20;
const SOURCE_BYTES: usize = 8 << 10;
const LINES_BYTES: u64 = 256 << 20;
const LINE_BYTES: usize = 100;
/// A line in so many is found.
const LINES_PER_NEEDLE: u64 = 1000;
const TABLE_ROWS: u64 = 400_000;
const FUNCTIONS_PER_MODULE: u64 = 40;

/// The columns that are read of a table.
pub(super) const COLUMNS: &str = "['c3', 'c11']";
const MAKEFILE: &str = "\
PARTS := $(patsubst %.c,$(OUT)/%.o,$(wildcard *.c))\n\
$(OUT)/program: $(PARTS)\n\
\t$(CC) -o $@ $^\n\
$(OUT)/%.o: %.c project.h\n\
\t$(CC) -c -o $@ $<\n";

/// Something that programs work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Directories of files of 20 KiB.
    Tree,
    /// Files of 1 MiB.
    Files,
    /// Fewer files of 20 KiB.
    Small,
    /// The same as one file of tar.
    Packed,
    /// The same as one file of zip.
    Archive,
    /// A bare git repository.
    Repository,
    /// A clone of it.
    Clone,
    /// A python package, compiled.
    Package,
    /// A parquet file.
    Table,
    /// C sources.
    Project,
    /// One large file of lines.
    Lines,
}

impl Part {
    /// Its path among the material.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Files => "files",
            Self::Small => "small",
            Self::Packed => "small.tar",
            Self::Archive => "archive.zip",
            Self::Repository => "repository.git",
            Self::Clone => "clone",
            Self::Package => "python",
            Self::Table => "table.parquet",
            Self::Project => "project",
            Self::Lines => "lines.txt",
        }
    }
}

/// Bytes that look like chance, and are the same in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        // The generator "splitmix64".
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes());
        words.take(count).collect()
    }
}

/// The material, in a directory of this machine.
pub(super) struct Material {
    dir: PathBuf,
    settings: Settings,
    made: Vec<Part>,
    noise: Noise,
}

impl Material {
    /// None yet, for a directory.
    ///
    /// # Errors
    /// If the directory cannot be made.
    pub(super) fn in_dir(dir: PathBuf, settings: &Settings) -> Result<Self> {
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Self { dir, settings: *settings, made: Vec::new(), noise: Noise(1) })
    }

    /// Where it lies.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Length of the files at these paths and below them, in bytes.
    ///
    /// # Errors
    /// If one of them is not there.
    pub(super) fn bytes_of(&self, paths: &[&str]) -> Result<u64> {
        paths.iter().map(|path| bytes_below(&self.dir.join(path))).sum()
    }

    /// Makes a part, if it is not there yet.
    ///
    /// # Errors
    /// If there is no room for it, or a program that makes it fails.
    pub(super) fn make(&mut self, part: Part) -> Result<()> {
        if self.made.contains(&part) {
            return Ok(());
        }
        let hundred = self.settings.scaled(100, 2);
        // The same contents, whatever was made before.
        self.noise = Noise(part as u64);
        match part {
            Part::Tree => self.tree("tree", (TREE_DIRECTORIES, hundred), SMALL_FILE_BYTES),
            Part::Files => self.files("files", hundred, FILE_BYTES),
            Part::Small => self.tree("small", (SMALL_DIRECTORIES, hundred), SMALL_FILE_BYTES),
            Part::Packed => {
                self.make(Part::Small)?;
                to_end(self.command("tar").args(["-cf", part.path(), "small"]))
            }
            Part::Archive => {
                self.make(Part::Small)?;
                let words = ["-m", "zipfile", "-c", part.path(), "small"];
                to_end(self.command("python3").args(words))
            }
            Part::Repository => self.repository(),
            Part::Clone => self.cloned(),
            Part::Package => self.package(hundred),
            Part::Table => self.table(),
            Part::Project => self.project(self.settings.scaled(20, 3)),
            Part::Lines => self.lines(),
        }
        .with_context(|| format!("cannot make {}", part.path()))?;
        self.made.push(part);
        Ok(())
    }

    /// A program that works in the directory.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.dir).env("PATH", PATH).env("HOME", &self.dir);
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("LC_ALL", "C");
        command
    }

    fn files(&mut self, name: &str, count: u64, bytes: usize) -> Result<()> {
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir)?;
        for number in 0..count {
            fs::write(dir.join(number.to_string()), self.noise.bytes(bytes))?;
        }
        Ok(())
    }

    fn tree(&mut self, name: &str, (directories, files): (u64, u64), bytes: usize) -> Result<()> {
        (0..directories)
            .try_for_each(|number| self.files(&format!("{name}/{number}"), files, bytes))
    }

    fn git(&self, words: &[&str]) -> Result<()> {
        let who = ["user.name=Azekura", "user.email=azekura@localhost", "init.defaultBranch=main"];
        let mut git = self.command("git");
        git.args(who.iter().flat_map(|setting| ["-c", setting])).args(words);
        to_end(&mut git)
    }

    fn repository(&mut self) -> Result<()> {
        let files = self.settings.scaled(20, 1);
        self.tree("origin/source", (10, files), SOURCE_BYTES)?;
        self.git(&["init", "-q", "origin"])?;
        self.git(&["-C", "origin", "add", "source"])?;
        self.git(&["-C", "origin", "commit", "-q", "-m", "Sources"])?;
        self.git(&["clone", "-q", "--bare", "origin", Part::Repository.path()])?;
        self.git(&["-C", Part::Repository.path(), "gc", "-q"])
    }

    fn cloned(&mut self) -> Result<()> {
        self.make(Part::Repository)?;
        let clone = Part::Clone.path();
        self.git(&["clone", "-q", Part::Repository.path(), clone])?;
        // Copies have other inode numbers: times and sizes have to do, or every file is read again.
        self.git(&["-C", clone, "config", "core.checkStat", "minimal"])?;
        // What is as young as the index is read again too; so the index is written a second later.
        std::thread::sleep(std::time::Duration::from_millis(2100));
        fs::remove_file(self.dir.join(clone).join(".git/index"))?;
        self.git(&["-C", clone, "read-tree", "HEAD"])?;
        self.git(&["-C", clone, "update-index", "-q", "--refresh"])
    }

    fn package(&self, modules: u64) -> Result<()> {
        let dir = self.dir.join(Part::Package.path()).join("package");
        fs::create_dir_all(&dir)?;
        let mut all = String::new();
        for module in 0..modules {
            // Text in a string always has room.
            let _ = writeln!(all, "from . import module_{module}");
            let mut text = String::new();
            for function in 0..FUNCTIONS_PER_MODULE {
                let _ = writeln!(
                    text,
                    "def function_{function}(value, other={module}):\n    \
                     \"\"\"Adds {function} to a value.\"\"\"\n    return value + {function} * other\n"
                );
            }
            fs::write(dir.join(format!("module_{module}.py")), text)?;
        }
        fs::write(dir.join("__init__.py"), all)?;
        to_end(self.command("python3").args(["-m", "compileall", "-q", Part::Package.path()]))
    }

    fn table(&self) -> Result<()> {
        let rows = self.settings.scaled(TABLE_ROWS, 1000);
        let script = format!(
            "import random, array, pyarrow, pyarrow.parquet as parquet\n\
             def column(): return pyarrow.py_buffer(random.randbytes({rows} * 8))\n\
             def filled(): return pyarrow.Array.from_buffers(pyarrow.int64(), {rows}, [None, column()])\n\
             random.seed(1)\n\
             table = pyarrow.table({{f'c{{number}}': filled() for number in range(20)}})\n\
             how = dict(row_group_size={rows} // 8, use_dictionary=False, compression='none')\n\
             parquet.write_table(table, 'table.parquet', **how)\n\
             parquet.write_table(table.select({COLUMNS}), 'columns.parquet', **how)\n"
        );
        to_end(self.command("python3").args(["-c", &script]))
    }

    fn project(&self, parts: u64) -> Result<()> {
        let dir = self.dir.join(Part::Project.path());
        fs::create_dir(&dir)?;
        let (mut header, mut sum) = (String::new(), String::from("0"));
        for part in 0..parts.saturating_sub(1) {
            // Text in a string always has room.
            let _ = writeln!(header, "int part_{part}(int value);");
            let _ = write!(sum, " + part_{part}({part})");
            let text = format!(
                "#include \"project.h\"\n\nint part_{part}(int value) {{ return value + {part}; }}\n"
            );
            fs::write(dir.join(format!("part_{part}.c")), text)?;
        }
        let main = format!("#include \"project.h\"\n\nint main(void) {{ return ({sum}) < 0; }}\n");
        fs::write(dir.join("main.c"), main)?;
        fs::write(dir.join("project.h"), header)?;
        Ok(fs::write(dir.join("Makefile"), MAKEFILE)?)
    }

    fn lines(&mut self) -> Result<()> {
        let lines = self.settings.scaled(LINES_BYTES, 1 << 20) / LINE_BYTES as u64;
        let mut file = BufWriter::new(fs::File::create(self.dir.join(Part::Lines.path()))?);
        for number in 0..lines {
            let mut line = self.noise.bytes(LINE_BYTES);
            for byte in &mut line {
                *byte = b'A' + (*byte & 0xf);
            }
            line[LINE_BYTES - 1] = b'\n';
            if number % LINES_PER_NEEDLE == 0 {
                line[..6].copy_from_slice(b"needle");
            }
            file.write_all(&line)?;
        }
        Ok(file.flush()?)
    }
}

fn bytes_below(path: &Path) -> Result<u64> {
    let look = || format!("cannot look at {}", path.display());
    let metadata = path.symlink_metadata().with_context(look)?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    let entries = fs::read_dir(path).with_context(look)?;
    entries.map(|entry| bytes_below(&entry.with_context(look)?.path())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn material(dir: &Path) -> Material {
        let settings = Settings { quick: true, scale: 1.0 / 64.0, point_s: 0.1 };
        Material::in_dir(dir.join("material"), &settings).unwrap()
    }

    #[test]
    fn noise_is_the_same_each_time_and_of_any_length() {
        let some = Noise(1).bytes(21);
        assert_eq!(some.len(), 21);
        assert_eq!(Noise(1).bytes(8), some[..8]);
        assert_ne!(Noise(2).bytes(8), some[..8]);
    }

    #[test]
    fn trees_are_made_once_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut material = material(dir.path());
        for _ in 0..2 {
            material.make(Part::Small).unwrap();
        }
        assert_eq!(material.bytes_of(&["small"]).unwrap(), 10 * SMALL_FILE_BYTES as u64);
        assert_eq!(material.bytes_of(&["small/2/1"]).unwrap(), SMALL_FILE_BYTES as u64);
        assert_eq!(material.bytes_of(&[]).unwrap(), 0);
        assert!(material.bytes_of(&["nosuch"]).is_err());
    }

    #[test]
    fn lines_have_something_to_find_and_a_project_has_its_parts() {
        let dir = tempfile::tempdir().unwrap();
        let mut material = material(dir.path());
        material.make(Part::Lines).unwrap();
        let text = fs::read_to_string(material.dir().join("lines.txt")).unwrap();
        assert!(text.lines().filter(|line| line.starts_with("needle")).count() > 5);
        assert!(text.len() <= 4 << 20 && text.lines().all(|line| line.len() == LINE_BYTES - 1));
        material.make(Part::Project).unwrap();
        let main = fs::read_to_string(material.dir().join("project/main.c")).unwrap();
        assert!(main.contains("part_1(1)") && !main.contains("part_2"));
    }
}
