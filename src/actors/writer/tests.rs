//! The writer over a store whose appends wait and fail on demand.

use std::sync::mpsc::{Receiver, Sender, channel};

use actix_rt::System;
use bytestring::ByteString;

use super::*;
use crate::actors::connection::{Connection, Subscription};
use crate::actors::identity::Identity;
use crate::actors::router::Router;
use crate::events::gated::{Gate, GatedStore};
use crate::events::memory::MemoryStore;
use crate::events::{Channel, Kind, NewEvent};

const ONE: ChannelId = ChannelId(11);
const TWO: ChannelId = ChannelId(12);

struct Rig {
    writer: LogWriter,
    gate: Gate,
    told: Sender<String>,
    hears: Receiver<String>,
}

impl Rig {
    fn start(durability: Durability) -> Self {
        Self::over(Hub::new(1, Arc::new(|_, _| None)), durability)
    }

    fn over(hub: Arc<Hub>, durability: Durability) -> Self {
        let store = GatedStore::new(MemoryStore::new().unwrap());
        let gate = store.gate();
        let (told, hears) = channel();
        Self { writer: LogWriter::start(Arc::new(store), hub, durability).unwrap(), gate, told, hears }
    }

    /// A release that tells `name` and how it ended.
    fn tells(&self, name: &str) -> Release {
        let (told, name) = (self.told.clone(), name.to_owned());
        Box::new(move |place| {
            let how = place.map_or_else(|_| "lost".to_owned(), |place| place.seq.to_string());
            told.send(format!("{name} {how}")).unwrap();
        })
    }

    fn heard(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.hears.recv_timeout(Duration::from_secs(30)).unwrap()).collect()
    }

    fn heard_nothing(&self) -> bool {
        self.hears.try_recv().is_err()
    }

    fn fail_next(&self) {
        self.gate.fail_next(LogFault::Engine("the test says no".into()));
    }
}

impl Drop for Rig {
    /// A test that fails with the gate closed ends all the same.
    fn drop(&mut self) {
        self.gate.release_all();
    }
}

fn batch(channel: ChannelId, bytes: usize) -> Batch {
    let action = format!(r#"{{"type":"root/test","of":"{}"}}"#, "x".repeat(bytes)).into();
    let event = NewEvent {
        channel: Channel::from(format!("ahp-session:/{}", channel.0)),
        channel_id: channel,
        kind: Kind::Action,
        at: 0,
        principal: "host".into(),
        origin: None,
        about: None,
        action,
    };
    let name = crate::events::RowOp::Put {
        table: crate::events::Table::ChannelById,
        key: crate::events::rows::channel_key(channel),
        value: event.channel.as_str().to_owned().into(),
    };
    Batch { events: vec![event], rows: vec![name] }
}

#[test]
fn a_lane_keeps_its_order_and_a_release_waits_for_what_is_before_it() {
    let rig = Rig::start(Durability::Commit);
    let lane = rig.writer.lane(ONE);
    rig.gate.hold();
    lane.append(batch(ONE, 10));
    rig.gate.wait_until_held();
    lane.release(None, rig.tells("first"));
    lane.append(batch(ONE, 10));
    lane.release(None, rig.tells("second"));
    rig.writer.lane(TWO).release(None, rig.tells("another lane"));
    assert_eq!(rig.heard(1), ["another lane 0"]);
    assert!(rig.heard_nothing());
    rig.gate.release_one();
    assert_eq!(rig.heard(1), ["first 1"]);
    rig.gate.wait_until_held();
    assert!(rig.heard_nothing());
    rig.gate.release_all();
    assert_eq!(rig.heard(1), ["second 2"]);
}

#[test]
fn a_failed_commit_refuses_all_that_its_lanes_hold_in_order_and_no_other_lane() {
    let rig = Rig::start(Durability::Commit);
    let (one, two) = (rig.writer.lane(ONE), rig.writer.lane(TWO));
    rig.gate.hold();
    one.append(batch(ONE, 10));
    rig.gate.wait_until_held();
    for name in ["a", "b"] {
        one.release(None, rig.tells(name));
        one.append(batch(ONE, 10));
    }
    one.release(None, rig.tells("c"));
    two.append(batch(TWO, 10));
    two.release(None, rig.tells("two"));
    rig.fail_next();
    rig.gate.release_all();
    assert_eq!(rig.heard(4), ["a lost", "b lost", "c lost", "two 1"]);
    one.append(batch(ONE, 10));
    one.release(None, rig.tells("the same generation"));
    assert_eq!(rig.heard(1), ["the same generation lost"]);
}

#[test]
fn a_lane_that_is_taken_anew_or_reopened_is_in_a_generation_that_nothing_was_lost_in() {
    let rig = Rig::start(Durability::Commit);
    let mut lane = rig.writer.lane(ONE);
    rig.fail_next();
    lane.append(batch(ONE, 10));
    lane.release(None, rig.tells("lost with its batch"));
    assert_eq!(rig.heard(1), ["lost with its batch lost"]);
    let anew = rig.writer.lane(ONE);
    anew.append(batch(ONE, 10));
    anew.release(None, rig.tells("anew"));
    assert_eq!(rig.heard(1), ["anew 1"]);
    assert!(lane.is_over() && !anew.is_over());
    lane.reopen();
    lane.append(batch(ONE, 10));
    lane.release(None, rig.tells("reopened"));
    assert_eq!(rig.heard(1), ["reopened 2"]);
}

#[test]
fn a_closed_lane_takes_nothing_more_and_keeps_what_it_holds() {
    let rig = Rig::start(Durability::Commit);
    let lane = rig.writer.lane(ONE);
    rig.gate.hold();
    lane.append(batch(ONE, 10));
    rig.gate.wait_until_held();
    lane.release(None, rig.tells("held"));
    lane.close("a panic");
    lane.append(batch(ONE, 10));
    lane.release(None, rig.tells("behind the end"));
    assert_eq!(rig.heard(1), ["behind the end lost"]);
    let told = rig.told.clone();
    rig.writer.when_settled(ONE, Box::new(move || told.send("settled".into()).unwrap()));
    assert!(rig.heard_nothing() && !rig.writer.is_settled(ONE));
    rig.gate.release_all();
    assert_eq!(rig.heard(2), ["held 1", "settled"]);
}

#[test]
fn a_flood_in_one_lane_leaves_others_in_the_next_commit() {
    let rig = Rig::start(Durability::Commit);
    let (flood, other) = (rig.writer.lane(ONE), rig.writer.lane(TWO));
    rig.gate.hold();
    flood.append(batch(ONE, 10));
    rig.gate.wait_until_held();
    for _ in 0..1_000 {
        flood.append(batch(ONE, 1_000));
    }
    flood.release(None, rig.tells("flood"));
    other.append(batch(TWO, 1_000));
    other.release(None, rig.tells("other"));
    rig.gate.release_one();
    rig.gate.wait_until_held();
    rig.gate.release_one();
    let heard = rig.heard(1).pop().unwrap();
    let (name, seq) = heard.split_once(' ').unwrap();
    assert_eq!(name, "other");
    assert!(seq.parse::<u64>().unwrap() < 100, "{heard}");
    rig.gate.release_all();
    assert_eq!(rig.heard(1), ["flood 1002"]);
}

#[test]
fn a_release_between_two_batches_of_one_commit_runs_between_their_envelopes() {
    System::new().block_on(async {
        let hub = Hub::new(1, Arc::new(|_, _| None));
        let router = Router::start(&hub);
        let rig = Rig::over(Arc::clone(&hub), Durability::Commit);
        let (connection, to) = router.connect(Arc::new(Identity::root("test")), 1 << 20);
        let channel = Channel::from(format!("ahp-session:/{}", ONE.0));
        router.subscribe(
            &connection,
            Subscription { channel: channel.clone(), alias: channel, from_seq: 0, window: None },
        );
        let lane = rig.writer.lane(ONE);
        rig.gate.hold();
        rig.writer.lane(TWO).append(batch(TWO, 10));
        rig.gate.wait_until_held();
        lane.append(batch(ONE, 10));
        let at = to.clone();
        lane.release(Some(ONE), Box::new(move |place| at.send(place.unwrap().channel_seq.to_string().into())));
        lane.append(batch(ONE, 10));
        lane.release(None, rig.tells("done"));
        rig.gate.release_all();
        rig.heard(1);
        let frames = frames(&connection, 3).await;
        let what: Vec<&str> =
            frames.iter().map(|frame| if frame.starts_with('{') { "envelope" } else { frame }).collect();
        assert_eq!(what, ["envelope", "2", "envelope"]);
    });
}

async fn frames(connection: &Connection, count: usize) -> Vec<ByteString> {
    let mut frames = Vec::new();
    while frames.len() < count {
        match connection.pop() {
            Some(frame) => frames.push(frame),
            None => connection.wake.notified().await,
        }
    }
    frames
}

#[test]
fn with_an_interval_releases_leave_at_once_but_those_for_the_disk() {
    let rig = Rig::start(Durability::Interval(Duration::from_secs(3_600)));
    let lane = rig.writer.lane(ONE);
    lane.append(batch(ONE, 10));
    lane.release_on_disk(rig.tells("on disk"));
    lane.release(None, rig.tells("shown"));
    assert_eq!(rig.heard(1), ["shown 1"]);
    assert!(!rig.writer.is_settled(ONE) && rig.heard_nothing());
    System::new().block_on(rig.writer.barrier()).unwrap();
    assert_eq!(rig.heard(1), ["on disk 1"]);
    assert!(rig.writer.is_settled(ONE));
    lane.release_on_disk(rig.tells("nothing before it"));
    assert_eq!(rig.heard(1), ["nothing before it 1"]);
}

#[test]
fn with_an_interval_a_barrier_says_when_the_disk_takes_nothing() {
    let rig = Rig::start(Durability::Interval(Duration::from_secs(3_600)));
    let lane = rig.writer.lane(ONE);
    lane.append(batch(ONE, 10));
    lane.release(None, rig.tells("shown"));
    assert_eq!(rig.heard(1), ["shown 1"]);
    rig.fail_next();
    assert!(System::new().block_on(rig.writer.barrier()).is_err());
    assert!(rig.writer.is_failing());
    lane.append(batch(ONE, 10));
    lane.release(None, rig.tells("new work"));
    assert_eq!(rig.heard(1), ["new work lost"]);
    System::new().block_on(rig.writer.barrier()).unwrap();
    assert!(!rig.writer.is_failing());
    let anew = rig.writer.lane(ONE);
    anew.append(batch(ONE, 10));
    anew.release(None, rig.tells("goes on"));
    assert_eq!(rig.heard(1), ["goes on 2"]);
}

#[test]
fn what_is_appended_while_the_host_stops_is_refused_and_never_called_durable() {
    let rig = Rig::start(Durability::Commit);
    let lane = rig.writer.lane(ONE);
    rig.writer.stop();
    lane.append(batch(ONE, 10));
    lane.release(None, rig.tells("too late"));
    assert_eq!(rig.heard(1), ["too late lost"]);
}

#[test]
fn a_release_knows_what_its_commit_handed_over_however_many_channels_that_has() {
    let rig = Rig::start(Durability::Commit);
    let lane = rig.writer.lane(ONE);
    rig.gate.hold();
    lane.append(batch(ONE, 10));
    rig.gate.wait_until_held();
    for id in 0..KNOWN_CHANNELS as u64 + 3 {
        lane.append(batch(ChannelId(20 + id), 10));
    }
    let (told, hears) = channel();
    lane.release(Some(ChannelId(20)), Box::new(move |place| told.send(place.unwrap().channel_seq).unwrap()));
    rig.gate.release_all();
    assert_eq!(hears.recv_timeout(Duration::from_secs(30)), Ok(2));
}

#[test]
fn nobody_waits_for_a_writer_that_is_gone() {
    let rig = Rig::start(Durability::Interval(Duration::from_secs(3_600)));
    rig.writer.stop();
    let waits = async { tokio::time::timeout(Duration::from_secs(30), rig.writer.barrier()).await };
    assert!(System::new().block_on(waits).unwrap().is_ok());
}

#[test]
fn a_held_lane_goes_on_behind_the_batch_of_another_lane() {
    for durability in [Durability::Commit, Durability::Interval(Duration::from_millis(1))] {
        let rig = Rig::start(durability);
        let (one, two) = (rig.writer.lane(ONE), rig.writer.lane(TWO));
        two.append(batch(TWO, 10));
        two.release(None, rig.tells("before"));
        assert_eq!(rig.heard(1), ["before 1"]);
        let held = two.hold();
        two.append(batch(TWO, 10));
        two.release(None, rig.tells("behind"));
        one.append(batch(ONE, 10));
        one.release(None, rig.tells("another lane"));
        assert_eq!(rig.heard(1), ["another lane 2"]);
        assert!(!rig.writer.is_settled(TWO));
        let told = rig.tells("settled");
        let place = Place { seq: 0, channel_seq: 0 };
        rig.writer.when_settled(TWO, Box::new(move || told(Ok(place))));
        one.append_with(batch(ONE, 10), held);
        assert_eq!(rig.heard(2), ["behind 4", "settled 0"]);
        assert!(rig.writer.is_settled(TWO));
    }
}

#[test]
fn what_a_held_lane_waits_for_is_lost_for_both() {
    let rig = Rig::start(Durability::Commit);
    let (one, two) = (rig.writer.lane(ONE), rig.writer.lane(TWO));
    let held = two.hold();
    two.append(batch(TWO, 10));
    two.release(None, rig.tells("behind"));
    rig.gate.hold();
    rig.fail_next();
    one.append(batch(ONE, 10));
    rig.gate.wait_until_held();
    // It stands behind what fails.
    one.append_with(batch(ONE, 10), held);
    one.release(None, rig.tells("of the batch"));
    rig.gate.release_all();
    let mut heard = rig.heard(2);
    heard.sort();
    assert_eq!(heard, ["behind lost", "of the batch lost"]);
    assert!(one.is_over() && two.is_over() && rig.writer.is_settled(TWO));
    let anew = rig.writer.lane(TWO);
    anew.append(batch(TWO, 10));
    anew.release(None, rig.tells("anew"));
    assert_eq!(rig.heard(1), ["anew 1"]);
}

#[test]
fn a_batch_for_two_lanes_that_fails_itself_is_lost_for_both() {
    let rig = Rig::start(Durability::Commit);
    let (one, two) = (rig.writer.lane(ONE), rig.writer.lane(TWO));
    let held = two.hold();
    two.release(None, rig.tells("behind"));
    rig.fail_next();
    one.append_with(batch(ONE, 10), held);
    assert_eq!(rig.heard(1), ["behind lost"]);
    assert!(one.is_over() && two.is_over());
}

#[test]
fn a_held_lane_whose_batch_never_comes_loses_what_is_behind_its_place_and_nothing_before() {
    let rig = Rig::start(Durability::Commit);
    let two = rig.writer.lane(TWO);
    rig.gate.hold();
    two.append(batch(TWO, 10));
    rig.gate.wait_until_held();
    two.append(batch(TWO, 10));
    two.release(None, rig.tells("before"));
    let held = two.hold();
    two.append(batch(TWO, 10));
    two.release(None, rig.tells("behind"));
    drop(held);
    assert_eq!(rig.heard(1), ["behind lost"]);
    rig.gate.release_all();
    assert_eq!(rig.heard(1), ["before 2"]);
    assert!(two.is_over());
}
