//! What the program says and asks.

use std::sync::Arc;

use agent_client_protocol::v1::schema::{
    AvailableCommandsUpdate, ReadTextFileRequest, RequestPermissionRequest, SessionNotification, SessionUpdate,
    WriteTextFileRequest,
};
use agent_client_protocol::{Error, ErrorCode, RawJsonRpcId, RawJsonRpcMessage, RawJsonRpcParams, RawJsonRpcResponse};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::opening::lost;
use super::telling::outcome;
use super::{Asked, Live, Over, Stage};
use crate::agents::acp::{files, known, problems};
use crate::resources::Roots;

/// The notification that takes a request back.
const CANCEL_REQUEST: &str = "$/cancel_request";

impl Live<'_> {
    pub(super) fn heard(&mut self, message: RawJsonRpcMessage) -> Result<(), Over> {
        match message {
            RawJsonRpcMessage::Request(request) => self.requested(request.id, &request.method, request.params),
            RawJsonRpcMessage::Notification(notification) => self.notified(&notification.method, notification.params),
            RawJsonRpcMessage::Response(response) => {
                let (id, result) = match response {
                    RawJsonRpcResponse::Result { id, result } => (id, Ok(result)),
                    RawJsonRpcResponse::Error { id, error } => (id, Err(error.into_acp_error())),
                };
                let RawJsonRpcId::Number(id) = id else { return Ok(()) };
                if let Some(asked) = self.asked.remove(&id) {
                    return self.answered(asked, result);
                }
            }
        }
        Ok(())
    }

    pub(super) fn answered(&mut self, asked: Asked, result: Result<Value, Error>) -> Result<(), Over> {
        match (asked, result) {
            (Asked::Initialize, Ok(answer)) => self.initialized(answer)?,
            (Asked::Resume | Asked::Load, Ok(answer)) => self.reopened(&answer),
            (Asked::New, Ok(answer)) => self.opened(&answer)?,
            (Asked::Set { id, value }, result) => self.has_set(&id, value, result),
            (Asked::Prompt, result) => self.prompted(result),
            (Asked::Initialize | Asked::New | Asked::Resume | Asked::Load, Err(error))
                if error.code == ErrorCode::AUTH_REQUIRED =>
            {
                return Err(Over::Gone(self.stderr.explain(&self.login())));
            }
            (Asked::Resume, Err(error)) => {
                tracing::info!(%error, "an agent does not resume its conversation");
                self.load(&lost(&error));
            }
            (Asked::Load, Err(error)) => self.begin(Some(lost(&error))),
            (Asked::Initialize | Asked::New, Err(error)) => {
                let setup = &self.chat.setup;
                let problem =
                    format!("{} ({}) does not start: {}", setup.name, setup.program.command, problems::words(&error));
                return Err(Over::Gone(self.stderr.explain(&problem)));
            }
            (Asked::Close, _) => {}
        }
        self.prompt();
        Ok(())
    }

    pub(super) fn requested(&mut self, id: RawJsonRpcId, method: &str, params: Option<RawJsonRpcParams>) {
        let params = params.map_or(Value::Null, RawJsonRpcParams::into_value);
        match method {
            "session/request_permission" => match parsed(params) {
                Ok(request) => self.permission(id, request),
                Err(error) => self.writer.answer(id, Err(error)),
            },
            "fs/read_text_file" => {
                self.work(id, params, |roots, request: ReadTextFileRequest| files::read(roots, &request))
            }
            "fs/write_text_file" => {
                self.work(id, params, |roots, request: WriteTextFileRequest| files::write(roots, &request));
            }
            other => self.writer.answer(id, Err(Error::method_not_found().data(other.to_owned()))),
        }
    }

    /// Does what blocks on a thread for it.
    pub(super) fn work<T: DeserializeOwned + Send + 'static>(
        &mut self,
        id: RawJsonRpcId,
        params: Value,
        work: fn(&Roots, T) -> Result<Value, Error>,
    ) {
        let request = match parsed(params) {
            Ok(request) => request,
            Err(error) => return self.writer.answer(id, Err(error)),
        };
        let (roots, done) = (Arc::clone(&self.chat.setup.surroundings.roots), self.done.clone());
        self.works += 1;
        tokio::task::spawn_blocking(move || {
            // A run that is over needs no answer.
            let _ = done.send((id, work(&roots, request)));
        });
    }

    pub(super) fn permission(&mut self, id: RawJsonRpcId, request: RequestPermissionRequest) {
        let is_known = self.session.as_deref() == Some(&*request.session_id.0);
        let Some(turn) = self.turn.as_mut().filter(|turn| is_known && !turn.cancelled) else {
            return self.writer.answer(id, outcome(None));
        };
        turn.heard = true;
        turn.interrupted();
        let asked = turn.calls.asked(id, request);
        self.alive();
        match asked {
            Ok(events) => self.chat.out.extend(events),
            Err(ask) => self.writer.answer(ask.id, outcome(None)),
        }
    }

    pub(super) fn notified(&mut self, method: &str, params: Option<RawJsonRpcParams>) {
        let params = params.map_or(Value::Null, RawJsonRpcParams::into_value);
        if method == CANCEL_REQUEST {
            let id = params.get("requestId").and_then(|id| serde_json::from_value::<RawJsonRpcId>(id.clone()).ok());
            return self.withdrawn(id);
        }
        if method != "session/update" {
            return;
        }
        match serde_json::from_value::<SessionNotification>(params) {
            Ok(said) if self.is_of_session(&said) => self.updated(said.update),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "an agent says something that is not known"),
        }
    }

    /// Before the conversation is open its id is not known.
    pub(super) fn is_of_session(&self, said: &SessionNotification) -> bool {
        self.session.as_deref().is_none_or(|session| session == &*said.session_id.0)
    }

    pub(super) fn withdrawn(&mut self, id: Option<RawJsonRpcId>) {
        let Some(id) = id else { return };
        if let Some(settled) = self.turn.as_mut().and_then(|turn| turn.calls.withdrawn(&id)) {
            self.writer.answer(id, Err(Error::request_cancelled()));
            self.chat.out.push_back(settled);
        }
    }

    pub(super) fn updated(&mut self, update: SessionUpdate) {
        match update {
            SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate { available_commands, .. }) => {
                let commands = known::commands(available_commands);
                return self.chat.setup.learn(|known| known.commands = commands);
            }
            SessionUpdate::CurrentModeUpdate(update) => return self.settings.take_mode(&update.current_mode_id.0),
            SessionUpdate::ConfigOptionUpdate(update) => return self.settings.take_options(update.config_options),
            SessionUpdate::UsageUpdate(ref usage) => self.used = Some(usage.used),
            _ => {}
        }
        if self.stage == Stage::Loading {
            let is_history = !matches!(update, SessionUpdate::UsageUpdate(_) | SessionUpdate::SessionInfoUpdate(_));
            self.replayed += usize::from(is_history);
            return;
        }
        if self.is_of_an_old_call(&update) {
            return;
        }
        let Some(turn) = self.turn.as_mut().filter(|turn| !turn.cancelled) else { return };
        let events = turn.update(update);
        let is_first = !turn.heard && !events.is_empty();
        if is_first {
            turn.heard = true;
            self.alive();
        }
        self.chat.out.extend(events);
    }

    /// Whether it is the rest of a call of an earlier turn. Agents use ids again: one that is announced or asked about in the
    /// running turn is that turn's.
    pub(super) fn is_of_an_old_call(&self, update: &SessionUpdate) -> bool {
        let SessionUpdate::ToolCallUpdate(update) = update else { return false };
        let id = &*update.tool_call_id.0;
        self.old_calls.contains(id) && !self.turn.as_ref().is_some_and(|turn| turn.calls.has(id))
    }

    /// The agent works in the conversation: it can be gone on with from now on.
    pub(super) fn alive(&mut self) {
        self.transcript = None;
        self.is_trusted = true;
        if let Some(session) = self.session.clone() {
            self.chat.known(&session);
        }
    }
}

fn parsed<T: DeserializeOwned>(params: Value) -> Result<T, Error> {
    serde_json::from_value(params).map_err(|error| Error::invalid_params().data(error.to_string()))
}
