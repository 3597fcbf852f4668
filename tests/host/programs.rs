//! The programs of agents: what they see of the host, and that nothing of them is left, however they and the host behave.

use std::path::Path;
use std::time::Duration;

use scrollback::agents::programs::{EndingSteps, Program, Programs, Running, Tail};
use scrollback::config::Environment;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout};

use crate::command::Host;
use crate::harness::eventually;

/// Steps that no test waits for.
const SHORT: EndingSteps =
    EndingSteps { terminate_after: Duration::from_millis(100), kill_after: Duration::from_millis(100) };
/// Steps that would be waited for much longer than a test takes.
const LONG: EndingSteps =
    EndingSteps { terminate_after: Duration::from_secs(600), kill_after: Duration::from_secs(600) };

/// A shell that does what a script says, and what it prints.
struct Shell {
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    stderr: Tail,
    group: scrollback::agents::programs::Group,
}

fn programs(steps: EndingSteps, environment: &[(&str, &str)]) -> Programs {
    let path = [("PATH", "/usr/local/bin:/usr/bin:/bin")];
    let environment: Vec<_> = path.iter().chain(environment).copied().collect();
    Programs::new(&Environment::of(&environment), None, steps).unwrap()
}

impl Shell {
    async fn run(programs: &Programs, script: &str, env: &[(&str, &str)]) -> Self {
        let program = Program {
            command: "sh".into(),
            arguments: vec!["-c".into(), script.into()],
            env: env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        };
        let (started, wait) = tokio::sync::oneshot::channel();
        let of = programs.clone();
        programs.spawn(async move {
            let _ = started.send(of.start(&program, Path::new("/")));
        });
        let Running { stdin, stdout, stderr, group } = wait.await.unwrap().unwrap();
        Self { stdin: Some(stdin), lines: BufReader::new(stdout).lines(), stderr, group }
    }

    async fn line(&mut self) -> String {
        let line =
            tokio::time::timeout(crate::harness::PATIENCE, self.lines.next_line()).await.expect("it says nothing");
        line.unwrap().expect("it ended")
    }

    /// The process ids that it prints in a line.
    async fn ids(&mut self) -> Vec<u32> {
        self.line().await.split_whitespace().map(|id| id.parse().unwrap()).collect()
    }
}

/// Whether a process runs. One that nobody has buried yet does not.
fn runs(id: &u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{id}/stat")) else { return false };
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

async fn all_end(ids: &[u32]) {
    assert!(ids.len() > 1, "{ids:?}");
    eventually("all processes have ended", || !ids.iter().any(runs)).await;
}

/// A shell that hears nothing, with a child that hears nothing; it says who they are.
const DEAF: &str =
    "trap '' TERM; sh -c 'trap \"\" TERM; while :; do sleep 600; done' & echo $$ $!; while :; do sleep 600; done";

#[tokio::test]
async fn a_program_that_ignores_the_end_of_its_input_and_a_sigterm_is_killed_with_its_children() {
    let programs = programs(SHORT, &[]);
    let mut shell = Shell::run(&programs, DEAF, &[]).await;
    let ids = shell.ids().await;
    assert!(ids.iter().all(runs) && programs.alive() == 1);
    drop(shell.stdin.take());
    shell.group.end();
    all_end(&ids).await;
    eventually("the group is empty", || programs.alive() == 0).await;
}

#[tokio::test]
async fn a_program_that_hears_the_end_of_its_input_ends_without_a_signal() {
    let programs = programs(LONG, &[]);
    let mut shell = Shell::run(&programs, "echo up; read x; echo heard >&2", &[]).await;
    shell.line().await;
    drop(shell.stdin.take());
    shell.group.end();
    eventually("the group is empty", || programs.alive() == 0).await;
    eventually("all of stderr is read", || shell.stderr.text() == "heard").await;
}

#[tokio::test]
async fn dropping_a_program_ends_it() {
    let programs = programs(SHORT, &[]);
    let mut shell = Shell::run(&programs, DEAF, &[]).await;
    let ids = shell.ids().await;
    drop(shell);
    all_end(&ids).await;
}

#[tokio::test]
async fn children_that_a_wrapper_leaves_behind_are_ended_with_its_group() {
    // As npm's wrappers do: the program is a child that is not ended with them. Nobody asks for the end here.
    let programs = programs(EndingSteps { kill_after: Duration::from_millis(100), ..LONG }, &[]);
    let mut shell = Shell::run(&programs, "sleep 600 </dev/null >/dev/null 2>&1 & echo $$ $!", &[]).await;
    let ids = shell.ids().await;
    assert!(shell.group.exited().await.is_some_and(|status| status.success()));
    all_end(&ids).await;
    eventually("the group is empty", || programs.alive() == 0).await;
}

#[tokio::test]
async fn a_program_sees_what_it_is_given_and_little_of_the_host() {
    let host = [("SCROLLBACK_TOKEN", "secret"), ("OPENAI_API_KEY", "secret"), ("HOME", "/home/u"), ("LANG", "C")];
    let programs = programs(LONG, &host);
    let script = "env | grep -v '^PWD=\\|^_=\\|^SHLVL=\\|^OLDPWD=' \
                  | sed 's/^SCROLLBACK_AGENT=.*/SCROLLBACK_AGENT=/' | sort; echo END";
    let mut shell = Shell::run(&programs, script, &[("GIVEN", "1"), ("HOME", "/own")]).await;
    let mut seen = Vec::new();
    loop {
        match shell.line().await {
            line if line == "END" => break,
            line => seen.push(line),
        }
    }
    let expected = ["GIVEN=1", "HOME=/own", "LANG=C", "PATH=/usr/local/bin:/usr/bin:/bin", "SCROLLBACK_AGENT="];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_flood_on_stderr_is_read_and_its_end_is_kept() {
    let programs = programs(LONG, &[]);
    let script =
        "head -c 100000000 /dev/zero | tr '\\0' x >&2; echo; echo 'no key: log in first' >&2; echo done; read x";
    let mut shell = Shell::run(&programs, script, &[]).await;
    shell.line().await;
    assert_eq!(shell.line().await, "done");
    eventually("all of it is read", || shell.stderr.text().ends_with("xno key: log in first")).await;
    assert!(shell.stderr.text().len() <= 2_048);
}
#[tokio::test]
async fn a_host_that_is_killed_leaves_nothing_behind_after_its_next_start() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let said = home.path().join("ids");
    // One child stays in the group, another one leaves it and its session.
    let script = format!(
        "#!/bin/sh\ntrap '' TERM\nsleep 600 &\nstays=$!\nsetsid sleep 600 &\n\
         echo $$ $stays $! > {0}.new\nmv {0}.new {0}\nwhile :; do sleep 600; done\n",
        said.display()
    );
    let program = home.path().join("agent.sh");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let table =
        format!("agent_kill_after = \"100ms\"\n[agents.deaf]\nkind = \"acp\"\ncommand = [\"{}\"]\n", program.display());
    let config = home.path().join("scrollback.toml");
    std::fs::write(&config, table).unwrap();

    // The probe starts it.
    let host = Host::start(home.path(), &data, &["--config", config.to_str().unwrap()]);
    eventually("the program runs", || said.is_file()).await;
    let ids: Vec<u32> =
        std::fs::read_to_string(&said).unwrap().split_whitespace().map(|id| id.parse().unwrap()).collect();
    assert!(ids.len() == 3 && ids.iter().all(runs), "{ids:?}");
    host.stop("KILL");
    assert!(ids.iter().all(runs), "a killed host ends nothing");

    let none = home.path().join("none.toml");
    std::fs::write(&none, "").unwrap();
    let _host = Host::start(home.path(), &data, &["--config", none.to_str().unwrap()]);
    all_end(&ids).await;
}

#[tokio::test]
async fn a_stop_of_the_host_ends_what_probes_have_started_too() {
    let home = tempfile::tempdir().unwrap();
    let said = home.path().join("ids");
    let script = format!(
        "#!/bin/sh\ntrap '' TERM\necho $$ > {0}.new\nmv {0}.new {0}\nwhile :; do sleep 600; done\n",
        said.display()
    );
    let program = home.path().join("agent.sh");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let times = "agent_terminate_after = \"100ms\"\nagent_kill_after = \"100ms\"";
    let table = format!("{times}\n[agents.deaf]\nkind = \"acp\"\ncommand = [\"{}\"]\n", program.display());
    let config = home.path().join("scrollback.toml");
    std::fs::write(&config, table).unwrap();
    let host = Host::start(home.path(), &home.path().join("data"), &["--config", config.to_str().unwrap()]);
    eventually("the program runs", || said.is_file()).await;
    let id: u32 = std::fs::read_to_string(&said).unwrap().trim().parse().unwrap();
    assert_eq!(host.stop("TERM").0, 0);
    assert!(!runs(&id), "it goes before its host");
}
