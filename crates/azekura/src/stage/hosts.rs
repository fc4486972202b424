//! The nodes of a job: from the command line, a file, or the batch system. Owns the form of lists of hosts,
//! which is that of SLURM: `n[01-16],login,gpu[1-2]-ib[0-1]`.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::outcome::usage;

/// Nodes of a job at most.
pub(super) const HOSTS_MAX: usize = 4096;
/// Digits of a number in brackets at most.
const DIGITS_MAX: usize = 9;
const SLURM_HOSTS: [&str; 2] = ["SLURM_JOB_NODELIST", "SLURM_NODELIST"];

/// The nodes, by what the user has said.
///
/// # Errors
/// If there are none, too many, or their list is not one.
pub(crate) fn find(hosts: Option<&str>, hostfile: Option<&Path>) -> Result<Vec<String>> {
    let hosts = if let Some(text) = hosts {
        let hosts = expand(text).map_err(|why| usage(format!("--hosts: {why}")))?;
        let mut seen = HashSet::new();
        if let Some(again) = hosts.iter().find(|host| !seen.insert(*host)) {
            return Err(usage(format!("--hosts: '{again}' is named twice")));
        }
        hosts
    } else if let Some(file) = hostfile {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the host file {}", file.display()))?;
        of_file(&text).map_err(|why| usage(format!("host file {}: {why}", file.display())))?
    } else {
        let list = SLURM_HOSTS.iter().find_map(|name| Some((name, std::env::var(name).ok()?)));
        let Some((name, text)) = list else {
            return Err(usage(
                "which hosts are the job's? Name them by --hosts H1,H2 or --hostfile FILE, or run this \
                 within a SLURM job",
            ));
        };
        expand(&text).map_err(|why| usage(format!("{name}: {why}")))?
    };
    if hosts.is_empty() {
        return Err(usage("the list of hosts is empty: name one at least"));
    }
    Ok(hosts)
}

/// The first word of each line; `#` begins a comment. Batch systems name a host once for each processor.
fn of_file(text: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    let mut seen = HashSet::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let Some(word) = line.split_whitespace().next() else { continue };
        for host in expand(word)? {
            if seen.insert(host.clone()) {
                hosts.push(host);
            }
        }
        check_count(hosts.len())?;
    }
    Ok(hosts)
}

/// The names in a list.
pub(super) fn expand(text: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for word in split_outside_brackets(text)? {
        if word.trim().is_empty() {
            continue;
        }
        expand_word(word.trim(), &mut hosts)?;
    }
    Ok(hosts)
}

fn split_outside_brackets(text: &str) -> Result<Vec<&str>, String> {
    let (mut words, mut from, mut within) = (Vec::new(), 0, false);
    for (at, character) in text.char_indices() {
        match character {
            '[' if !within => within = true,
            ']' if within => within = false,
            '[' | ']' => return Err(format!("'{text}': brackets do not fit together")),
            ',' if !within => {
                words.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    if within {
        return Err(format!("'{text}': a bracket is not closed"));
    }
    words.push(&text[from..]);
    Ok(words)
}

fn expand_word(word: &str, hosts: &mut Vec<String>) -> Result<(), String> {
    let mut names = vec![String::new()];
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('[') {
        // Brackets were found to fit together.
        let (ranges, after) = after.split_once(']').unwrap_or((after, ""));
        let numbers = expand_ranges(ranges).map_err(|why| format!("'{word}': {why}"))?;
        check_count(hosts.len() + names.len() * numbers.len())?;
        names = names
            .iter()
            .flat_map(|name| numbers.iter().map(move |number| format!("{name}{before}{number}")))
            .collect();
        rest = after;
    }
    for name in &mut names {
        name.push_str(rest);
        check_name(name)?;
    }
    hosts.append(&mut names);
    check_count(hosts.len())
}

/// `001-003,7` as numbers with their leading zeros.
fn expand_ranges(text: &str) -> Result<Vec<String>, String> {
    let mut numbers = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let is_number = !text.is_empty()
                && text.len() <= DIGITS_MAX
                && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse::<usize>().ok()).flatten()
        };
        let (Some(from), Some(to)) = (number(first), number(last)) else {
            return Err(format!("'{range}' in brackets is no number and no range"));
        };
        if to < from {
            return Err(format!("the range '{range}' ends before it begins"));
        }
        check_count(numbers.len().saturating_add(to - from + 1))?;
        let width = first.len();
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

fn check_count(count: usize) -> Result<(), String> {
    if count > HOSTS_MAX {
        return Err(format!("more than {HOSTS_MAX} hosts"));
    }
    Ok(())
}

/// A name goes into command lines: one that begins with a dash would be an option there.
fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@%".contains(&byte);
    if name.is_empty() || name.starts_with('-') || !name.bytes().all(is_plain) {
        return Err(format!("'{name}' is not the name of a host"));
    }
    Ok(())
}

/// A host's own name, without the user who logs in.
pub(super) fn bare(host: &str) -> &str {
    host.rsplit_once('@').map_or(host, |(_, name)| name)
}

/// Whether a name means the host that this process is on.
pub(super) fn is_here(host: &str) -> bool {
    if host == "localhost" {
        return true;
    }
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    // Where both are long they have to agree in all; a short name stands for the long one.
    host == own || (!(host.contains('.') && own.contains('.')) && short(host) == short(&own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        expand(text).unwrap()
    }

    #[test]
    fn lists_are_read_as_slurm_writes_them() {
        assert_eq!(names("a,b"), ["a", "b"]);
        assert_eq!(names("n[001-003,007],login"), ["n001", "n002", "n003", "n007", "login"]);
        assert_eq!(names("r[1-2]-n[09-10].x"), ["r1-n09.x", "r1-n10.x", "r2-n09.x", "r2-n10.x"]);
        assert_eq!(names("n[8-11]"), ["n8", "n9", "n10", "n11"]);
        assert_eq!(names("me@a, b,"), ["me@a", "b"]);
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in [
            "n[1-",
            "n]1[",
            "n[[1]]",
            "n[2-1]",
            "n[a]",
            "n[]",
            "n[1-9999999999]",
            "-oProxy",
            "a b",
            "n[1-5000]",
            "a[1-100]b[1-100]",
            "x;y",
        ] {
            assert!(expand(text).is_err(), "{text}");
        }
        assert!(find(Some("a,a"), None).unwrap_err().to_string().contains("twice"));
        assert!(find(Some(","), None).unwrap_err().to_string().contains("empty"));
    }

    #[test]
    fn a_file_names_hosts_once_or_for_each_processor() {
        let text = "# all\nn1 slots=4\n\nn2\nn2\nn1\nb[1-2]  # two\n";
        assert_eq!(of_file(text).unwrap(), ["n1", "n2", "b1", "b2"]);
        assert!(of_file("-x").is_err());
    }

    #[test]
    fn this_host_is_known_by_its_names() {
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        assert!(is_here("localhost") && is_here(&own));
        assert!(!is_here(&format!("{own}x")));
        assert_eq!((bare("me@a.b"), bare("a")), ("a.b", "a"));
    }
}
