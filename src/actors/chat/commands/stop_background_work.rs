//! `x-scrollback/stopBackgroundWork`: a worker in the background ends at once; of other work its agent is told, which says when
//! it is over.

use ahp_types::state::BackgroundWork;

use super::Accepted;
use crate::actors::agent::AgentInput;
use crate::actors::chat::decide::{Effect, Entry};
use crate::actors::command::{Refusal, RefusalKind};
use crate::actors::core::ChatCell;
use crate::projections::workers::work_id;

/// Decides. A worker's own chat takes it too: it is a stop.
pub fn decide(cell: &ChatCell, id: &str) -> Result<Accepted, Refusal> {
    let mut works = cell.fold.state.background_work.iter().flatten();
    match works.find(|work| work_id(work) == Some(id)) {
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
