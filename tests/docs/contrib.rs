//! What is given along for those who run a host fits the host.

use std::collections::BTreeSet;

use serde_json::Value;

use super::pages::page;

const DASHBOARD: &str = include_str!("../../contrib/grafana/scrollback.json");
const ALERTS: &str = include_str!("../../contrib/prometheus/scrollback.rules.yml");
const DOCKERFILE: &str = include_str!("../../Dockerfile");

/// The metrics that an expression names.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("scrollback_")).map(str::to_owned).collect()
}

/// What the host counts, as its page says; another test holds that page to the code.
fn counted() -> BTreeSet<String> {
    page("docs/operating.md").table("metric").iter().map(|row| row[0].replace('`', "")).collect()
}

#[test]
fn the_dashboard_shows_what_the_host_counts_in_panels_beside_each_other() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let expressions: Vec<&str> = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    let shown: BTreeSet<String> = expressions.iter().flat_map(|expression| named(expression)).collect();
    let unknown: Vec<_> = shown.difference(&counted()).cloned().collect();
    assert!(!shown.is_empty() && unknown.is_empty(), "not counted: {unknown:?}");
    let hidden: Vec<_> = counted().difference(&shown).cloned().collect();
    assert!(hidden.is_empty(), "in no panel: {hidden:?}");
    let mut places = BTreeSet::new();
    for panel in panels {
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24 && places.insert((at("y"), at("x"))), "{}", panel["title"]);
    }
}

#[test]
fn the_alerts_are_about_what_the_host_counts() {
    let expressions: String = ALERTS.lines().filter(|line| line.trim_start().starts_with("expr:")).collect();
    let unknown: Vec<_> = named(&expressions).difference(&counted()).cloned().collect();
    assert!(expressions.len() > 100 && unknown.is_empty(), "not counted: {unknown:?}");
}

#[test]
fn the_image_is_built_with_the_toolchain_runs_as_nobody_of_power_and_asks_an_endpoint_that_there_is() {
    let toolchain = include_str!("../../rust-toolchain.toml");
    let version = DOCKERFILE.lines().find_map(|line| line.strip_prefix("FROM rust:")).unwrap();
    let version = version.split('-').next().unwrap();
    assert!(toolchain.contains(&format!("channel = \"{version}")), "{version}");
    assert!(DOCKERFILE.contains("\nUSER scrollback\n"));
    assert!(DOCKERFILE.contains("http://127.0.0.1:7878/readyz") && DOCKERFILE.contains("\nEXPOSE 7878\n"));
    let keys: BTreeSet<String> =
        page("docs/operating.md").table("key").iter().map(|row| row[0].replace('`', "").to_uppercase()).collect();
    let set = DOCKERFILE.split(|c: char| c.is_whitespace()).filter_map(|word| word.strip_prefix("SCROLLBACK_"));
    let set: Vec<&str> = set.filter_map(|word| word.split_once('=').map(|(key, _)| key)).collect();
    assert_eq!(set.len(), 5, "four of the image and the token of its first lines");
    for key in set.iter().filter(|key| **key != "TOKEN") {
        assert!(keys.contains(*key), "SCROLLBACK_{key} is no variable");
    }
}
