//! `x-scrollback/stopBackgroundWork`: a worker in the background ends at once; of other work its agent is told, which says when
//! it is over.

use ahp_types::state::BackgroundWork;

use super::Accepted;
use crate::actors::agent::AgentInput;
use crate::actors::chat::decide::{Effect, Entry};
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::core::ChatCell;

/// Decides. A worker's own chat takes it too: it is a stop.
pub fn decide(cell: &ChatCell, id: &str) -> Result<Accepted, Refusal> {
    let works = cell.fold.state.background_work.iter().flatten();
    let found = works.into_iter().find(|work| match work {
        BackgroundWork::Shell(work) => work.id == id,
        BackgroundWork::Subagent(work) => work.id == id,
        BackgroundWork::Unknown(work) => work.get("id").and_then(serde_json::Value::as_str) == Some(id),
    });
    match found {
        None => {
            let text = format!("no background work {id} is listed: it is over, or never was");
            Err(Refusal::new(RefusalKind::NotFound, "request-not-found", text))
        }
        Some(BackgroundWork::Subagent(work)) => {
            Ok(Accepted::new(vec![Entry::EndWorker(work.chat.clone())], Vec::new()))
        }
        Some(_) => {
            let told = AgentInput::StopBackgroundWork { id: id.to_owned() };
            Ok(Accepted::new(Vec::new(), vec![Effect::Tell(Box::new(told))]))
        }
    }
}
