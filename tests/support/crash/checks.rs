//! What must hold after every kill.

use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;

use serde::Deserialize;
use serde_json::Value;

use super::Broken;
use super::child::Child;
use super::person::Person;

/// The events of the log as envelopes, by number.
pub type Log = BTreeMap<u64, String>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    channel: String,
    server_seq: u64,
    action: Value,
}

fn parse(envelope: &str) -> Result<Envelope, Broken> {
    serde_json::from_str(envelope).map_err(|error| Broken::new(format!("{error}: {envelope}")))
}

/// The whole log, as `/api/events` tells it.
pub fn read_log(host: &Child) -> Result<Log, Broken> {
    let url = format!("http://127.0.0.1:{}/api/events", host.port);
    let mut text = String::new();
    let mut answer = ureq::get(&url).call().map_err(Broken::new)?;
    answer.body_mut().as_reader().read_to_string(&mut text).map_err(Broken::new)?;
    let mut log = Log::new();
    let mut last = 0;
    for line in text.lines() {
        let seq = parse(line)?.server_seq;
        if seq <= last {
            return Err(Broken::new(format!("event {seq} stands behind event {last}")));
        }
        last = seq;
        log.insert(seq, line.to_owned());
    }
    Ok(log)
}

/// What was in the log is in it, byte for byte.
pub fn kept(before: &Log, now: &Log) -> Result<(), Broken> {
    for (seq, envelope) in before {
        if now.get(seq) != Some(envelope) {
            return Err(Broken::new(format!("event {seq} was {envelope} and is {:?}", now.get(seq))));
        }
    }
    Ok(())
}

/// No number stands for another event than anybody saw under it. Returns how many events that were seen are gone.
pub fn shown(people: &[Person], log: &Log) -> Result<usize, Broken> {
    let mut lost = 0;
    let mut by_all: HashMap<u64, &str> = HashMap::new();
    for (seq, seen) in people.iter().flat_map(Person::seen) {
        if by_all.insert(*seq, seen).is_some_and(|other| other != seen) {
            return Err(Broken::new(format!("two people saw event {seq} in two ways: {seen}")));
        }
    }
    for (seq, seen) in by_all {
        match log.get(&seq) {
            Some(stored) if stored == seen => {}
            Some(stored) => {
                return Err(Broken::new(format!("event {seq} was shown as {seen} and is stored as {stored}")));
            }
            None => lost += 1,
        }
    }
    Ok(lost)
}

/// The turns that have no ending yet, by chat and id, each with how many kills it has outlived.
pub type Open = HashMap<(String, String), u32>;

/// How many kills a turn may outlive: one that its first process was ended by, and one that came before its second process
/// had ended it.
const KILLS: u32 = 2;

/// Every turn has at most one ending, and gets it before long. `open` holds those of the round before, and then of this one.
/// Returns how many turns the newest start took up, or ended.
pub fn endings(before: &Log, now: &Log, open: &mut Open) -> Result<usize, Broken> {
    let mut running: HashMap<(String, String), u64> = HashMap::new();
    let mut ended: HashMap<(String, String), u64> = HashMap::new();
    let mut notices = 0;
    for (seq, envelope) in now {
        let Envelope { channel, action, .. } = parse(envelope)?;
        let turn = (channel, action["turnId"].as_str().unwrap_or_default().to_owned());
        match action["type"].as_str().unwrap_or_default() {
            "chat/turnStarted" => {
                let again = ended.contains_key(&turn) || running.contains_key(&turn);
                running.insert(turn.clone(), *seq);
                if again {
                    return Err(Broken::new(format!("event {seq} starts turn {turn:?} a second time")));
                }
            }
            "chat/turnComplete" | "chat/turnCancelled" | "chat/error" => {
                if running.remove(&turn).is_none() {
                    return Err(Broken::new(format!("event {seq} ends turn {turn:?}, which is not running")));
                }
                ended.insert(turn, *seq);
            }
            "chat/turnResume" => {
                if ended.remove(&turn).is_none() {
                    return Err(Broken::new(format!("event {seq} resumes turn {turn:?}, which has not ended")));
                }
                running.insert(turn, *seq);
            }
            "chat/responsePart" if action["part"]["kind"] == "systemNotification" && !before.contains_key(seq) => {
                notices += 1;
            }
            _ => {}
        }
    }
    let outlived = |turn: (String, String)| (open.get(&turn).map_or(1, |kills| kills + 1), turn);
    *open = running.into_keys().map(outlived).map(|(kills, turn)| (turn, kills)).collect();
    match open.iter().find(|(_, kills)| **kills > KILLS) {
        Some((turn, kills)) => Err(Broken::new(format!("turn {turn:?} has no ending after {kills} kills"))),
        None => Ok(notices + open.len()),
    }
}
