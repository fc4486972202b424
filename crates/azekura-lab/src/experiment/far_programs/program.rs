//! The programs: what each takes, what lies far away before it begins, and the words with which a
//! shell starts it. Owns these words; knows neither hosts nor doors.

use super::installed::{PYARROW, first_missing};
use super::material::Part;
use crate::experiment::frame::{Cells, Parameter};

/// Which it is.
pub(super) const PROGRAM: Parameter =
    Parameter { name: "program", title: "program", cells: Cells::Plain };

/// A program as people run it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// In the table.
    pub(super) name: &'static str,
    /// Over its picture.
    pub(super) title: &'static str,
    /// Programs that it takes, besides those that every system has.
    needs: &'static [&'static str],
    /// What lies far away.
    pub(super) far: &'static [Part],
    /// What lies near.
    pub(super) near: &'static [Part],
    /// Files and trees whose contents have to pass the link: paths among the material.
    pub(super) useful: &'static [&'static str],
    /// Whether it leaves something behind, in `$FAR/new`.
    pub(super) writes: bool,
    /// What a shell is told. What lies far away is in `$FAR`, what lies near in `$NEAR`. Some
    /// programs see that their output is thrown away, and do less: they get a pipe.
    pub(super) script: &'static str,
}

/// All of them.
pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "find",
        title: "find over 20 directories",
        needs: &[],
        far: &[Part::Tree],
        near: &[],
        useful: &[],
        writes: false,
        script: r#"find "$FAR/tree" | cat > /dev/null"#,
    },
    Program {
        name: "ls-l",
        title: "ls -l of 20 directories",
        needs: &[],
        far: &[Part::Tree],
        near: &[],
        useful: &[],
        writes: false,
        script: r#"ls -lR "$FAR/tree" | cat > /dev/null"#,
    },
    Program {
        name: "tar-c",
        title: "tar c of files of 20 KiB",
        needs: &["tar"],
        far: &[Part::Tree],
        near: &[],
        useful: &["tree"],
        writes: false,
        script: r#"tar -cf - -C "$FAR/tree" . | cat > /dev/null"#,
    },
    Program {
        name: "cat",
        title: "Files of 1 MiB, one after the other",
        needs: &[],
        far: &[Part::Files],
        near: &[],
        useful: &["files"],
        writes: false,
        script: r#"cat "$FAR"/files/* > /dev/null"#,
    },
    Program {
        name: "tar-x",
        title: "tar x of files of 20 KiB",
        needs: &["tar"],
        far: &[],
        near: &[Part::Packed],
        useful: &["small"],
        writes: true,
        script: r#"tar -xf "$NEAR/small.tar" -C "$FAR/new""#,
    },
    Program {
        name: "cp-r",
        title: "cp -r of files of 20 KiB",
        needs: &[],
        far: &[],
        near: &[Part::Small],
        useful: &["small"],
        writes: true,
        script: r#"cp -r "$NEAR/small" "$FAR/new/""#,
    },
    Program {
        name: "git-clone",
        title: "git clone",
        needs: &["git"],
        far: &[],
        near: &[Part::Repository, Part::Clone],
        useful: &["repository.git/objects", "clone/source"],
        writes: true,
        script: r#"git clone -q "$NEAR/repository.git" "$FAR/new/clone""#,
    },
    Program {
        name: "git-status",
        title: "git status",
        needs: &["git"],
        far: &[Part::Clone],
        near: &[],
        useful: &["clone/.git/index"],
        writes: false,
        // The index is left as it is, for the next run.
        script: r#"GIT_OPTIONAL_LOCKS=0 git -C "$FAR/clone" status --short | cat > /dev/null"#,
    },
    Program {
        name: "python-import",
        title: "import of a package in python",
        needs: &["python3"],
        far: &[Part::Package],
        near: &[],
        useful: &["python/package/__pycache__"],
        writes: false,
        script: r#"python3 -I -B -c "import sys; sys.path.insert(0, '$FAR/python'); import package""#,
    },
    Program {
        name: "parquet",
        title: "Two columns of twenty from a parquet file",
        needs: &["python3", PYARROW],
        far: &[Part::Table],
        near: &[],
        useful: &["columns.parquet"],
        writes: false,
        script: r#"python3 -B -c "import pyarrow.parquet as parquet
parquet.read_table('$FAR/table.parquet', columns=['c3', 'c11'])""#,
    },
    Program {
        name: "unzip-l",
        title: "unzip -l",
        needs: &["unzip", "python3"],
        far: &[Part::Archive],
        near: &[],
        useful: &[],
        writes: false,
        script: r#"unzip -l "$FAR/archive.zip" | cat > /dev/null"#,
    },
    Program {
        name: "unzip-p",
        title: "unzip -p of one member",
        needs: &["unzip", "python3"],
        far: &[Part::Archive],
        near: &[Part::Small],
        useful: &["small/2/1"],
        writes: false,
        script: r#"unzip -p "$FAR/archive.zip" small/2/1 | cmp - "$NEAR/small/2/1""#,
    },
    Program {
        name: "make",
        title: "make of a small C project",
        needs: &["make", "cc"],
        far: &[Part::Project],
        near: &[],
        useful: &["project"],
        writes: true,
        script: r#"make -s -C "$FAR/project" OUT="$FAR/new""#,
    },
    Program {
        name: "grep-c",
        title: "grep -c over one large file",
        needs: &[],
        far: &[Part::Lines],
        near: &[],
        useful: &["lines.txt"],
        writes: false,
        script: r#"grep -c needle "$FAR/lines.txt" | cat > /dev/null"#,
    },
];

impl Program {
    /// The program of that name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        PROGRAMS.iter().find(|program| program.name == name)
    }

    /// What it takes that is not there.
    pub(super) fn lacks(&self) -> Option<&'static str> {
        first_missing(self.needs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::material::COLUMNS;
    use super::*;

    #[test]
    fn programs_are_told_by_name_and_touch_what_they_name() {
        for (index, program) in PROGRAMS.iter().enumerate() {
            assert!(PROGRAMS[..index].iter().all(|other| other.name != program.name));
            assert_eq!(Program::named(program.name), Some(program));
            assert_eq!(program.script.contains("$FAR/new"), program.writes, "{}", program.name);
            for part in program.far {
                let path = format!("/{}", part.path());
                assert!(program.script.contains(&path), "{} and {path}", program.name);
            }
        }
        assert_eq!(Program::named("nosuch"), None);
    }

    #[test]
    fn the_columns_that_are_read_are_those_that_are_counted() {
        assert!(Program::named("parquet").is_some_and(|one| one.script.contains(COLUMNS)));
    }
}
