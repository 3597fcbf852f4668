//! How clients are answered: behind what the answer rests on, through the lane.

use std::sync::Arc;

use super::messages::{SessionMessage, Subscriber};
use crate::actors::command::{Answer, Refusal, RefusalKind, Reply};
use crate::actors::connection::{Caller, Subscription, Window};
use crate::actors::core::{ClientAction, SessionCore};
use crate::actors::envelope;
use crate::actors::host::{OnSnapshot, SnapshotJson};
use crate::actors::rejection::{Code, Rejection};
use crate::actors::writer::{Lane, Lost, Place};
use crate::events::{Channel, ChannelId};

/// Sends a refused action back to its sender, with this number.
pub fn reject_at(client: &ClientAction, seq: u64, rejection: &Rejection) {
    let frame = envelope::rejection(client.alias.as_str(), seq, &client.origin(), &client.sent, &rejection.to_string());
    client.caller.connection.send(frame);
}

/// A refusal that rests on what was decided before it.
pub fn refuse(core: &SessionCore, refusal: Refusal, reply: Reply) {
    answer(core, Err(refusal), reply);
}

/// An answer that rests on what was decided before it.
pub fn answer(core: &SessionCore, answer: Answer, reply: Reply) {
    let of_lost = |lost: Lost| Err(refusal_of_lost(&lost));
    core.lane.release(None, Box::new(move |place| reply(place.map_or_else(of_lost, |_| answer))));
}

/// The refusal for a chat that is not there.
pub fn no_such_chat(chat: &Channel) -> Refusal {
    Refusal::new(RefusalKind::NotFound, "not-found", format!("there is no chat {chat}"))
}

/// Answers a subscription to a chat that is not there.
pub fn not_there(core: &SessionCore, caller: &Caller, then: OnSnapshot) {
    let connection = caller.connection.clone();
    let refusal = Refusal::new(RefusalKind::NotFound, "not-found", "there is no such chat");
    let answer = move |place: Result<Place, Lost>| {
        let refusal = place.map_or_else(|lost| refusal_of_lost(&lost), |_| refusal);
        connection.run(Box::new(move |connection| then(connection, Err(refusal))));
    };
    core.lane.release(None, Box::new(answer));
}

/// Sends back an action that was lost, or whose outcome rested on something that was.
pub fn reject_lost(client: &ClientAction, lost: &Lost) {
    reject_at(client, lost.1, &Rejection::new(Code::LogUnavailable, lost.0.to_string()));
}

/// The refusal of a command that was lost, or whose outcome rested on something that was.
pub fn refusal_of_lost(lost: &Lost) -> Refusal {
    Refusal::log_unavailable(&lost.0)
}

/// Sends a refused action back to its sender, behind what it rests on.
pub fn reject(lane: &Lane, client: ClientAction, rejection: Rejection) {
    lane.release(
        None,
        Box::new(move |place| match place {
            Ok(place) => reject_at(&client, place.seq, &rejection),
            Err(lost) => reject_lost(&client, &lost),
        }),
    );
}

/// Sends an accepted action that changes nothing back to its sender alone, behind what that rests on.
pub fn echo(lane: &Lane, client: ClientAction) {
    lane.release(
        None,
        Box::new(move |place| match place {
            Ok(place) => {
                let frame = envelope::echo(client.alias.as_str(), place.seq, &client.origin(), &client.sent);
                client.caller.connection.send(frame);
            }
            Err(lost) => reject_lost(&client, &lost),
        }),
    );
}

/// Sends an accepted action back to its sender alone, once what was recorded because of it may be shown. Who loses that is told
/// with it.
pub fn echo_recorded(lane: &Lane, client: ClientAction) {
    let echo = move |place: Result<Place, Lost>| {
        if let Ok(place) = place {
            let frame = envelope::echo(client.alias.as_str(), place.seq, &client.origin(), &client.sent);
            client.caller.connection.send(frame);
        }
    };
    lane.release(None, Box::new(echo));
}

/// Hands a snapshot over at its place of the line, with the subscription.
pub fn hand_snapshot(
    core: &SessionCore,
    channel: Channel,
    id: ChannelId,
    state: String,
    window: Option<Window>,
    subscriber: Subscriber,
) {
    let Subscriber { caller, alias, turns, then, again } = subscriber;
    let connection = caller.connection.clone();
    let (shared, session) = (Arc::clone(&core.shared), core.id);
    let release = move |place: Result<Place, Lost>| match place {
        Ok(place) => {
            let from_seq = place.channel_seq;
            let subscription = Subscription { channel, alias: alias.clone(), from_seq, window };
            let snapshot = SnapshotJson { resource: alias, state: state.into(), from_seq, folded: None };
            connection.subscribe(subscription, Box::new(move |connection| then(connection, Ok(snapshot))));
        }
        // The old state is there to be read.
        Err(_) if !again && !shared.is_stopping() => {
            let message = SessionMessage::Subscribe { channel, alias, caller, turns, then, again: true };
            shared.registry.send(session, message);
        }
        Err(lost) => {
            let refusal = refusal_of_lost(&lost);
            connection.run(Box::new(move |connection| then(connection, Err(refusal))));
        }
    };
    core.lane.release(Some(id), Box::new(release));
}

/// Hands the session's own snapshot over, as it is now.
pub fn subscribe(core: &SessionCore, subscriber: Subscriber) {
    let state = serde_json::to_value(&core.fold.state).map(|value| value.to_string()).unwrap_or_default();
    hand_snapshot(core, core.channel.clone(), core.id, state, None, subscriber);
}
