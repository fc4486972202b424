//! What pages and pictures are called, in words, and which figure of which paper each is the twin of. Owns
//! these names alone; what is measured and drawn stands with the experiments.

/// The adaptive remote access paper, the PVFS-NFS proxy paper, the DAOS file system paper and the one on
/// grid-batch forecasting, as pages call them.
const ADAPTIVE: &str = "the paper on adaptive remote access";
const PROXY: &str = "the paper on a PVFS-NFS proxy";
const DAOS: &str = "the DAOS file system paper";
const FORECAST: &str = "the paper on grid-batch forecasting";

/// Titles of a page.
pub(super) struct Twin {
    /// Name of the experiment.
    name: &'static str,
    /// Over its page.
    pub(super) title: &'static str,
    /// Figures or section of a paper, and the paper; empty if it has no twin.
    of: (&'static str, &'static str),
    /// Pictures: file, title, and number of the paper's figure, if it is the twin of one.
    pictures: &'static [(&'static str, &'static str, &'static str)],
}

impl Twin {
    /// Of which figure it is the twin, as the end of a sentence.
    pub(super) fn of(&self) -> Option<String> {
        let (figures, paper) = self.of;
        (!paper.is_empty()).then(|| format!("{figures} of {paper}"))
    }
}

/// The titles of an experiment's page.
pub(super) fn page(name: &str) -> Option<&'static Twin> {
    TWINS.iter().find(|twin| twin.name == name)
}

/// The title of a picture, with the paper's number; `otherwise` where none stands here.
pub(super) fn picture(name: &str, file: &str, otherwise: &str) -> String {
    let found = page(name).and_then(|twin| twin.pictures.iter().find(|(of, ..)| *of == file));
    match found {
        Some((_, title, "")) => (*title).to_owned(),
        Some((_, title, figure)) => format!("{title} (figure {figure})"),
        None => otherwise.to_owned(),
    }
}

const SEQUENTIAL: &str = "Front to back";
const SMALL_STRIDE: &str = "512 KiB read, 3 MiB left out";
const STRIDE: &str = "3 MiB read, 6 MiB left out";
const LARGE_STRIDE: &str = "256 MiB read, 768 MiB left out";
const RANDOM_STRIDE: &str = "512 KiB read, seeks of -2.5 to 5.5 MiB";
const RANDOM: &str = "8 MiB anywhere in 4 GiB";
const MIXED: &str = "50 MiB front to back, then 25 gaps, in turn";
const MIXED_P: &str = "25 MiB front to back, then 50 gaps, in turn";
const SHIFT: &str = "1 GiB front to back, then sparse";

const TWINS: &[Twin] = &[
    Twin {
        name: "daos-transfer",
        title: "Bandwidth by transfer size",
        of: ("Figures 4 and 5", DAOS),
        pictures: &[
            ("read", "Read, files on one target", "4, left"),
            ("write", "Write, files on one target", "4, right"),
            ("read-sharded", "Read, files on all targets", "5, left"),
            ("write-sharded", "Write, files on all targets", "5, right"),
        ],
    },
    Twin {
        name: "daos-chunk",
        title: "Bandwidth by chunk size",
        of: ("Figure 6", DAOS),
        pictures: &[
            ("read", "Read, files on one target", "6, left"),
            ("write", "Write, files on one target", "6, right"),
            ("read-sharded", "Read, files on all targets", ""),
            ("write-sharded", "Write, files on all targets", ""),
        ],
    },
    Twin {
        name: "daos-targets",
        title: "Bandwidth and metadata by number of targets",
        of: ("Figure 7", DAOS),
        pictures: &[
            ("bandwidth", "Bandwidth by targets", "7"),
            ("metadata", "Metadata by targets", "7"),
        ],
    },
    Twin {
        name: "daos-workers",
        title: "Busy cores by number of processes",
        of: ("What is behind figure 7", DAOS),
        pictures: &[],
    },
    Twin {
        name: "daos-metadata",
        title: "Metadata by number of processes",
        of: ("Figure 8", DAOS),
        pictures: &[("metadata", "Metadata in one directory", "8")],
    },
    Twin {
        name: "daos-access",
        title: "Bandwidth by access path",
        of: ("Figure 9", DAOS),
        pictures: &[
            ("read", "Read by access path", "9, left"),
            ("write", "Write by access path", "9, right"),
        ],
    },
    Twin {
        name: "daos-access-metadata",
        title: "Metadata by access path",
        of: ("Section 4.6, without a figure,", DAOS),
        pictures: &[],
    },
    Twin {
        name: "daos-ior",
        title: "IOR's own runs beside ours",
        of: ("Figures 5 and 9 once more", DAOS),
        pictures: &[],
    },
    Twin {
        name: "daos-mdtest",
        title: "mdtest's own runs beside ours",
        of: ("Figure 8 once more", DAOS),
        pictures: &[],
    },
    Twin {
        name: "wan-fixed",
        title: "Fixed sizes of requests over distance",
        of: ("Figures 3 to 7", ADAPTIVE),
        pictures: &[
            ("sequential", SEQUENTIAL, "3"),
            ("stride-512K-3M", SMALL_STRIDE, "4"),
            ("stride-3M-6M", STRIDE, "5"),
            ("stride-256M-768M", LARGE_STRIDE, "6"),
            ("random-stride", RANDOM_STRIDE, ""),
            ("random-8M", RANDOM, "7"),
            ("mixed", MIXED, ""),
            ("mixed-p", MIXED_P, ""),
            ("shift", SHIFT, ""),
        ],
    },
    Twin {
        name: "wan-policies",
        title: "Read policies over distance",
        of: ("Figures 13 to 19", ADAPTIVE),
        pictures: &[
            ("sequential", SEQUENTIAL, "13"),
            ("stride-512K-3M", SMALL_STRIDE, "14"),
            ("stride-3M-6M", STRIDE, "15"),
            ("stride-256M-768M", LARGE_STRIDE, "16"),
            ("random-stride", RANDOM_STRIDE, "17"),
            ("random-8M", RANDOM, "18"),
            ("mixed", MIXED, "19"),
            ("mixed-p", MIXED_P, ""),
            ("shift", SHIFT, ""),
        ],
    },
    Twin {
        name: "wan-sizes",
        title: "Sizes of requests that sync-adaptive chooses",
        of: ("Tables 1 to 5", ADAPTIVE),
        pictures: &[
            ("sequential", "Chosen sizes, front to back (table 1)", ""),
            ("stride-512K-3M", "Chosen sizes, 512 KiB read, 3 MiB left out (table 2)", ""),
            ("stride-3M-6M", "Chosen sizes, 3 MiB read, 6 MiB left out (table 3)", ""),
            ("stride-256M-768M", "Chosen sizes, 256 MiB read, 768 MiB left out (table 4)", ""),
            ("random-8M", "Chosen sizes, 8 MiB anywhere in 4 GiB (table 5)", ""),
        ],
    },
    Twin {
        name: "wan-p",
        title: "Requests between attempts to grow",
        of: ("Figures 11 and 12", ADAPTIVE),
        pictures: &[
            ("stride-512K-3M", "512 KiB read, 3 MiB left out, by p", "11"),
            ("mixed-p", "25 MiB front to back, then 50 gaps, in turn, by p", "12"),
        ],
    },
    Twin {
        name: "wan-existing",
        title: "Requests of one fixed size, near and far",
        of: ("Figure 1", ADAPTIVE),
        pictures: &[("existing", "Requests of 1 MiB, near and far", "1")],
    },
    Twin {
        name: "wan-overhead",
        title: "What the bookkeeping of sync-adaptive costs",
        of: ("Section 5.5", ADAPTIVE),
        pictures: &[],
    },
    Twin {
        name: "wan-rates",
        title: "Read policies over links of other rates",
        of: ("", ""),
        pictures: &[],
    },
    Twin {
        name: "wan-engines",
        title: "A file over engines at different distances",
        of: ("", ""),
        pictures: &[],
    },
    Twin {
        name: "wan-change",
        title: "Read policies while the link changes",
        of: ("", ""),
        pictures: &[],
    },
    Twin {
        name: "wan-trace",
        title: "Requests one by one, as the pattern shifts",
        of: ("Figure 10", ADAPTIVE),
        pictures: &[
            ("size", "Size of each request", "10"),
            ("utilisation", "Utilisation of each request", "10"),
        ],
    },
    Twin {
        name: "far-programs",
        title: "Programs on files that are far away",
        of: ("", ""),
        pictures: &[],
    },
    Twin {
        name: "far-engines",
        title: "Programs on far pools of several engines",
        of: ("", ""),
        pictures: &[],
    },
    Twin {
        name: "nfs-bandwidth",
        title: "NFS gateways: bandwidth by engines, gateways and clients",
        of: ("Figures 5 and 6", PROXY),
        pictures: &[
            ("write-engines", "Write by engines, 4 gateways and clients", "5"),
            ("read-engines", "Read by engines, 4 gateways and clients", "6"),
        ],
    },
    Twin {
        name: "nfs-paper",
        title: "NFS gateway: the stall of small writes",
        of: ("Section 4.1", PROXY),
        pictures: &[],
    },
    Twin {
        name: "nfs-build",
        title: "Time to build a source tree",
        of: ("Figure 3", PROXY),
        pictures: &[("make", "make by its jobs", "3")],
    },
    Twin {
        name: "staging-plan",
        title: "Staging to many nodes, in simulation",
        of: ("", ""),
        pictures: &[
            ("8-kib", "Time over the limit by nodes, 8 KiB", ""),
            ("1-mib", "Time over the limit by nodes, 1 MiB", ""),
            ("64-mib", "Time over the limit by nodes, 64 MiB", ""),
        ],
    },
    Twin {
        name: "forecast-paper",
        title: "Forecasts from the paper's constants",
        of: ("Figures 3 to 6 and table 4", FORECAST),
        pictures: &[
            ("figure-3a", "Simple runs by ratio of output to input", "3a"),
            ("figure-3b", "Splits by number of files", "3b"),
            ("figure-3c", "Merges by number of files", "3c"),
            ("figure-4", "HSFS, before and with metadata", "4"),
            ("figure-5", "Throughput by parallelism", "5"),
            ("figure-6", "Splits, nodes of 8 processes", "6"),
        ],
    },
    Twin {
        name: "forecast-accuracy",
        title: "Forecasts held against runs",
        of: ("", ""),
        pictures: &[],
    },
];

#[cfg(test)]
mod tests {
    use super::super::frame::Settings;
    use super::*;

    #[test]
    fn every_name_here_is_that_of_an_experiment_and_its_pictures() {
        let settings = Settings { quick: false, scale: 1.0, point_s: 1.0 };
        let experiments = super::super::every();
        for twin in TWINS {
            let experiment =
                experiments.iter().find(|experiment| experiment.name() == twin.name).unwrap();
            let figures = experiment.figures(&settings);
            for (file, ..) in twin.pictures {
                assert!(figures.iter().any(|figure| figure.file == *file), "{} {file}", twin.name);
            }
        }
    }

    #[test]
    fn pictures_carry_the_number_of_the_paper() {
        assert_eq!(
            picture("daos-metadata", "metadata", "x"),
            "Metadata in one directory (figure 8)"
        );
        assert_eq!(picture("daos-metadata", "nosuch", "as it is"), "as it is");
        assert_eq!(page("daos-chunk").unwrap().of().unwrap(), format!("Figure 6 of {DAOS}"));
        assert!(page("staging-plan").unwrap().of().is_none());
    }
}
