//! The example client, run against real hosts.

use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::command::{Host, Ran, scrollback};

/// Builds the example, and returns its program. Test runs of the host do not build it by themselves. An example of the host comes
/// with it, so that what both depend on is built as for the tests, once.
pub fn build() -> PathBuf {
    let programs = Path::new(env!("CARGO_BIN_EXE_scrollback")).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked", "--workspace", "--bin", "client", "--example", "fake_acp"]);
    // What this test was told of its own package has build scripts of others run again, and all that stands on them.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|own| name.to_string_lossy().starts_with(own)) {
            cargo.env_remove(name);
        }
    }
    cargo.arg("--manifest-path");
    cargo.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    cargo.arg("--target-dir").arg(programs.parent().unwrap());
    if programs.ends_with("release") {
        cargo.arg("--release");
    }
    let built = Ran::from(cargo.output().unwrap());
    assert_eq!(built.status, 0, "{}", built.err);
    programs.join("client")
}

fn client(port: u16, args: &[&str]) -> Command {
    let mut command = Command::new(build());
    command.env_clear().args(["--url", &format!("ws://127.0.0.1:{port}")]).args(args).stdin(Stdio::null());
    command
}

fn run(port: u16, args: &[&str]) -> Ran {
    client(port, args).output().unwrap().into()
}

/// What it prints, as it prints it.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    printed: String,
}

impl Running {
    fn start(port: u16, args: &[&str]) -> Self {
        let mut child = client(port, args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout, printed: String::new() }
    }

    /// Reads until `text` was printed.
    fn until(&mut self, text: &str) {
        let mut bytes = [0; 256];
        while !self.printed.contains(text) {
            let read = self.stdout.read(&mut bytes).unwrap();
            assert!(read > 0, "it ended after {:?}", self.printed);
            self.printed.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
    }

    /// Waits for its end.
    fn end(mut self) -> Ran {
        self.stdout.read_to_string(&mut self.printed).unwrap();
        let mut ran = Ran::from(self.child.wait_with_output().unwrap());
        ran.out = self.printed;
        ran
    }
}

/// The words `w1 w2 …` that a client printed, which must be all of them in order, each once.
fn words(printed: &str) -> usize {
    let words: Vec<&str> = printed.split_whitespace().collect();
    for (at, word) in words.iter().enumerate() {
        assert_eq!(*word, format!("w{}", at + 1), "{printed}");
    }
    words.len()
}

#[test]
fn a_tool_runs_or_does_not_as_somebody_says_on_the_terminal() {
    let home = tempfile::tempdir().unwrap();
    let host = Host::start(home.path(), &home.path().join("data"), &[]);
    for (answer, outcome) in [("1\n", "[rm] notes.txt"), ("nonsense\n3\n", "[rm] did not run"), ("", "did not run")] {
        let mut child = client(host.port, &["/ask-tool rm notes.txt\n/say done"]);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!((ran.status, ran.out.trim()), (0, "done"), "{ran:?}");
        assert!(ran.err.contains("rm wants to run \"notes.txt\"") && ran.err.contains(outcome), "{ran:?}");
    }
    let ran = run(host.port, &["--yes", "/ask-tool rm notes.txt"]);
    assert!(ran.status == 0 && ran.err.contains("[rm] notes.txt") && !ran.err.contains("wants"), "{ran:?}");
}

#[test]
fn what_is_no_answer_goes_to_stderr_and_the_ending_is_the_exit_status() {
    let home = tempfile::tempdir().unwrap();
    let host = Host::start(home.path(), &home.path().join("data"), &[]);
    let ran = run(host.port, &["/think hm hm\n/say one\n/tool ls -l\n/notice two\n/say three"]);
    assert_eq!((ran.status, ran.out.as_str()), (0, "one \nthree \n"), "{ran:?}");
    for said in ["[thinking] hm hm", "[ls] -l", "[note] two", "ahp-session:/"] {
        assert!(ran.err.contains(said), "{said} is missing in {ran:?}");
    }
    let failed = run(host.port, &["/fail it broke"]);
    assert!(failed.status == 1 && failed.err.contains("[error] it broke"), "{failed:?}");
    let session = ran.err.lines().find(|line| line.starts_with("ahp-session:/")).unwrap().to_owned();
    let more = run(host.port, &["--session", &session, "and more"]);
    assert_eq!((more.status, more.out.as_str()), (0, "You said: and more \n"), "{more:?}");
}

#[test]
fn what_cannot_be_reached_is_said_clearly() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ran = run(free, &["hello"]);
    assert!(ran.status == 1 && ran.err.contains("no host answers at"), "{ran:?}");

    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("token"), "s3cr&t").unwrap();
    let host = Host::start(home.path(), &home.path().join("data"), &["--token-file", "token"]);
    let ran = run(host.port, &["hello"]);
    assert!(ran.status == 1 && ran.err.contains("the host wants a token"), "{ran:?}");
    let ran = run(host.port, &["--token", "s3cr&t", "hello"]);
    assert_eq!((ran.status, ran.out.as_str()), (0, "You said: hello \n"), "{ran:?}");
    let ran = run(host.port, &["--token", "s3cr&t", "--session", "ahp-session:/none", "hello"]);
    assert!(ran.status == 1 && ran.err.contains("ahp-session:/none"), "{ran:?}");
}

#[test]
fn it_comes_back_when_the_connection_drops_and_prints_every_word_once() {
    let home = tempfile::tempdir().unwrap();
    let host = Host::start(home.path(), &home.path().join("data"), &[]);
    let line = Line::to(host.port);
    let mut running = Running::start(line.port, &["/words 120 20"]);
    for word in ["w20 ", "w60 "] {
        running.until(word);
        line.cut();
    }
    let ran = running.end();
    assert_eq!((ran.status, words(&ran.out)), (0, 120), "{ran:?}");
    assert_eq!(ran.err.matches("The connection dropped").count(), 2, "{ran:?}");
}

/// As the documents say: what was shown is kept, and the turn that ran is taken up at the next start.
#[test]
fn after_a_kill_of_the_host_it_has_what_was_shown_and_reads_on() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let host = Host::start(home.path(), &data, &[]);
    let port = host.port;
    let mut running = Running::start(port, &["/say before\n/words 300 10\n/say after"]);
    running.until("w20 ");
    host.stop("KILL");
    let listen = format!("127.0.0.1:{port}");
    let args = ["serve", "--listen", &listen, "--data", data.to_str().unwrap()];
    let _host = Host::spawn(&mut scrollback(home.path(), &args));
    let ran = running.end();
    // The step at which it was is done again, those before it are not.
    assert!(
        ran.status == 0 && ran.out.split_whitespace().filter(|word| word.starts_with('w')).count() >= 320,
        "{ran:?}"
    );
    assert_eq!((ran.out.matches("before").count(), ran.out.matches("after").count()), (1, 1), "{ran:?}");
    assert!(ran.err.contains("The connection dropped"), "{ran:?}");
}

/// A line to a host that can be cut.
struct Line {
    port: u16,
    cut: Sender<()>,
    was_cut: Receiver<()>,
}

impl Line {
    fn to(host: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cut, wanted) = channel::<()>();
        let (done, was_cut) = channel();
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", host)).unwrap());
                through(&client, &server, port, host);
                if wanted.recv().is_err() {
                    return;
                }
                let _ = client.shutdown(std::net::Shutdown::Both);
                let _ = server.shutdown(std::net::Shutdown::Both);
                done.send(()).unwrap();
            }
        });
        Self { port, cut, was_cut }
    }

    /// Cuts the connection that there is, and lets the next one through.
    fn cut(&self) {
        self.cut.send(()).unwrap();
        self.was_cut.recv().unwrap();
    }
}

/// Copies both ways. The host looks at the port in `Host`, so the request is told the host's.
fn through(client: &TcpStream, server: &TcpStream, own: u16, host: u16) {
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || {
        let mut bytes = vec![0; 16 * 1024];
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            match from.read(&mut bytes) {
                Ok(read) if read > 0 => request.extend_from_slice(&bytes[..read]),
                _ => return,
            }
        }
        let request = String::from_utf8(request).unwrap();
        let request = request.replace(&format!("127.0.0.1:{own}"), &format!("127.0.0.1:{host}"));
        if to.write_all(request.as_bytes()).is_ok() {
            let _ = std::io::copy(&mut from, &mut to);
        }
    });
    let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    thread::spawn(move || std::io::copy(&mut from, &mut to));
}
