//! Every feature and every report of what went wrong elsewhere has its row, and every row names tests that there are.

use std::collections::BTreeSet;

use super::named;
use super::pages::{page, words};

/// The numbered features: a letter a chapter, and how many there are in it.
const FEATURES: [(&str, usize); 14] = [
    ("L", 10),
    ("S", 11),
    ("F", 5),
    ("T", 10),
    ("Q", 8),
    ("P", 6),
    ("R", 4),
    ("H", 7),
    ("W", 3),
    ("C", 4),
    ("V", 3),
    ("G", 5),
    ("X", 5),
    ("O", 3),
];

/// The reports of what went wrong elsewhere, row by row.
const REPORTS: [&str; 20] = [
    "microsoft/vscode #332087, microsoft/agent-host-protocol PR 433",
    "microsoft/vscode #336466",
    "microsoft/vscode #336305",
    "microsoft/vscode #326450",
    "microsoft/vscode #317839",
    "microsoft/vscode PR 329861",
    "microsoft/vscode #332073, #331595, #333931",
    "microsoft/vscode #327362",
    "microsoft/vscode #333177, #333178",
    "microsoft/vscode #328590",
    "microsoft/vscode #330514",
    "microsoft/vscode #322790, #313360, #329796, #308080",
    "microsoft/vscode #333176",
    "microsoft/vscode #329421",
    "openai/codex #47124",
    "openclaw/openclaw #76931, hachej/boring-ui #1338, receptron/mulmoterminal #1377",
    "SkillfulAgents/SuperAgent PR 749",
    "damianvtran/local-operator PR 505",
    "anomalyco/opencode #13947, #25657, #19584",
    "zed-industries/zed #28676",
];

/// A row of either page: what it is about, the tests that show it, and all of its text.
struct Row {
    name: String,
    shown: Vec<String>,
    is_later: bool,
    seen: String,
}

fn features() -> Vec<Row> {
    let rows = page("docs/features.md").table("no");
    let row = |cells: Vec<String>| {
        assert_eq!(cells.len(), 4, "a row of four cells: {cells:?}");
        let is_later = cells[2].starts_with("later");
        Row { name: cells[0].clone(), shown: words(&cells[2]), is_later, seen: cells[3].clone() }
    };
    rows.into_iter().map(row).collect()
}

fn cases() -> Vec<Row> {
    let rows = page("docs/cases.md").table("report");
    let row = |cells: Vec<String>| {
        assert_eq!(cells.len(), 3, "a row of three cells: {cells:?}");
        let is_later = cells[2].starts_with("later");
        Row { name: cells[0].clone(), shown: words(&cells[2]), is_later, seen: String::new() }
    };
    rows.into_iter().map(row).collect()
}

#[test]
fn every_feature_has_its_row_in_order() {
    let wanted: Vec<String> =
        FEATURES.iter().flat_map(|(letter, count)| (1..=*count).map(move |n| format!("{letter}{n}"))).collect();
    let rows: Vec<String> = features().into_iter().map(|row| row.name).collect();
    let missing: Vec<_> = wanted.iter().filter(|number| !rows.contains(number)).collect();
    assert!(missing.is_empty(), "features without a row: {missing:?}");
    assert_eq!(rows, wanted, "the rows and their order");
}

#[test]
fn every_report_has_its_row_in_order() {
    let rows: Vec<String> = cases().into_iter().map(|row| row.name).collect();
    let references: Vec<&str> = rows.iter().map(|row| row.split(": ").next().unwrap()).collect();
    assert_eq!(references, REPORTS, "the rows and their order");
}

#[test]
fn what_is_not_for_later_names_a_test_and_what_turned_it_red() {
    for row in features() {
        let is_shown = !row.shown.is_empty() && !row.seen.is_empty();
        assert_eq!(is_shown, !row.is_later, "{}: either `later`, or tests and what turned them red", row.name);
    }
    for row in cases() {
        assert_eq!(row.shown.is_empty(), row.is_later, "{}: either `later`, or tests", row.name);
    }
}

#[test]
fn every_test_that_is_named_exists() {
    let there = named::tests();
    let own = "docs proofs::every_test_that_is_named_exists";
    assert!(there.contains(own) && there.len() > 500, "the tests were not read: {}", there.len());
    let rows = features().into_iter().chain(cases());
    let lost: BTreeSet<String> = rows
        .flat_map(|row| row.shown.into_iter().map(move |test| (row.name.clone(), test)))
        .filter(|(_, test)| !there.contains(test))
        .map(|(row, test)| format!("{row}: {test}"))
        .collect();
    assert!(lost.is_empty(), "tests that are not there: {lost:#?}");
}
