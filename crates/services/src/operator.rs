//! How each kind of service is spoken to: endpoint, settings of its users' environment, retries. Reads and
//! writes nothing itself. A path of a service counts from its root, never from a place of `opendal`'s own,
//! which it would make if it is not there.

use std::env;
use std::time::Duration;

use opendal::layers::{HttpClientLayer, RetryEvent, RetryInterceptor, RetryLayer};
use opendal::raw::HttpClient;
use opendal::services::{S3, Sftp, Webdav, Webhdfs};
use opendal::{Builder, Operator};

use crate::address::{Address, Kind};

const CONNECT_TIME: Duration = Duration::from_secs(10);
/// A connection on which nothing is acknowledged for so long is dead.
const SILENCE: Duration = Duration::from_secs(30);
const RETRIES: usize = 3;
const RETRY_PAUSE: Duration = Duration::from_millis(200);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);

/// The first of these variables that says something.
fn variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()))
}

/// A client for HTTP services.
///
/// # Errors
/// If the host's certificates cannot be read.
pub(crate) fn http_client() -> Result<reqwest::Client, String> {
    // Another part of the process may have chosen already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .connect_timeout(CONNECT_TIME)
        .tcp_user_timeout(SILENCE)
        .tcp_keepalive(SILENCE / 2)
        .user_agent(concat!("azekura/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| {
            let cause = std::error::Error::source(&error);
            let cause = cause.map_or_else(|| error.to_string(), ToString::to_string);
            format!("cannot make an HTTP client: {cause}; are ca-certificates installed?")
        })
}

/// The operator for an address.
///
/// # Errors
/// A sentence about the setting that is wrong or missing.
pub(crate) fn operator(address: &Address, http: &reqwest::Client) -> Result<Operator, String> {
    match address.kind {
        Kind::Local => Err(format!("{address} is a directory of this host")),
        Kind::S3 => finish(s3(address)?, http, address),
        Kind::WebDav => finish(webdav(address), http, address),
        Kind::Sftp => finish(sftp(address)?, http, address),
        Kind::WebHdfs => finish(webhdfs(address), http, address),
    }
}

fn finish(
    builder: impl Builder,
    http: &reqwest::Client,
    address: &Address,
) -> Result<Operator, String> {
    let retry = RetryLayer::new()
        .with_max_times(RETRIES)
        .with_min_delay(RETRY_PAUSE)
        .with_max_delay(RETRY_PAUSE_MAX)
        .with_jitter()
        .with_notify(Quiet);
    let operator =
        Operator::new(builder).map_err(|error| format!("{address}: {}", error.message()))?;
    let http = HttpClientLayer::new(HttpClient::with(http.clone()));
    Ok(operator.layer(http).layer(retry).finish())
}

/// What helps at the second try is nobody's business.
struct Quiet;

impl RetryInterceptor for Quiet {
    fn intercept(&self, event: RetryEvent<'_>) {
        tracing::debug!("a service is asked again: {}", event.err.message());
    }
}

fn s3(address: &Address) -> Result<S3, String> {
    let endpoint = address.setting("endpoint").or_else(|| {
        variable(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_S3_ENDPOINT"])
    });
    let region =
        address.setting("region").or_else(|| variable(&["AWS_REGION", "AWS_DEFAULT_REGION"]));
    let region = match region {
        Some(region) => region,
        // Others than Amazon do not care, and this is what they expect.
        None if endpoint.is_some() => "us-east-1".to_owned(),
        None => {
            return Err(format!(
                "{address}: the region is not known: set AWS_REGION or add ?region=NAME; for a \
                 service that is not Amazon's add ?endpoint=URL"
            ));
        }
    };
    let mut s3 = S3::default().bucket(&address.host).region(&region).root("/");
    let no_metadata = variable(&["AWS_EC2_METADATA_DISABLED"]).is_some_and(|value| value == "true");
    // The keys of this machine are for Amazon alone.
    if no_metadata || endpoint.is_some() {
        s3 = s3.disable_ec2_metadata();
    }
    if let Some(endpoint) = endpoint {
        s3 = s3.endpoint(&endpoint);
    }
    if address.is_set("virtual_host")? {
        s3 = s3.enable_virtual_host_style();
    }
    if address.is_set("anonymous")? {
        s3 = s3.skip_signature();
    }
    if let Some(checksum) = address.setting("checksum") {
        s3 = s3.checksum_algorithm(&checksum);
    }
    if let Some(class) = address.setting("storage_class") {
        s3 = s3.default_storage_class(&class);
    }
    Ok(s3)
}

/// The address of an HTTP service, without a path.
pub(crate) fn endpoint(address: &Address) -> String {
    let scheme = if address.is_tls { "https" } else { "http" };
    let port = address.port.map_or_else(String::new, |port| format!(":{port}"));
    format!("{scheme}://{}{port}", address.host)
}

fn webdav(address: &Address) -> Webdav {
    let mut webdav = Webdav::default().endpoint(&endpoint(address)).root("/");
    let user = address.user.clone().or_else(|| address.setting("user"));
    if let Some(user) = user.or_else(|| variable(&["WEBDAV_USERNAME"])) {
        webdav = webdav.username(&user);
    }
    if let Some(password) = variable(&["WEBDAV_PASSWORD"]) {
        webdav = webdav.password(&password);
    }
    if let Some(token) = variable(&["WEBDAV_TOKEN"]) {
        webdav = webdav.token(&token);
    }
    webdav
}

fn sftp(address: &Address) -> Result<Sftp, String> {
    let port = address.port.map_or_else(String::new, |port| format!(":{port}"));
    let endpoint = format!("ssh://{}{port}", address.host);
    let mut sftp = Sftp::default().endpoint(&endpoint).root("/");
    if let Some(user) = &address.user {
        sftp = sftp.user(user);
    }
    if let Some(key) = address.setting("key") {
        sftp = sftp.key(&key);
    }
    match address.setting("known_hosts").as_deref() {
        None => {}
        Some(how @ ("strict" | "add" | "accept")) => sftp = sftp.known_hosts_strategy(how),
        Some(other) => {
            return Err(format!(
                "{address}: known_hosts={other} means nothing: write strict (what ssh knows), add \
                 (new hosts too) or accept (all)"
            ));
        }
    }
    Ok(sftp)
}

/// The user of a WebHDFS service, and a delegation token.
pub(crate) fn hdfs_user(address: &Address) -> (Option<String>, Option<String>) {
    let user = address.user.clone().or_else(|| address.setting("user"));
    (user.or_else(|| variable(&["HADOOP_USER_NAME"])), variable(&["WEBHDFS_DELEGATION"]))
}

fn webhdfs(address: &Address) -> Webhdfs {
    // In one answer: the pages of this library's listings break at some names.
    let mut hdfs = Webhdfs::default().endpoint(&endpoint(address)).root("/").disable_list_batch();
    let (user, delegation) = hdfs_user(address);
    if let Some(user) = user {
        hdfs = hdfs.user_name(&user);
    }
    if let Some(delegation) = delegation {
        hdfs = hdfs.delegation(&delegation);
    }
    hdfs
}
