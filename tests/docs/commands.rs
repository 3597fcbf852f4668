//! Runs the commands of the documents.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::command::{Host, Ran, scrollback};
use super::example;
use super::pages::{self, Block, page};

/// What may stand behind a fence.
const KNOWN: [&str; 10] = ["", "sh", "console", "text", "toml", "yaml", "nginx", "caddy", "json settings", "json host"];

/// A folder in which the commands of one document are run, with the programs that they name.
struct Sandbox {
    home: TempDir,
    host: Option<Host>,
}

impl Sandbox {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("bin")).unwrap();
        symlink(env!("CARGO_BIN_EXE_scrollback"), home.path().join("bin/scrollback")).unwrap();
        symlink(example::build(), home.path().join("bin/client")).unwrap();
        Self { home, host: None }
    }

    /// Runs a block; returns what it printed, or nothing for a host, which goes on.
    fn run(&mut self, block: &Block) -> Option<String> {
        let text = block.text.replace("target/release/", "");
        if let Some(args) = text.strip_prefix("scrollback serve").filter(|args| !args.contains("--print-config")) {
            self.serve(args.trim());
            return None;
        }
        let port = self.host.as_ref().map_or(0, |host| host.port);
        let text = text.replace("127.0.0.1:7878", &format!("127.0.0.1:{port}"));
        let path = format!("{}:/usr/bin:/bin", self.home.path().join("bin").display());
        let mut shell = Command::new("sh");
        shell.args(["-eu", "-c", &text]).current_dir(self.home.path()).stdin(Stdio::null()).env_clear();
        shell.env("HOME", self.home.path()).env("PATH", path).env("SCROLLBACK_URL", format!("ws://127.0.0.1:{port}"));
        let ran = Ran::from(shell.output().unwrap());
        assert_eq!(ran.status, 0, "{}: {}\n{ran:?}", block.place, block.text);
        Some(ran.out)
    }

    fn serve(&mut self, args: &str) {
        self.stop();
        let mut args: Vec<&str> = args.split_whitespace().collect();
        match args.iter().position(|arg| *arg == "--listen") {
            Some(at) => args[at + 1] = "127.0.0.1:0",
            None => args.extend(["--listen", "127.0.0.1:0"]),
        }
        args.insert(0, "serve");
        self.host = Some(Host::spawn(&mut scrollback(self.home.path(), &args)));
    }

    fn stop(&mut self) {
        if let Some(host) = self.host.take() {
            assert_eq!(host.stop("TERM").0, 0, "the host did not end in order");
        }
    }
}

/// Runs the blocks of `document` and compares what they print with what it says that they print.
fn run_all(document: &str) {
    let mut sandbox = Sandbox::new();
    let mut printed: Option<String> = None;
    let mut ran = 0;
    for block in page(document).blocks() {
        match block.info.as_str() {
            "sh" => {
                printed = sandbox.run(&block);
                ran += 1;
            }
            "text" => {
                let out = printed.take().unwrap_or_else(|| panic!("{}: no command before it", block.place));
                assert!(fits(&block.text, &out), "{}: says\n{}\nand is\n{out}", block.place, block.text);
            }
            _ => printed = None,
        }
    }
    assert!(ran > 0, "{document} has no commands");
    sandbox.stop();
}

/// Whether `out` is `said`, line by line, `«…»` standing for anything and spaces for any spaces.
fn fits(said: &str, out: &str) -> bool {
    let tidy = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    let (said, out) = (tidy(said), tidy(out));
    said.len() == out.len() && said.iter().zip(&out).all(|(said, out)| line_fits(said, out))
}

fn line_fits(said: &str, out: &str) -> bool {
    let Some((before, rest)) = said.split_once('«') else { return said == out };
    let Some((_, after)) = rest.split_once('»') else { return said == out };
    let Some(out) = out.strip_prefix(before) else { return false };
    (0..=out.len()).filter(|at| out.is_char_boundary(*at)).any(|at| line_fits(after, &out[at..]))
}

#[test]
fn the_commands_of_the_readme_do_what_it_says() {
    run_all("README.md");
}

#[test]
fn the_commands_of_the_first_hour_do_what_it_says() {
    run_all("docs/first-hour.md");
}

#[test]
fn the_commands_of_the_page_for_clients_do_what_it_says() {
    run_all("docs/clients.md");
}

#[test]
fn the_commands_of_the_page_for_operators_do_what_it_says() {
    run_all("docs/operating.md");
}

#[test]
fn every_block_is_of_a_known_kind_and_what_is_not_run_says_why() {
    for block in pages::all().iter().flat_map(pages::Page::blocks) {
        if let Some(reason) = block.info.strip_prefix("sh no-run") {
            let reason = reason.strip_prefix(':').map(str::trim).filter(|reason| !reason.is_empty());
            println!("not run: {}: {}", block.place, reason.unwrap_or_else(|| panic!("{}: why?", block.place)));
        } else {
            let known = KNOWN.contains(&block.info.as_str()) || block.info.starts_with("json client");
            assert!(known, "{}: {}", block.place, block.info);
        }
    }
}

#[test]
fn every_configuration_is_one_that_the_host_takes() {
    for block in pages::all().iter().flat_map(pages::Page::blocks).filter(|block| block.info == "toml") {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("scrollback.toml"), &block.text).unwrap();
        let args = ["serve", "--config", "scrollback.toml", "--print-config"];
        let ran = Ran::from(scrollback(home.path(), &args).output().unwrap());
        assert_eq!(ran.status, 0, "{}: {ran:?}", block.place);
    }
}

#[test]
fn settings_of_editors_are_json() {
    for block in page("docs/clients.md").blocks().iter().filter(|block| block.info == "json settings") {
        let settings: serde_json::Value = serde_json::from_str(&block.text).unwrap();
        assert!(settings["chat.remoteAgentHosts"].is_array(), "{}", block.place);
    }
}

#[test]
fn the_unit_names_a_command_that_there_is() {
    let unit = include_str!("../../contrib/systemd/scrollback.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let args: Vec<&str> = start.split_whitespace().collect();
    assert_eq!(Path::new(args[0]).file_name().unwrap(), "scrollback");
    let home = tempfile::tempdir().unwrap();
    let ran = Ran::from(scrollback(home.path(), &args[1..]).output().unwrap());
    ran.is_refused(2, &["/etc/scrollback/scrollback.toml"]);
}
