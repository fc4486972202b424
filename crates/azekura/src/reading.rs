//! How commands read and write files, as their options say. Owns the options `--read-policy`, `--trace` and
//! `--write-policy`, which are for files that are far away and of which the `policy` crate decides what they come
//! to, and `--descriptors`, which is for near ones.

use std::path::PathBuf;

use anyhow::Result;
use azekura_posix::{FsConfig, ReadPolicy, Trace, WritePolicy};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::host::places;

/// Whether files of engines on this host are read past them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Descriptors {
    /// Through descriptors that the engines pass, where they do
    Auto,
    /// By requests
    Off,
}

impl Descriptors {
    /// As it is typed.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Off => "off",
        }
    }
}

/// Options of every command that reads files.
#[derive(Clone, Debug, Default, Args, Serialize, Deserialize)]
pub struct ReadArgs {
    /// How files of distant pools are read: predictive [default], sync-adaptive, fixed=SIZE or off
    #[arg(long, value_name = "POLICY", value_parser = check_policy)]
    read_policy: Option<String>,
    /// How open files of engines on this host are read and written [default: auto; of a mount: off]
    #[arg(long, value_enum)]
    descriptors: Option<Descriptors>,
    /// Append what is asked for, and why, to this file; 'azekura trace' shows it
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// For commands that write as well: see `writing`.
    #[arg(skip)]
    write: WriteArgs,
}

/// Options of every command that writes files.
#[derive(Clone, Debug, Default, Args, Serialize, Deserialize)]
pub(crate) struct WriteArgs {
    /// How files of distant pools are written: auto [default] keeps writes in flight, through waits
    /// for the answer of each
    #[arg(long, value_name = "POLICY", value_parser = check_write_policy)]
    write_policy: Option<String>,
}

impl WriteArgs {
    /// The policy as text, if one was named.
    pub(crate) fn policy_text(&self) -> Option<&str> {
        self.write_policy.as_deref()
    }
}

fn check_write_policy(text: &str) -> Result<String, String> {
    match text.parse::<WritePolicy>() {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn check_policy(text: &str) -> Result<String, String> {
    match text.parse::<ReadPolicy>() {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl ReadArgs {
    /// Near files are read by requests, as those of other hosts are.
    #[must_use]
    pub fn by_requests() -> Self {
        Self { descriptors: Some(Descriptors::Off), ..Self::default() }
    }

    /// These, and how files are written.
    pub(crate) fn writing(&self, write: &WriteArgs) -> Self {
        Self { write: write.clone(), ..self.clone() }
    }

    /// The policy as text, if one was named.
    pub(crate) fn policy_text(&self) -> Option<&str> {
        self.read_policy.as_deref()
    }

    /// Whether files are read past engines, if that was said.
    pub(crate) fn descriptors(&self) -> Option<Descriptors> {
        self.descriptors
    }

    /// The absolute path of the trace, if one is wanted.
    ///
    /// # Errors
    /// If this process's directory is gone.
    pub(crate) fn trace_file(&self) -> Result<Option<PathBuf>> {
        self.trace.as_deref().map(places::absolute).transpose()
    }

    /// The options again, for a command that this one starts.
    ///
    /// # Errors
    /// As for [`Self::trace_file`].
    pub(crate) fn options(&self) -> Result<Vec<std::ffi::OsString>> {
        let mut all = Vec::new();
        if let Some(policy) = &self.read_policy {
            all.extend(["--read-policy".into(), policy.into()]);
        }
        if let Some(descriptors) = self.descriptors {
            all.extend(["--descriptors".into(), descriptors.text().into()]);
        }
        if let Some(trace) = self.trace_file()? {
            all.extend(["--trace".into(), trace.into()]);
        }
        if let Some(policy) = &self.write.write_policy {
            all.extend(["--write-policy".into(), policy.into()]);
        }
        Ok(all)
    }

    /// Puts them into the configuration of a file system.
    ///
    /// # Errors
    /// If the trace cannot be written.
    pub(crate) fn apply(&self, mut config: FsConfig) -> Result<FsConfig> {
        // It was looked at when the command line was read.
        let policy = self.read_policy.as_deref().map(str::parse::<ReadPolicy>).transpose()?;
        config.read_policy = policy.unwrap_or_default();
        let policy = self.write.write_policy.as_deref().map(str::parse::<WritePolicy>);
        config.write_policy = policy.transpose()?.unwrap_or_default();
        config.descriptors = self.descriptors != Some(Descriptors::Off);
        config.trace =
            self.trace.as_deref().map(|path| Trace::append_to(path, None)).transpose()?;
        Ok(config)
    }

    /// The same for a file system behind a kernel.
    ///
    /// # Errors
    /// As for [`Self::apply`].
    pub(crate) fn apply_to_mount(&self, config: FsConfig) -> Result<FsConfig> {
        let mut config = self.apply(config)?;
        config.descriptors = self.descriptors == Some(Descriptors::Auto);
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_checked_when_they_are_typed() {
        assert!(check_policy("fixed=1M").is_ok());
        assert!(check_policy("swift").unwrap_err().contains("sync-adaptive"));
        assert!(check_write_policy("through").is_ok());
        assert!(check_write_policy("always").unwrap_err().contains("auto"));
    }

    #[test]
    fn options_are_handed_on_as_they_were_given() {
        assert!(ReadArgs::default().options().unwrap().is_empty());
        let write = WriteArgs { write_policy: Some("through".into()) };
        let trace = Some("/tmp/t".into());
        let descriptors = Some(Descriptors::Off);
        let read_policy = Some("off".into());
        let args = ReadArgs { read_policy, descriptors, trace, ..ReadArgs::default() };
        let args = args.writing(&write);
        let wanted = "--read-policy off --descriptors off --trace /tmp/t --write-policy through";
        assert_eq!(args.options().unwrap(), wanted.split(' ').collect::<Vec<_>>());
        let config = ReadArgs { trace: None, ..args }.apply(FsConfig::default()).unwrap();
        assert_eq!(config.read_policy, ReadPolicy::Off);
        assert_eq!(config.write_policy, WritePolicy::Through);
        assert!(!config.descriptors);
    }

    #[test]
    fn mounts_read_past_engines_only_if_they_are_told_to() {
        let with = |descriptors| ReadArgs { descriptors, ..ReadArgs::default() };
        let usual = || FsConfig::default();
        assert!(with(None).apply(usual()).unwrap().descriptors);
        assert!(!with(None).apply_to_mount(usual()).unwrap().descriptors);
        assert!(with(Some(Descriptors::Auto)).apply_to_mount(usual()).unwrap().descriptors);
    }
}
