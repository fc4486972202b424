//! What `exports.toml` means, and what is said of one that means nothing.

use std::net::IpAddr;
use std::path::Path;

use azekura_posix::Credentials;
use azekura_proto::ContainerId;

use super::{Export, Exports, ExportsError, Flavour};

const CONTAINER: ContainerId = ContainerId(1);

fn parse(text: &str) -> Result<Exports, ExportsError> {
    Exports::parse(text, Path::new("exports.toml"), CONTAINER)
}

fn one(rules: &str) -> Export {
    let text = format!("[[export]]\npath = '/data'\nclients = ['10.0.0.0/8']\n{rules}\n");
    parse(&text).unwrap().iter().next().unwrap().clone()
}

fn caller(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
    Credentials { uid, gid, groups: groups.to_vec(), process: None }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn only_listed_clients_are_admitted() {
    let text = "[[export]]\npath = '/'\n\
        clients = ['127.0.0.0/8', '::1', '10.1.2.3', 'fd00::/8', '::ffff:10.9.9.9']\n";
    let exports = parse(text).unwrap();
    let export = exports.find("/").unwrap();
    let admitted = ["127.3.2.1", "::1", "10.1.2.3", "fd12::7", "10.9.9.9", "::ffff:127.0.0.1"];
    for client in admitted {
        assert!(export.admits(ip(client)), "{client}");
    }
    for client in ["128.0.0.1", "::2", "10.1.2.4", "fe80::1", "::ffff:10.1.2.4", "::127.0.0.1"] {
        assert!(!export.admits(ip(client)), "{client}");
    }
}

#[test]
fn root_is_squashed_unless_the_file_says_otherwise() {
    let export = one("");
    assert_eq!(export.credentials(0, 0, &[0, 5]), caller(65534, 65534, &[]));
    assert_eq!(export.credentials(7, 70, &[71, 72]), caller(7, 70, &[71, 72]));
    assert!(!export.is_read_only());
}

#[test]
fn nobody_keeps_the_group_of_root_under_root_squash() {
    let export = one("anonymous_gid = 99");
    assert_eq!(export.credentials(7, 0, &[0, 5, 0]), caller(7, 99, &[5]));
}

#[test]
fn squash_none_believes_the_client_and_squash_all_nobody() {
    let all = one("squash = 'all'\nanonymous_uid = 11\nanonymous_gid = 12");
    assert_eq!(all.credentials(7, 70, &[71]), caller(11, 12, &[]));
    assert_eq!(all.anonymous(), caller(11, 12, &[]));
    let none = one("squash = 'none'");
    assert_eq!(none.credentials(0, 0, &[0, 5]), caller(0, 0, &[0, 5]));
}

#[test]
fn groups_of_the_server_replace_those_that_the_client_sends() {
    let export = one("server_groups = true\nsquash = 'none'");
    let seen = export.credentials(0, 0, &[4321]);
    assert!(seen.groups.contains(&0) && !seen.groups.contains(&4321), "{seen:?}");
    assert!(export.credentials(3_999_999_999, 9, &[4321]).groups.is_empty());
}

#[test]
fn flavours_are_those_of_the_file() {
    assert!(one("").admits_flavour(Flavour::Sys) && !one("").admits_flavour(Flavour::None));
    let open = one("auth = ['none', 'sys']");
    assert_eq!(open.flavours(), [Flavour::None, Flavour::Sys]);
}

#[test]
fn a_path_belongs_to_the_innermost_export() {
    let text = "[[export]]\npath = '//data/.//a/'\nclients = ['::/0']\n\
        [[export]]\npath = '/data'\nclients = ['0.0.0.0/0']\n";
    let exports = parse(text).unwrap();
    let found = |path| exports.find(path).map(Export::path);
    assert_eq!(found("/data"), Some("/data"));
    assert_eq!(found("/data/"), Some("/data"));
    assert_eq!(found("/data/b/c"), Some("/data"));
    assert_eq!(found("/data/a"), Some("/data/a"));
    assert_eq!(found("/data/a/x"), Some("/data/a"));
    assert_eq!(found("/data/ab"), Some("/data"));
    for outside in ["/", "/dat", "/database", "data", "", "/data/../etc", "/data/a/.."] {
        assert_eq!(found(outside), None, "{outside}");
    }
}

#[test]
fn ids_find_exports_whatever_else_is_exported() {
    let alone = one("").id();
    let text = "[[export]]\npath = '/new'\nclients = ['::/0']\n\
        [[export]]\npath = '/data/'\nclients = ['::/0']\n";
    assert_eq!(parse(text).unwrap().by_id(alone).map(Export::path), Some("/data"));
    let elsewhere = Exports::parse(text, Path::new("x"), ContainerId(2)).unwrap();
    assert!(elsewhere.by_id(alone).is_none());
}

#[test]
fn the_default_is_for_this_host_alone() {
    let exports = Exports::whole_container_to_loopback(CONTAINER);
    let export = exports.find("/any/where").unwrap();
    assert_eq!(export.path(), "/");
    for client in ["127.0.0.1", "127.255.0.1", "::1", "::ffff:127.0.0.1"] {
        assert!(export.admits(ip(client)), "{client}");
    }
    for client in ["10.0.0.1", "::2", "0.0.0.0", "::"] {
        assert!(!export.admits(ip(client)), "{client}");
    }
    assert!(export.credentials_of(Some(1000), 0, 0, &[]).uid != 0);
}

#[test]
fn what_is_not_clear_is_refused_with_its_line() {
    let good = "[[export]]\npath = '/a'\nclients = ['::1']\n";
    let cases = [
        (String::new(), "exports.toml: nothing is exported"),
        (good.replace("'/a'", "'a'"), "exports.toml:2: 'a' is no path"),
        (good.replace("'/a'", "'/a/../b'"), "exports.toml:2: '/a/../b' is no path"),
        (good.replace("'::1'", ""), "exports.toml:3: /a is exported to nobody"),
        (good.replace("'::1'", "'::1',\n'host'"), "exports.toml:4: 'host' is neither"),
        (good.replace("::1", "10.0.0.0/33"), "exports.toml:3: '10.0.0.0/33' is neither"),
        (good.replace("::1", "::ffff:10.0.0.0/104"), "exports.toml:3: '::ffff:10.0.0.0/104'"),
        (
            format!("{good}{good}").replacen("'/a'", "'/a/'", 1),
            "exports.toml:5: /a is exported twice",
        ),
        (format!("{good}readonly = true\n"), "exports.toml:4: unknown field `readonly`"),
        (
            format!("{good}squash = 'root_squash'\n"),
            "exports.toml:4: unknown variant `root_squash`",
        ),
        (format!("{good}auth = ['krb5']\n"), "exports.toml:4: unknown variant `krb5`"),
        (format!("{good}auth = []\n"), "exports.toml:2: /a takes no credentials"),
        (format!("{good}anonymous_uid = -1\n"), "exports.toml:4: invalid value"),
        ("[[export]]\npath = '/a'\n".to_owned(), "exports.toml:1: missing field `clients`"),
        ("[[export]\n".to_owned(), "exports.toml:1: "),
    ];
    for (text, expected) in cases {
        let said = parse(&text).unwrap_err().to_string();
        assert!(said.starts_with(expected), "{said:?} for {text:?}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("exports.toml");
    let said = Exports::load(&path, CONTAINER).unwrap_err().to_string();
    assert!(said.contains(&path.display().to_string()), "{said}");
    std::fs::write(&path, "[[export]]\npath = '/a'\nclients = ['::1']\n").unwrap();
    assert_eq!(Exports::load(&path, CONTAINER).unwrap().iter().count(), 1);
}
