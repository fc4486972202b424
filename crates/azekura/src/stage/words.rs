//! The command line that starts another command on a host: what the user's template says, or srun, or ssh.
//! Owns how words are split and quoted. Nothing secret is ever in it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use anyhow::Result;

use super::hosts;
use crate::outcome::usage;

const HOST: &str = "{host}";
const COMMAND: &str = "{command}";

/// How commands are started on hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Launcher {
    /// The words of a template.
    Template(Vec<String>),
    /// The batch system's own, on hosts other than this.
    Srun,
    /// By ssh, on hosts other than this.
    Ssh,
}

impl Launcher {
    /// What the user has said, or else what suits where this process is.
    ///
    /// # Errors
    /// If the template cannot be one.
    pub(crate) fn choose(template: Option<&str>) -> Result<Self> {
        match template {
            Some(text) => parse(text).map_err(|why| usage(format!("--launch '{text}': {why}"))),
            None if std::env::var_os("SLURM_JOB_ID").is_some() => Ok(Self::Srun),
            None => Ok(Self::Ssh),
        }
    }

    /// The words that start `command` on a host.
    pub(crate) fn words(&self, host: &str, command: &[OsString]) -> Vec<OsString> {
        let with = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        match self {
            Self::Template(words) => {
                words.iter().flat_map(|word| fill(word, host, command)).collect()
            }
            _ if hosts::is_here(host) => command.to_vec(),
            Self::Srun => {
                let mut words =
                    with(&["srun", "--nodes=1", "--ntasks=1", "--overlap", "--unbuffered"]);
                words.push(format!("--nodelist={host}").into());
                words.extend_from_slice(command);
                words
            }
            Self::Ssh => {
                let mut words =
                    with(&["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "--", host]);
                words.push(quoted(command));
                words
            }
        }
    }
}

/// One word of a template. Where the command stands alone it is several words, as programs take it that
/// run them; ssh joins them with blanks and comes to the same. Within a longer word it is text for a shell.
fn fill(word: &str, host: &str, command: &[OsString]) -> Vec<OsString> {
    if word == COMMAND {
        return command.to_vec();
    }
    let word = word.replace(HOST, host);
    let Some((before, after)) = word.split_once(COMMAND) else { return vec![word.into()] };
    let mut text = OsString::from(before);
    text.push(quoted(command));
    text.push(after);
    vec![text]
}

fn parse(text: &str) -> Result<Launcher, String> {
    let words = split(text)?;
    for needed in [HOST, COMMAND] {
        if !words.iter().any(|word| word.contains(needed)) {
            return Err(format!("{needed} has to be in it, as in 'ssh {HOST} {COMMAND}'"));
        }
    }
    if words[0].contains(COMMAND) {
        return Err(format!("it begins with {COMMAND}: what starts it comes first"));
    }
    Ok(Launcher::Template(words))
}

/// Splits text into words as a shell does: blanks, both kinds of quotes, backslashes.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (_, Some(open)) if character == open => quote = None,
            ('\\', None | Some('"')) => match characters.next() {
                Some(next) => word.get_or_insert_default().push(next),
                None => return Err("nothing follows the backslash at its end".to_owned()),
            },
            (' ' | '\t' | '\n', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".to_owned());
    }
    words.extend(word);
    if words.is_empty() {
        return Err("it is empty".to_owned());
    }
    Ok(words)
}

/// Words as text that a shell reads as those words.
pub(super) fn quoted(words: &[OsString]) -> OsString {
    let mut text = Vec::new();
    for word in words {
        if !text.is_empty() {
            text.push(b' ');
        }
        quote_into(&mut text, word);
    }
    OsString::from_vec(text)
}

fn quote_into(text: &mut Vec<u8>, word: &OsStr) {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_./=:@%+,".contains(byte);
    if !word.is_empty() && word.as_bytes().iter().all(is_plain) {
        text.extend_from_slice(word.as_bytes());
        return;
    }
    text.push(b'\'');
    for byte in word.as_bytes() {
        match byte {
            b'\'' => text.extend_from_slice(b"'\\''"),
            byte => text.push(*byte),
        }
    }
    text.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> Vec<OsString> {
        ["/opt/az kura/azekura", "stage", "agent"].map(OsString::from).to_vec()
    }

    fn filled(template: &str) -> Vec<OsString> {
        parse(template).unwrap().words("n1", &agent())
    }

    #[test]
    fn a_command_is_words_where_it_stands_alone() {
        assert_eq!(
            filled("azekura-lab netlab exec {host} -- {command}"),
            ["azekura-lab", "netlab", "exec", "n1", "--", "/opt/az kura/azekura", "stage", "agent"]
        );
        assert_eq!(
            filled("ssh -p 22 me@{host} 'exec {command}'"),
            ["ssh", "-p", "22", "me@n1", "exec '/opt/az kura/azekura' stage agent"]
        );
    }

    #[test]
    fn a_template_needs_both_places() {
        for text in
            ["ssh {host}", "run {command}", "", "ssh {host} '{command}", "{command} {host}", "\\"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn text_is_split_as_a_shell_does() {
        let words = split(r#"a  'b c' "d\"e" f\ g '' h'i'j"#).unwrap();
        assert_eq!(words, ["a", "b c", "d\"e", "f g", "", "hij"]);
    }

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        let words = ["a b", "it's", "", "$x", "-v"].map(OsString::from);
        let mut script = OsString::from("printf '%s\\n' ");
        script.push(quoted(&words));
        let said = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
        assert_eq!(said.stdout, b"a b\nit's\n\n$x\n-v\n");
    }

    #[test]
    fn hosts_without_a_template_are_reached_by_ssh_and_this_one_directly() {
        assert_eq!(Launcher::Ssh.words("localhost", &agent()), agent());
        let words = Launcher::Ssh.words("far.example", &agent());
        assert_eq!(words.first().unwrap(), "ssh");
        assert_eq!(words.last().unwrap(), "'/opt/az kura/azekura' stage agent");
    }
}
