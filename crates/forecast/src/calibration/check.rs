//! Which values of a calibration contradict each other. What one value may be by itself is its type's.

use super::{Calibration, FORMAT, FileCosts, Span, Streams};
use crate::complaint::{Contradiction, require};

impl Calibration {
    /// Holds its values against each other.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), Contradiction> {
        require(self.format == FORMAT, "format", || {
            format!("{} is not known: this program reads format {FORMAT}", self.format)
        })?;
        for (key, bytes) in
            [("record_bytes", self.made.record_bytes), ("buffer_bytes", self.made.buffer_bytes)]
        {
            require(bytes.0 > 0, format!("made.{key}"), || {
                "0 cannot be: write the size that the runs had".to_owned()
            })?;
        }
        require(self.made.machine.processors > 0, "made.machine.processors", || {
            "0 cannot be: write how many processors a node has".to_owned()
        })?;
        self.check_ranges()?;
        let paths = &self.path;
        require(
            paths.storage_nodes.is_some() == paths.per_storage_node_mib_per_s.is_some(),
            if paths.storage_nodes.is_some() {
                "path.storage_nodes"
            } else {
                "path.per_storage_node_mib_per_s"
            },
            || {
                "storage_nodes and per_storage_node_mib_per_s mean something only together: write \
                 both or none"
                    .to_owned()
            },
        )?;
        require(paths.storage_nodes != Some(0), "path.storage_nodes", || {
            "0 cannot be: write how many nodes hold the files".to_owned()
        })?;
        for (index, fit) in self.parallel.iter().enumerate() {
            let twice = self.parallel[..index].iter().any(|other| other.pattern == fit.pattern);
            require(!twice, format!("parallel[{index}].pattern"), || {
                format!("'{}' has a fit already: write one", fit.pattern)
            })?;
        }
        // A logarithm, no share: on a machine that does much else calibrations have come to more than 1.
        require((0.0..=10.0).contains(&self.model.residual), "model.residual", || {
            format!("{} cannot be: write a number from 0 to 10", self.model.residual)
        })?;
        require(self.cache.is_none_or(|cache| cache.node_bytes.0 > 0), "cache.node_bytes", || {
            "0 cannot be: leave [cache] out where nothing is kept".to_owned()
        })?;
        self.check_streams()?;
        self.check_files()?;
        self.check_interleaved()
    }

    fn check_ranges(&self) -> Result<(), Contradiction> {
        let range = &self.range;
        let made = &self.made;
        for (key, span, used) in [
            ("files", range.files, None),
            ("bytes", range.bytes, None),
            ("processes", range.processes, None),
            ("nodes", range.nodes, None),
            ("record_bytes", range.record_bytes, Some(made.record_bytes.0)),
            ("buffer_bytes", range.buffer_bytes, Some(made.buffer_bytes.0)),
        ] {
            let key = format!("range.{key}");
            let Span { least, most } = span;
            require(least > 0, key.as_str(), || {
                "0 cannot be: write the least and the most that was measured".to_owned()
            })?;
            require(least <= most, key.as_str(), || {
                format!("{least} to {most} is empty: write the least first")
            })?;
            if let Some(used) = used {
                require((least..=most).contains(&used), key, || {
                    format!("{least} to {most} leaves out {used}, which [made] says the runs had")
                })?;
            }
        }
        Ok(())
    }

    fn check_streams(&self) -> Result<(), Contradiction> {
        let range = &self.range;
        for (index, row) in self.streams.iter().enumerate() {
            let key = |name: &str| format!("streams[{index}].{name}");
            for (name, number, span) in
                [("processes", row.processes, range.processes), ("nodes", row.nodes, range.nodes)]
            {
                require((span.least..=span.most).contains(&u64::from(number)), key(name), || {
                    format!("{number} is not within range.{name}, {} to {}", span.least, span.most)
                })?;
            }
            let same =
                |other: &Streams| (other.nodes, other.processes) == (row.nodes, row.processes);
            require(!self.streams[..index].iter().any(same), key("processes"), || {
                format!(
                    "{} processes on {} nodes have a row already: write one",
                    row.processes, row.nodes
                )
            })?;
        }
        let alone = self.streams.iter().any(|row| (row.nodes, row.processes) == (1, 1));
        require(alone || self.streams.is_empty(), "streams", || {
            "one process on one node is missing, which all others are held against".to_owned()
        })?;
        let Some(write_back) = self.write_back else { return Ok(()) };
        let fastest = self.streams.iter().filter_map(|row| row.write_mib_per_s);
        let fastest = fastest.fold(self.sequential.write_mib_per_s.number(), |fastest, rate| {
            fastest.max(rate.number())
        });
        require(
            write_back.sustained_mib_per_s.number() <= fastest,
            "write_back.sustained_mib_per_s",
            || {
                format!(
                    "{} is more than writing into memory has, {fastest}: leave [write_back] out \
                     where nothing is taken in",
                    write_back.sustained_mib_per_s.number()
                )
            },
        )
    }

    fn check_files(&self) -> Result<(), Contradiction> {
        let range = &self.range;
        for (index, row) in self.files.iter().enumerate() {
            let key = |name: &str| format!("files[{index}].{name}");
            for (name, number, span) in
                [("processes", row.processes, range.processes), ("nodes", row.nodes, range.nodes)]
            {
                require((span.least..=span.most).contains(&u64::from(number)), key(name), || {
                    format!("{number} is not within range.{name}, {} to {}", span.least, span.most)
                })?;
            }
            require(row.file_bytes.0 > 0, key("file_bytes"), || {
                "0 cannot be: write the size of the files".to_owned()
            })?;
            let same = |other: &FileCosts| {
                (other.nodes, other.processes, other.file_bytes)
                    == (row.nodes, row.processes, row.file_bytes)
            };
            require(!self.files[..index].iter().any(same), key("file_bytes"), || {
                format!("files of {} bytes have a row already: write one", row.file_bytes.0)
            })?;
        }
        Ok(())
    }

    fn check_interleaved(&self) -> Result<(), Contradiction> {
        for (index, row) in self.interleaved.iter().enumerate() {
            let key = || format!("interleaved[{index}].files");
            require(row.files > 0, key(), || "0 cannot be: write 1 or more".to_owned())?;
            let twice = self.interleaved[..index].iter().any(|other| other.files == row.files);
            require(!twice, key(), || {
                format!("{} files have a row already: write one", row.files)
            })?;
        }
        let alone = self.interleaved.iter().any(|row| row.files == 1);
        require(alone || self.interleaved.is_empty(), "interleaved", || {
            "one file is missing, which all others are held against".to_owned()
        })
    }
}
