//! Files through `resource*`: inside the allowed directories, with each refusal's own code.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ahp_types::commands::{ResourceListResult, ResourceReadResult, ResourceResolveResult};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use scrollback::actors::host::HostSettings;
use scrollback::protocol::ProtocolSettings;
use scrollback::resources::uri::file_uri;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Client, Options, TestHost};

pub const ROOT: &str = "ahp-root://";

/// A host whose clients may reach one directory, which holds the host's own.
pub struct Ground {
    _all: TempDir,
    pub inside: PathBuf,
    pub outside: PathBuf,
    pub host: TestHost,
}

impl Ground {
    pub fn new() -> Self {
        Self::with(ProtocolSettings::default())
    }

    pub fn with(protocol: ProtocolSettings) -> Self {
        let all = tempfile::tempdir().unwrap();
        let real = all.path().canonicalize().unwrap();
        let (inside, outside) = (real.join("in"), real.join("out"));
        fs::create_dir_all(inside.join("data/attachments/s")).unwrap();
        fs::write(inside.join("data/attachments/s/a.txt"), "attached").unwrap();
        fs::write(inside.join("data/db"), "log").unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("secret"), "secret").unwrap();
        let settings = HostSettings {
            allowed_directories: vec![inside.clone()],
            default_directory: file_uri(&inside),
            data_directory: Some(inside.join("data")),
            ..HostSettings::default()
        };
        let host = TestHost::with(Options { settings, protocol, ..Options::default() });
        Self { _all: all, inside, outside, host }
    }

    pub fn uri(&self, path: &str) -> String {
        file_uri(&self.inside.join(path))
    }

    pub fn put(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.inside.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }
}

/// The params of a command about one resource, with what is in `more`.
pub fn of(uri: &str, more: Value) -> Value {
    let mut params = json!({ "channel": ROOT, "uri": uri });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    params
}

async fn read(client: &mut Client, uri: &str) -> ResourceReadResult {
    serde_json::from_value(client.ask("resourceRead", of(uri, json!({}))).await.unwrap()).unwrap()
}

async fn resolved(client: &mut Client, uri: &str) -> ResourceResolveResult {
    serde_json::from_value(client.ask("resourceResolve", of(uri, json!({}))).await.unwrap()).unwrap()
}

#[tokio::test]
async fn what_is_written_is_read_back_as_text_and_as_bytes() {
    let ground = Ground::new();
    let mut client = ground.host.client("c").await;
    let (text, bytes) = (ground.uri("a b.txt"), ground.uri("b.png"));
    let write = json!({ "data": "grüße\n", "encoding": "utf-8" });
    assert_eq!(client.ask("resourceWrite", of(&text, write)).await, Ok(json!({})));
    let write = json!({ "data": STANDARD.encode([0, 255, 1]), "encoding": "base64", "contentType": "image/png" });
    assert_eq!(client.ask("resourceWrite", of(&bytes, write)).await, Ok(json!({})));
    assert_eq!(fs::read(ground.inside.join("b.png")).unwrap(), [0, 255, 1]);
    for (uri, encoding, wanted) in [
        (&text, json!(null), json!({ "data": "grüße\n", "encoding": "utf-8", "contentType": "text/plain" })),
        (
            &text,
            json!("base64"),
            json!({ "data": STANDARD.encode("grüße\n"), "encoding": "base64", "contentType": "text/plain" }),
        ),
        (&text, json!("latin-1"), json!({ "data": "grüße\n", "encoding": "utf-8", "contentType": "text/plain" })),
        (&bytes, json!("utf-8"), json!({ "data": "AP8B", "encoding": "base64", "contentType": "image/png" })),
        (&bytes, json!(null), json!({ "data": "AP8B", "encoding": "base64", "contentType": "image/png" })),
    ] {
        let answer = client.ask("resourceRead", of(uri, json!({ "encoding": encoding }))).await.unwrap();
        assert_eq!(answer, wanted, "{uri} {encoding}");
    }
}

#[tokio::test]
async fn nothing_outside_of_the_allowed_directories_is_reached_whatever_the_name() {
    let ground = Ground::new();
    symlink(&ground.outside, ground.inside.join("door")).unwrap();
    symlink(ground.outside.join("secret"), ground.inside.join("letter")).unwrap();
    let mut client = ground.host.client("c").await;
    let outside = file_uri(&ground.outside);
    for uri in [
        format!("{outside}/secret"),
        format!("{outside}/none"),
        ground.uri("../out/secret"),
        format!("{}/%2e%2e/out/secret", file_uri(&ground.inside)),
        format!("{}/..%2Fout%2fsecret", file_uri(&ground.inside)),
        ground.uri("door/secret"),
        ground.uri("door/none"),
        ground.uri("letter"),
        ground.uri("data"),
        ground.uri("data/db"),
        "file:///etc/passwd".into(),
        "file:///proc/self/root/etc/passwd".into(),
        "http://localhost/x".into(),
        "virtual://x/y".into(),
        "file://elsewhere/x".into(),
    ] {
        for (method, more, flag) in [
            ("resourceRead", json!({}), "read"),
            ("resourceList", json!({}), "read"),
            ("resourceResolve", json!({}), "read"),
            ("resourceRequest", json!({}), "read"),
            ("resourceRequest", json!({ "read": true, "write": true }), "write"),
            ("resourceWrite", json!({ "data": "", "encoding": "utf-8" }), "write"),
            ("resourceMkdir", json!({}), "write"),
        ] {
            let error = client.ask(method, of(&uri, more)).await.unwrap_err();
            assert_eq!(
                (&error["code"], &error["data"]["code"]),
                (&json!(-32009), &json!("not-permitted")),
                "{method} {uri}"
            );
            assert_eq!(error["data"]["request"], json!({ "channel": ROOT, "uri": uri, flag: true }), "{method}");
        }
        for (method, source, destination) in
            [("resourceCopy", uri.clone(), ground.uri("x")), ("resourceMove", ground.uri("x"), uri.clone())]
        {
            if uri.ends_with("letter") {
                continue;
            }
            let params = json!({ "channel": ROOT, "source": source, "destination": destination });
            let error = client.ask(method, params).await.unwrap_err();
            assert_eq!((&error["code"], &error["data"]["request"]["uri"]), (&json!(-32009), &json!(uri)), "{method}");
        }
    }
    assert_eq!(fs::read_to_string(ground.outside.join("secret")).unwrap(), "secret");
    assert_eq!(read(&mut client, &ground.uri("data/attachments/s/a.txt")).await.data, "attached");
    let attachment = of(&ground.uri("data/attachments/s/a.txt"), json!({ "data": "", "encoding": "utf-8" }));
    assert_eq!(client.refused("resourceWrite", attachment).await.0, -32009);
    for name in ["relative", "file:relative", "file:///%zz", "file:///a%00b", ""] {
        assert_eq!(client.refused("resourceRead", of(name, json!({}))).await.0, -32602, "{name}");
    }
}

#[tokio::test]
async fn every_refusal_of_a_resource_has_its_code_and_changes_nothing() {
    let ground = Ground::new();
    ground.put("f", "text");
    ground.put("d/inner", "x");
    let mut client = ground.host.client("c").await;
    let (file, none) = (ground.uri("f"), ground.uri("none"));
    let etag = resolved(&mut client, &file).await.etag.unwrap();
    ground.put("f", "text, changed");
    let text = |more: Value| {
        let mut params = of(&file, json!({ "data": "new", "encoding": "utf-8" }));
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let pair = |source: &str, destination: &str, more: Value| {
        let mut params =
            json!({ "channel": ROOT, "source": ground.uri(source), "destination": ground.uri(destination) });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    for (method, params, code, word) in [
        ("resourceRead", of(&none, json!({})), -32008, "not-found"),
        ("resourceRead", of(&ground.uri("d"), json!({})), -32602, "not-a-file"),
        ("resourceRead", of(&ground.uri("f/x"), json!({})), -32008, "not-found"),
        ("resourceResolve", of(&none, json!({})), -32008, "not-found"),
        ("resourceList", of(&none, json!({})), -32008, "not-found"),
        ("resourceList", of(&file, json!({})), -32602, "not-a-directory"),
        ("resourceWrite", of(&ground.uri("none/f"), json!({ "data": "", "encoding": "utf-8" })), -32008, "not-found"),
        ("resourceWrite", of(&ground.uri("d"), json!({ "data": "", "encoding": "utf-8" })), -32602, "not-a-file"),
        ("resourceWrite", text(json!({ "createOnly": true })), -32010, "already-exists"),
        ("resourceWrite", text(json!({ "ifMatch": etag })), -32011, "conflict"),
        ("resourceWrite", text(json!({ "encoding": "base64" })), -32602, "invalid-params"),
        ("resourceWrite", text(json!({ "encoding": "latin-1" })), -32602, "invalid-params"),
        ("resourceWrite", text(json!({ "mode": "sideways" })), -32602, "invalid-params"),
        ("resourceWrite", text(json!({ "position": -1 })), -32602, "invalid-params"),
        ("resourceWrite", text(json!({ "position": 99 })), -32602, "invalid-params"),
        ("resourceCopy", pair("f", "d", json!({})), -32010, "already-exists"),
        ("resourceCopy", pair("none", "x", json!({})), -32008, "not-found"),
        ("resourceCopy", pair("f", "none/x", json!({})), -32008, "not-found"),
        ("resourceCopy", pair("f", "d/inner", json!({ "failIfExists": true })), -32010, "already-exists"),
        ("resourceMove", pair("f", "d/inner", json!({ "failIfExists": true })), -32010, "already-exists"),
        ("resourceMove", pair("d", "d/x", json!({})), -32602, "invalid-params"),
        ("resourceMove", pair("none", "x", json!({})), -32008, "not-found"),
        ("resourceDelete", of(&none, json!({})), -32008, "not-found"),
        ("resourceDelete", of(&ground.uri("d"), json!({})), -32602, "not-empty"),
        ("resourceDelete", of(&ground.uri(""), json!({ "recursive": true })), -32009, "not-permitted"),
        ("resourceMkdir", of(&file, json!({})), -32010, "already-exists"),
        ("resourceRead", json!({ "channel": ROOT }), -32602, "invalid-params"),
        ("resourceRead", json!({ "channel": "ahp-session:/s", "uri": file }), -32602, "invalid-params"),
        ("resourceRead", of(&"x".repeat(20_000), json!({})), -32602, "invalid-params"),
    ] {
        assert_eq!(client.refused(method, params.clone()).await, (code, word.to_owned()), "{method} {params}");
    }
    assert_eq!(read(&mut client, &file).await.data, "text, changed");
    assert_eq!(read(&mut client, &ground.uri("d/inner")).await.data, "x");
    assert_eq!(names(&ground.inside), ["d", "data", "f"]);
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_version_is_told_and_kept_watch_over() {
    let ground = Ground::new();
    ground.put("d/f.md", "# one");
    symlink("d/f.md", ground.inside.join("link")).unwrap();
    let mut client = ground.host.client("c").await;
    let found = resolved(&mut client, &ground.uri("link")).await;
    assert_eq!((found.uri.as_str(), found.size), (ground.uri("d/f.md").as_str(), Some(5)));
    assert_eq!(found.content_type.as_deref(), Some("text/markdown"));
    assert!(found.mtime.is_some_and(|time| time.ends_with('Z')));
    let write = json!({ "data": "# two", "encoding": "utf-8", "ifMatch": found.etag });
    assert_eq!(client.ask("resourceWrite", of(&ground.uri("d/f.md"), write.clone())).await, Ok(json!({})));
    assert_eq!(client.refused("resourceWrite", of(&ground.uri("d/f.md"), write)).await.0, -32011);
    let link =
        client.ask("resourceResolve", of(&ground.uri("link"), json!({ "followSymlinks": false }))).await.unwrap();
    assert_eq!((&link["type"], &link["uri"]), (&json!("symlink"), &json!(ground.uri("link"))));
    let directory = client.ask("resourceResolve", of(&ground.uri("d"), json!({}))).await.unwrap();
    assert_eq!((&directory["type"], directory.get("size")), (&json!("directory"), None));
}

#[tokio::test]
async fn directories_are_made_listed_copied_moved_and_deleted() {
    let ground = Ground::new();
    let mut client = ground.host.client("c").await;
    let pair = |source: &str, destination: &str| json!({ "channel": ROOT, "source": ground.uri(source), "destination": ground.uri(destination) });
    assert_eq!(client.ask("resourceMkdir", of(&ground.uri("a/b"), json!({}))).await, Ok(json!({})));
    assert_eq!(client.ask("resourceMkdir", of(&ground.uri("a/b"), json!({}))).await, Ok(json!({})));
    ground.put("a/f", "text");
    assert_eq!(client.ask("resourceCopy", pair("a", "c")).await, Ok(json!({})));
    assert_eq!(client.ask("resourceMove", pair("a/f", "c/g")).await, Ok(json!({})));
    let list = client.ask("resourceList", of(&ground.uri("c"), json!({}))).await.unwrap();
    let list: ResourceListResult = serde_json::from_value(list).unwrap();
    let told: Vec<(&str, &str)> = list.entries.iter().map(|e| (e.name.as_str(), e.r#type.as_str())).collect();
    assert_eq!(told, [("b", "directory"), ("f", "file"), ("g", "file")]);
    let all = client.ask("resourceList", of(&ground.uri(""), json!({}))).await.unwrap();
    let all: ResourceListResult = serde_json::from_value(all).unwrap();
    assert_eq!(
        all.entries.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(),
        ["a", "c"],
        "the host's own is not listed"
    );
    assert_eq!(client.ask("resourceDelete", of(&ground.uri("c"), json!({ "recursive": true }))).await, Ok(json!({})));
    assert_eq!(client.ask("resourceDelete", of(&ground.uri("a/b"), json!({}))).await, Ok(json!({})));
    assert_eq!(client.ask("resourceRequest", of(&ground.uri("new"), json!({ "write": true }))).await, Ok(json!({})));
    assert_eq!(names(&ground.inside), ["a", "data"]);
}

#[tokio::test]
async fn appends_of_two_clients_lose_nothing() {
    let ground = Ground::new();
    let (mut one, mut two) = (ground.host.client("one").await, ground.host.client("two").await);
    let write = |data: &str| of(&ground.uri("log"), json!({ "data": data, "encoding": "utf-8", "mode": "append" }));
    for _ in 0..20 {
        let (a, b) = tokio::join!(one.ask("resourceWrite", write("1")), two.ask("resourceWrite", write("2")));
        assert_eq!((a, b), (Ok(json!({})), Ok(json!({}))));
    }
    let log = read(&mut one, &ground.uri("log")).await.data;
    assert_eq!((log.matches('1').count(), log.matches('2').count()), (20, 20));
}

#[tokio::test]
async fn what_is_larger_than_a_message_is_refused_and_the_socket_stays() {
    let ground = Ground::with(ProtocolSettings { max_message_sent: 10_000, ..ProtocolSettings::default() });
    ground.put("large", vec![b'x'; 10_001]);
    ground.put("grows", vec![0; 9_000]);
    ground.put("fits", vec![b'x'; 9_000]);
    let mut client = ground.host.client("c").await;
    for name in ["large", "grows"] {
        let refused = client.refused("resourceRead", of(&ground.uri(name), json!({}))).await;
        assert_eq!(refused, (-32000, "limit-exceeded".to_owned()), "{name}");
    }
    assert!(crate::harness::met("message_sent") > 0);
    assert_eq!(read(&mut client, &ground.uri("fits")).await.data.len(), 9_000);
}
