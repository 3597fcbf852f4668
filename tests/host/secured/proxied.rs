//! A host behind nginx, which is set up with the example of docs/operating.md.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use scrollback::config::Environment;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::timeout;

use super::{Authority, NAME, Pair, TOKEN, free_port};
use crate::command::{Host, scrollback};
use crate::harness::{Client, PATIENCE, eventually, streamed};

/// Set to `1`, the variable that makes a missing nginx a failure.
const MUST: &str = "SCROLLBACK_TEST_NGINX";
const SESSION: &str = "ahp-session:/proxied";

/// The program; without it this test has nothing to say.
fn nginx() -> Option<PathBuf> {
    let environment = Environment::of_process();
    let folders = environment.get("PATH").unwrap_or_default().split(':').chain(["/usr/sbin", "/usr/local/sbin"]);
    let found = folders.map(|folder| Path::new(folder).join("nginx")).find(|program| program.is_file());
    if found.is_none() {
        assert_ne!(environment.get(MUST), Some("1"), "nginx is not installed");
        println!("skipped: nginx is not installed (scripts/test.sh installs it)");
    }
    found
}

/// The documented example, with the ports and files of this test.
fn documented(port: u16, upstream: u16, pair: &Pair) -> String {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operating.md")).unwrap();
    let blocks: Vec<&str> = page.split("```nginx\n").skip(1).collect();
    assert_eq!(blocks.len(), 1, "the page has one example for nginx");
    let mut example = blocks[0].split("```").next().unwrap().to_owned();
    for (said, real) in [
        ("listen 443 ssl;", format!("listen 127.0.0.1:{port} ssl;")),
        ("listen [::]:443 ssl;", String::new()),
        ("/etc/letsencrypt/live/box.example/fullchain.pem", pair.chain.display().to_string()),
        ("/etc/letsencrypt/live/box.example/privkey.pem", pair.key.display().to_string()),
        ("http://127.0.0.1:7878", format!("http://127.0.0.1:{upstream}")),
    ] {
        assert_eq!(example.matches(said).count(), 1, "{said}");
        example = example.replace(said, &real);
    }
    example
}

/// nginx and a host behind it.
struct Proxied {
    authority: Authority,
    port: u16,
    nginx: Child,
    _host: Host,
    _folder: TempDir,
}

impl Drop for Proxied {
    fn drop(&mut self) {
        let _ = self.nginx.kill();
        let _ = self.nginx.wait();
    }
}

impl Proxied {
    async fn start(program: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (authority, pair) = (Authority::new(), Pair::in_folder(folder.path()));
        authority.issue(&pair);
        let port = free_port();
        let mut command = scrollback(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
        command.env("SCROLLBACK_TOKEN", TOKEN).env("SCROLLBACK_PUBLIC_URL", format!("https://{NAME}:{port}"));
        let host = Host::spawn(&mut command);
        fs::write(folder.path().join("scrollback.conf"), documented(port, host.port, &pair)).unwrap();
        let places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let places: String = places.iter().map(|place| format!("{place}_temp_path {place};\n")).collect();
        // One process, which a test can end.
        let around = format!(
            "daemon off;\nmaster_process off;\npid nginx.pid;\nevents {{}}\nhttp {{\naccess_log off;\n{places}\
             include scrollback.conf;\n}}\n"
        );
        fs::write(folder.path().join("nginx.conf"), around).unwrap();
        let mut command = Command::new(program);
        command.arg("-p").arg(folder.path()).args(["-e", "stderr", "-c", "nginx.conf"]).stdin(Stdio::null());
        let mut nginx = command.spawn().unwrap();
        eventually("nginx listens", || {
            assert_eq!(nginx.try_wait().unwrap(), None, "nginx ended; what it says stands above");
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        })
        .await;
        Self { authority, port, nginx, _host: host, _folder: folder }
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    fn url(&self, path: &str) -> String {
        format!("https://{NAME}:{}{path}", self.port)
    }

    async fn status(&self, path: &str, headers: &[(&str, &str)]) -> u16 {
        let request = self.authority.web().get(self.url(path));
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.send().await.unwrap().status().as_u16()
    }
}

#[tokio::test]
async fn a_host_behind_the_documented_nginx_is_reached_under_its_public_name() {
    let Some(program) = nginx() else { return };
    let proxied = Proxied::start(&program).await;
    let mut client = Client::over(proxied.authority.socket(proxied.address()).await);
    client.initialize("c", &["ahp-root://"]).await;
    let chat = client.create_session(SESSION).await;
    client.subscribe(&chat).await;
    let turn = client.run(&chat, "t", "through nginx").await;
    assert_eq!(streamed(&turn), "You said: through nginx ");

    // What is said while a turn runs arrives before the turn ends.
    let live = proxied.authority.web().get(proxied.url("/api/events")).bearer_auth(TOKEN);
    let mut live = live.header("Accept", "text/event-stream").send().await.unwrap().error_for_status().unwrap();
    client.say(&chat, "open", "/say first\n/await-steering").await;
    let mut read = String::new();
    while !read.contains(r#""content":"first"#) {
        let chunk = timeout(PATIENCE, live.chunk()).await.expect("nothing comes live").unwrap().expect("it ended");
        read.push_str(&String::from_utf8_lossy(&chunk));
    }
    client.dispatch(&chat, json!({ "type": "chat/turnCancelled", "turnId": "open" })).await;
    client.until_ended("open").await;

    assert_eq!(proxied.status("/healthz", &[]).await, 200);
    assert_eq!(proxied.status("/api/log", &[]).await, 401);
    let token = ("Authorization", "Bearer t");
    let own = proxied.url("");
    assert_eq!(proxied.status("/api/log", &[token, ("Origin", own.as_str())]).await, 200);
    assert_eq!(proxied.status("/api/log", &[token, ("Origin", "https://evil.example")]).await, 403);
    // Who is asked for is the name in the request, whatever is said of it beside.
    assert_eq!(proxied.status("/api/log", &[token, ("Host", "evil.example")]).await, 403);
    let forwarded = [token, ("X-Forwarded-Host", "evil.example"), ("Forwarded", "host=evil.example")];
    assert_eq!(proxied.status("/api/log", &forwarded).await, 200);
}
