//! `scrollback agents`: the configured agents, and whether each can start here.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::args::AgentsArgs;
use super::fault::CliFault;
use super::out::Out;
use super::reach::host_of;
use super::settings;
use crate::actors::agent::Agent;
use crate::actors::probing;
use crate::agents::programs::Programs;
use crate::agents::{self, Surroundings};
use crate::config::{self, Environment, Loaded};
use crate::resources::Roots;

/// How long the programs of probes may take to leave by themselves.
const LEAVE: Duration = Duration::from_secs(5);

/// Asks the host that runs, or probes what the configuration says.
pub fn run(args: &AgentsArgs, environment: &Environment) -> Result<(), CliFault> {
    let reports = match host_of(&args.place, environment)? {
        Some(host) => host.object::<Vec<Value>>("/api/agents", &[])?,
        None => probed(args, environment)?,
    };
    let mut out = Out::new(args.place.json, environment);
    for report in &reports {
        if out.json {
            out.object(report)?;
        } else {
            out.agent(report)?;
        }
    }
    out.flush()
}

fn probed(args: &AgentsArgs, environment: &Environment) -> Result<Vec<Value>, CliFault> {
    let file = args.config.as_deref().or_else(|| environment.get("SCROLLBACK_CONFIG").map(Path::new));
    let loaded = config::load(file, environment, &[])?;
    let programs = programs(&loaded, environment, None)?;
    let agents = all(&loaded, environment, &programs, None);
    let reports = actix_web::rt::System::new().block_on(async {
        let reports = probing::reports(&agents).await;
        programs.end();
        // Most leave by themselves; what does not is ended below.
        let _ = tokio::time::timeout(LEAVE, programs.ended()).await;
        let value = |report| serde_json::to_value(report).map_err(|error| CliFault::Failed(error.to_string()));
        reports.iter().map(value).collect()
    });
    programs.shut_down();
    reports
}

/// What runs for the agents of the host of `data`.
pub fn programs(loaded: &Loaded, environment: &Environment, data: Option<&Path>) -> Result<Programs, CliFault> {
    let programs = Programs::new(environment, data, settings::ending_steps(&loaded.config));
    programs.map_err(|error| CliFault::Failed(format!("agents: no threads for them: {error}")))
}

/// The agents of a host: the one that every host has, and those that are configured.
pub fn all(
    loaded: &Loaded,
    environment: &Environment,
    programs: &Programs,
    data: Option<&Path>,
) -> Vec<Arc<dyn Agent>> {
    let host = settings::host(&loaded.config);
    let surroundings = Surroundings {
        programs: programs.clone(),
        roots: Arc::new(Roots::new(&host.allowed_directories, data)),
        data_directory: data.map(Path::to_owned),
        limits: settings::agents(&loaded.config),
    };
    let mut all = vec![agents::built_in()];
    all.extend(agents::configured(&loaded.agents, environment, &surroundings));
    all
}
