//! What the documents list is what the code has: keys, metrics, words of refusals, methods.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::command;
use super::pages::{literals_behind, page, sources, words};

/// Keys whose defaults depend on the machine.
const OF_THE_MACHINE: [&str; 3] = ["host_name", "default_directory", "allowed_directories"];

/// Every key with its default, as the host prints them.
fn defaults() -> BTreeMap<String, String> {
    let home = tempfile::tempdir().unwrap();
    let settings = command::run(home.path(), &["serve", "--print-config", "--json"]).json_lines();
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Array(one) if one.len() == 1 => one[0].as_str().unwrap().to_owned(),
        other => other.to_string(),
    };
    settings.iter().map(|s| (s["key"].as_str().unwrap().to_owned(), text(&s["value"]))).collect()
}

/// The first two columns of a table of keys.
fn documented(document: &str) -> BTreeMap<String, String> {
    let rows = page(document).table("key");
    rows.iter().map(|row| (row[0].replace('`', ""), row[1].replace('`', ""))).collect()
}

fn same(what: &str, documented: &BTreeSet<String>, real: &BTreeSet<String>) {
    let missing: Vec<_> = real.difference(documented).collect();
    let wrong: Vec<_> = documented.difference(real).collect();
    assert!(missing.is_empty() && wrong.is_empty(), "{what}: missing {missing:?}, not there {wrong:?}");
}

#[test]
fn every_configuration_key_is_documented_with_its_default() {
    let (documented, real) = (documented("docs/operating.md"), defaults());
    same("keys", &documented.keys().cloned().collect(), &real.keys().cloned().collect());
    for (key, value) in real.iter().filter(|(key, _)| !OF_THE_MACHINE.contains(&key.as_str())) {
        assert_eq!(documented[key], *value, "the default of {key}");
    }
}

#[test]
fn the_limits_are_keys_with_their_defaults() {
    let real = defaults();
    for (key, value) in documented("docs/clients.md") {
        assert_eq!(real.get(&key), Some(&value), "the limit {key}");
    }
}

#[test]
fn every_metric_is_documented() {
    let macros = ["counter!(", "gauge!(", "histogram!("];
    let real = macros.iter().flat_map(|before| literals_behind(&["src"], before)).collect();
    let table = page("docs/operating.md").table("metric");
    same("metrics", &table.iter().map(|row| row[0].replace('`', "")).collect(), &real);
}

#[test]
fn every_word_of_a_refusal_is_documented() {
    let clients = page("docs/clients.md");
    let (_, code) = sources("src/actors").into_iter().find(|(path, _)| path.ends_with("rejection.rs")).unwrap();
    let real = code.split("=> \"").skip(1).filter_map(|rest| Some(rest.split('"').next()?.to_owned())).collect();
    let table = clients.table("word");
    same("words of actions", &table.iter().flat_map(|row| words(&row[0])).collect(), &real);

    let folders = ["src/actors", "src/protocol"];
    let mut real: BTreeSet<String> = ["invalid(", "invalid_request(", "malformed("]
        .iter()
        .flat_map(|before| literals_behind(&folders, before))
        .filter(|word| is_word(word))
        .collect();
    for (_, code) in folders.iter().flat_map(|folder| sources(folder)) {
        let made = ["Refusal::new(", "Malformed::new("].into_iter().flat_map(|new| code.split(new).skip(1));
        for rest in made {
            let behind = rest.split_once(',').map_or("", |(_, behind)| behind.trim_start());
            let word = behind.strip_prefix('"').and_then(|word| word.split('"').next());
            real.extend(word.map(str::to_owned));
        }
    }
    // A command may be refused with a word of the actions.
    let used = folders.iter().flat_map(|folder| sources(folder)).map(|(_, code)| code).collect::<String>();
    real.extend(code.split("Code::").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once(" => \"")?;
        used.contains(&format!("Code::{name}.word()")).then(|| rest.split('"').next().unwrap_or_default().to_owned())
    }));
    let table = clients.table("code");
    same("words of commands", &table.iter().flat_map(|row| words(&row[1])).collect(), &real);
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

#[test]
fn every_method_is_in_the_table_of_the_architecture() {
    let (_, code) = sources("src/protocol").into_iter().find(|(path, _)| path.ends_with("methods.rs")).unwrap();
    let table = code.split("const METHODS").nth(1).unwrap().split("];").next().unwrap();
    let mut real: BTreeSet<String> =
        table.lines().filter_map(|line| Some(line.trim().strip_prefix("(\"")?.split('"').next()?.to_owned())).collect();
    let (_, ours) = sources("src/protocol").into_iter().find(|(path, _)| path.ends_with("extensions.rs")).unwrap();
    let names = ours.split("= \"x-scrollback/").skip(1).filter_map(|rest| rest.split('"').next());
    real.extend(names.map(|name| format!("x-scrollback/{name}")));
    let count = table.matches("Handler::").count();
    assert_eq!(real.len(), count, "a method that this test cannot read");
    let documented = page("docs/architecture.md").table("method");
    same("methods", &documented.iter().flat_map(|row| words(&row[0])).collect(), &real);
}

#[test]
fn every_step_of_the_demo_is_documented() {
    let (_, code) = sources("src/agents/demo").into_iter().find(|(path, _)| path.ends_with("script.rs")).unwrap();
    let table = code.split("match name {").nth(1).unwrap().split("_ => return").next().unwrap();
    let step = |line: &str| Some(format!("/{}", line.trim().strip_prefix('"')?.split('"').next()?));
    let real = table.lines().filter_map(step).collect();
    let table = page("docs/clients.md").table("step");
    let documented = table.iter().map(|row| row[0].replace('`', "").split(' ').next().unwrap().to_owned());
    same("steps", &documented.collect(), &real);
}

#[test]
fn every_verb_is_in_the_table_of_the_readme() {
    let home = tempfile::tempdir().unwrap();
    let verbs = |args: &[&str]| -> Vec<String> {
        let help = command::run(home.path(), args).printed();
        let listed = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap().to_owned();
        // What is indented deeper goes on with the line before.
        let verb = |line: &str| line.strip_prefix("  ")?.split(' ').next().filter(|v| !v.is_empty()).map(str::to_owned);
        listed.lines().filter_map(verb).filter(|verb| verb != "help").collect()
    };
    let mut real: BTreeSet<String> = verbs(&["--help"]).into_iter().filter(|verb| verb != "log").collect();
    real.extend(verbs(&["log", "--help"]).into_iter().map(|verb| format!("log {verb}")));
    let table = page("README.md").table("command");
    let verb = |row: &Vec<String>| {
        let command = row[0].replace('`', "");
        let words = command.split_whitespace().skip(1).filter(|word| is_word(word)).take(2);
        words.filter(|word| *word != "bash").collect::<Vec<_>>().join(" ")
    };
    same("verbs", &table.iter().map(verb).collect(), &real);
}
