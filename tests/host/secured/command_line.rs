//! TLS as the command line meets it: files that cannot be used, and hosts at `https://`.

use std::fs;

use super::{Authority, Pair, Secured, TOKEN};
use crate::command::{Ran, run, scrollback};

/// What a verb says that asks the host at its URL.
fn asked(host: &Secured, more: &[&str], variables: &[(&str, &str)]) -> Ran {
    let url = format!("https://127.0.0.1:{}", host.host.port);
    let mut command = scrollback(host.home.path(), &["log", "list", "--limit", "1", "--json", "--url", &url]);
    command.args(more).env("SCROLLBACK_TOKEN", TOKEN).envs(variables.iter().copied());
    command.output().unwrap().into()
}

#[test]
fn files_that_cannot_be_used_are_one_line_and_exit_2() {
    let home = tempfile::tempdir().unwrap();
    let pair = Pair::in_folder(home.path());
    Authority::new().issue(&pair);
    let (chain, key) = (pair.chain.to_str().unwrap(), pair.key.to_str().unwrap());
    let other = home.path().join("other");
    fs::create_dir(&other).unwrap();
    let foreign = Pair::in_folder(&other);
    Authority::new().issue(&foreign);
    let foreign = foreign.key.to_str().unwrap();
    for (certificate, secret, words) in [
        (chain, "", ["SCROLLBACK_TLS_CERTIFICATE", "wants tls_key"]),
        ("", key, ["SCROLLBACK_TLS_KEY", "wants tls_certificate"]),
        ("/no/such", key, ["tls_certificate: /no/such", "No such file"]),
        (chain, "/no/such", ["tls_key: /no/such", "No such file"]),
        (key, key, [key, "holds no certificate"]),
        (chain, chain, [chain, "holds no private key"]),
        (chain, foreign, [foreign, "is not the key of the first certificate"]),
    ] {
        let mut command = scrollback(home.path(), &["serve", "--listen", "127.0.0.1:0"]);
        command.env("SCROLLBACK_TLS_CERTIFICATE", certificate).env("SCROLLBACK_TLS_KEY", secret);
        Ran::from(command.output().unwrap()).is_refused(2, &words);
    }
    let mut command = scrollback(home.path(), &["serve", "--listen", "127.0.0.1:0"]);
    let never = command.env("SCROLLBACK_TLS_RELOAD_INTERVAL", "0s").output().unwrap();
    Ran::from(never).is_refused(2, &["SCROLLBACK_TLS_RELOAD_INTERVAL", "more than 0"]);
    assert!(!home.path().join("scrollback-data").exists());
}

#[test]
fn verbs_ask_a_host_at_https_whose_authority_they_are_told() {
    let host = Secured::start(&[]);
    let authority = host.home.path().join("authority.pem");
    fs::write(&authority, &host.authority.pem).unwrap();
    let authority = authority.to_str().unwrap();
    assert_eq!(asked(&host, &["--ca", authority], &[]).json_lines().len(), 1);
    assert_eq!(asked(&host, &[], &[("SCROLLBACK_CA", authority)]).json_lines().len(), 1);

    asked(&host, &[], &[])
        .is_refused(1, &["https://127.0.0.1:", "no authority that is known", "--ca", "SCROLLBACK_CA"]);
    asked(&host, &["--ca", "/no/such"], &[]).is_refused(2, &["--ca: /no/such: No such file"]);
    asked(&host, &[], &[("SCROLLBACK_CA", "/no/such")]).is_refused(2, &["SCROLLBACK_CA: /no/such"]);
    let key = host.pair.key.to_str().unwrap();
    asked(&host, &["--ca", key], &[]).is_refused(2, &[key, "holds no certificate"]);
    run(host.home.path(), &["log", "list", "--ca", authority]).is_refused(2, &["--url"]);
}

#[test]
fn verbs_ask_the_host_that_has_the_directory_whatever_its_certificate_is_for() {
    let host = Secured::start(&[]);
    let listed =
        run(host.home.path(), &["log", "list", "--limit", "1", "--json", "--data", host.data.to_str().unwrap()]);
    assert_eq!(listed.json_lines().len(), 1);
}
