//! The first line of a script.

/// What the kernel looks at of it, in bytes with the `#!`.
const LINE_BYTES: usize = 256;

/// A program that is run by an interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Path of the interpreter.
    pub interpreter: Vec<u8>,
    /// What stands behind it on the line: at most one argument.
    pub argument: Option<Vec<u8>>,
}

impl Script {
    /// Reads what follows the `#!`; `None` if no interpreter is named.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let line = &line[..line.len().min(LINE_BYTES - b"#!".len())];
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
        let mut words = line.splitn(2, |byte| matches!(byte, b' ' | b'\t'));
        let interpreter = words.next().filter(|word| !word.is_empty())?.to_vec();
        let argument = words.next().map(<[u8]>::trim_ascii).filter(|text| !text.is_empty());
        Some(Self { interpreter, argument: argument.map(<[u8]>::to_vec) })
    }

    /// The program that `env` would run, if that is the interpreter.
    #[must_use]
    pub fn env_target(&self) -> Option<&[u8]> {
        if self.interpreter.rsplit(|byte| *byte == b'/').next() != Some(b"env") {
            return None;
        }
        self.argument
            .as_deref()?
            .split(u8::is_ascii_whitespace)
            .find(|word| !word.is_empty() && !word.starts_with(b"-") && !word.contains(&b'='))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(interpreter: &[u8], argument: Option<&[u8]>) -> Script {
        let argument = argument.map(<[u8]>::to_vec);
        Script { interpreter: interpreter.to_vec(), argument }
    }

    #[test]
    fn scripts_name_their_interpreter() {
        assert_eq!(Script::parse(b"/bin/sh\necho"), Some(script(b"/bin/sh", None)));
        assert_eq!(
            Script::parse(b" /usr/bin/env  python3 -u \n"),
            Some(script(b"/usr/bin/env", Some(b"python3 -u")))
        );
        assert_eq!(Script::parse(b"/bin/awk -f"), Some(script(b"/bin/awk", Some(b"-f"))));
        assert_eq!(Script::parse(b"\n"), None);
        assert_eq!(Script::parse(b""), None);
    }

    #[test]
    fn env_runs_the_first_word_that_is_neither_option_nor_variable() {
        let target = |line: &[u8]| {
            let script = Script::parse(line)?;
            script.env_target().map(<[u8]>::to_vec)
        };
        assert_eq!(target(b"/usr/bin/env -S A=b python3 -u"), Some(b"python3".to_vec()));
        assert_eq!(target(b"/usr/bin/env -i"), None);
        assert_eq!(target(b"/bin/sh -e"), None);
    }
}
