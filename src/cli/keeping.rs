//! `scrollback log restore` and `scrollback log erase`: what is gone from every list comes back, or goes for good.
//!
//! A directory that no host has open is opened by a host of our own that listens nowhere, so that both do the same.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;

use serde_json::{Value, json};

use super::args::Place;
use super::fault::CliFault;
use super::out::Out;
use super::reach::{OpenDirectory, Reach};
use crate::actors::command::Refusal;
use crate::actors::host::{Host, HostSettings};
use crate::agents;
use crate::clock::Clock;
use crate::config::Environment;
use crate::events::Store;
use crate::events::sled_store::Access;

/// `log restore URI`.
pub fn restore(uri: &str, place: &Place, environment: &Environment) -> Result<(), CliFault> {
    let said: Value = match Reach::of(place, Access::Write, environment)? {
        Reach::Host(host) => host.post("/api/log/restore", &json!({ "uri": uri }))?,
        Reach::Directory(directory) => {
            let (principal, asked) = (principal(environment), uri.to_owned());
            with_host(*directory, environment, async move |host| host.restore(&principal, &asked).await)?;
            json!({ "uri": uri })
        }
    };
    let mut out = Out::new(place.json, environment);
    if out.json {
        out.object(&said)?
    } else {
        out.line(&format!("restored {uri}"))?
    }
    out.flush()
}

/// `log erase URI`: asks first.
pub fn erase(uri: &str, yes: bool, place: &Place, environment: &Environment) -> Result<(), CliFault> {
    if !yes {
        confirm(uri)?;
    }
    let said: Value = match Reach::of(place, Access::Write, environment)? {
        Reach::Host(host) => host.post("/api/log/erase", &json!({ "uri": uri }))?,
        Reach::Directory(directory) => {
            let (principal, asked) = (principal(environment), uri.to_owned());
            let erased = with_host(*directory, environment, async move |host| host.erase(&principal, &asked).await)?;
            serde_json::to_value(erased).map_err(|error| CliFault::Failed(error.to_string()))?
        }
    };
    let mut out = Out::new(place.json, environment);
    if out.json {
        out.object(&said)?
    } else {
        out.line(&format!("erased {uri}: {} events", said.get("events").and_then(Value::as_u64).unwrap_or(0)))?
    }
    out.flush()
}

fn confirm(uri: &str) -> Result<(), CliFault> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(CliFault::Usage("log erase asks first, and there is no terminal to ask: add --yes".into()));
    }
    let mut terminal = std::io::stderr();
    let _ = write!(terminal, "Remove all events of {uri} for good? [y/N] ").and_then(|()| terminal.flush());
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer).map_err(|error| CliFault::Failed(error.to_string()))?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CliFault::Failed("nothing was erased".into())),
    }
}

/// Who works on the directory itself: the deployment.
fn principal(environment: &Environment) -> String {
    format!("root:{}", environment.host_name())
}

/// Lets a host that listens nowhere and takes up no turn do one thing.
pub fn with_host<T, W>(directory: OpenDirectory, environment: &Environment, work: W) -> Result<T, CliFault>
where
    W: AsyncFnOnce(&Host) -> Result<T, Refusal>,
{
    let (path, store, _lock) = directory.into_parts();
    let store = Arc::new(store);
    let settings = HostSettings {
        host_name: environment.host_name(),
        data_directory: Some(path),
        maintenance: true,
        ..HostSettings::default()
    };
    let done = actix_web::rt::System::new().block_on(async {
        let log: Arc<dyn Store> = Arc::<crate::events::sled_store::SledStore>::clone(&store);
        let host = Host::start(settings, log, vec![agents::built_in()], Clock::system())?;
        let done = work(&host).await;
        host.stop().await;
        Ok::<_, CliFault>(done)
    });
    let closed = store.close_clean();
    let done = done?.map_err(|refusal| CliFault::Failed(refusal.message))?;
    closed?;
    Ok(done)
}
