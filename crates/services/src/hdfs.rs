//! Renaming in HDFS, which the library that speaks WebHDFS does not offer: one request. The old file goes in
//! the same step, so that there is always one of the two.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::address::Address;
use crate::operator;

/// What stays as it is in a path.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// An answer has so many characters at most, in messages.
const ANSWER_CHARS_MAX: usize = 200;

/// A name node.
pub(crate) struct Hdfs {
    http: reqwest::Client,
    endpoint: String,
    user: Option<String>,
    delegation: Option<String>,
}

impl Hdfs {
    pub(crate) fn new(address: &Address, http: reqwest::Client) -> Self {
        let (user, delegation) = operator::hdfs_user(address);
        Self { http, endpoint: operator::endpoint(address), user, delegation }
    }

    fn url(&self, from: &str, to: &str) -> String {
        let encoded = |text: &str| utf8_percent_encode(text, PATH).to_string();
        let mut url = format!(
            "{}/webhdfs/v1/{}?op=RENAME&renameoptions=OVERWRITE&destination=/{}",
            self.endpoint,
            encoded(from),
            encoded(to)
        );
        // As the library does.
        for (name, value) in [("user.name", &self.user), ("delegation", &self.delegation)] {
            if let Some(value) = value {
                url.extend(["&", name, "=", &encoded(value)]);
            }
        }
        url
    }

    /// Renames a file, in the place of one that is there.
    ///
    /// # Errors
    /// If it could not be; the text says what the service has answered.
    pub(crate) async fn rename(&self, from: &str, to: &str) -> opendal::Result<()> {
        let failed = |why: String| opendal::Error::new(opendal::ErrorKind::Unexpected, why);
        let sent = self.http.put(self.url(from, to)).send().await;
        // An address that is repeated may hold the token.
        let answer = sent.map_err(|error| failed(error.without_url().to_string()))?;
        let status = answer.status();
        let text = answer.text().await.unwrap_or_default();
        if status.is_success() && !text.contains("false") {
            return Ok(());
        }
        let text: String = text.chars().take(ANSWER_CHARS_MAX).collect();
        Err(failed(format!("{status}: {text}")))
    }
}
