//! What must hold after every kill.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read as _;

use serde::Deserialize;
use serde_json::Value;

use super::Broken;
use super::child::Child;
use super::operator::Operator;
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

/// What was erased, and where the chats were: what is gone with it, and what may have other words.
#[derive(Default)]
pub struct Erased {
    uris: BTreeSet<String>,
    /// The session that each chat was in last.
    homes: HashMap<String, String>,
}

impl Erased {
    /// Nothing is erased that nobody asked to erase, and what was answered is done.
    pub fn take(&mut self, uris: BTreeSet<String>, operator: &Operator) -> Result<(), Broken> {
        if let Some(uri) = uris.iter().find(|uri| !operator.erased.contains_key(*uri)) {
            return Err(Broken::new(format!("{uri} was erased, and nobody asked for it")));
        }
        let answered = operator.erased.iter().filter(|(_, answered)| **answered);
        if let Some((uri, _)) = answered.clone().find(|(uri, _)| !uris.contains(*uri)) {
            return Err(Broken::new(format!("{uri} was erased, and the log does not say so")));
        }
        self.uris = uris;
        Ok(())
    }

    /// How many sessions and chats.
    pub fn count(&self) -> usize {
        self.uris.len()
    }

    /// Follows where chats are.
    pub fn follow<'a>(&mut self, events: impl Iterator<Item = &'a str>) -> Result<(), Broken> {
        for Envelope { channel, action, .. } in
            events.filter(|e| e.contains("session/chatAdded")).map(parse).collect::<Result<Vec<_>, _>>()?
        {
            if let Some(chat) = action["summary"]["resource"].as_str() {
                self.homes.insert(chat.to_owned(), channel);
            }
        }
        Ok(())
    }

    fn has(&self, channel: &str) -> bool {
        self.uris.contains(channel) || self.homes.get(channel).is_some_and(|session| self.uris.contains(session))
    }

    /// Whether an event that was there may be gone, or may have lost its words: it was of a chat that was erased.
    fn allows(&self, was: &str, is: Option<&str>) -> Result<bool, Broken> {
        if self.uris.is_empty() {
            return Ok(false);
        }
        let was = parse(was)?;
        if self.has(&was.channel) {
            return Ok(is.is_none());
        }
        let Some(is) = is else { return Ok(false) };
        let is = parse(is)?;
        let about = |action: &Value| {
            let chat = ["/summary/resource", "/chat", "/request/chat"]
                .iter()
                .find_map(|at| action.pointer(at)?.as_str().map(str::to_owned));
            (chat, action["type"].clone())
        };
        let (chat, kind) = about(&was.action);
        let same = was.channel == is.channel && about(&is.action) == (chat.clone(), kind);
        Ok(same && chat.is_some_and(|chat| self.has(&chat)))
    }
}

/// Whether two envelopes tell the same event: byte for byte, but for a page of older turns, which has what its reader lacks.
fn is_same(one: &str, other: &str) -> Result<bool, Broken> {
    if one == other {
        return Ok(true);
    }
    let (one, other) = (parse(one)?, parse(other)?);
    let pages = [&one, &other].iter().all(|envelope| envelope.action["type"] == "chat/turnsLoaded");
    Ok(pages && (one.channel, one.server_seq) == (other.channel, other.server_seq))
}

/// What was in the log is in it, byte for byte, unless it was erased.
pub fn kept(before: &Log, now: &Log, erased: &Erased) -> Result<(), Broken> {
    for (seq, envelope) in before {
        let is = now.get(seq);
        if is != Some(envelope) && !erased.allows(envelope, is.map(String::as_str))? {
            return Err(Broken::new(format!("event {seq} was {envelope} and is {is:?}")));
        }
    }
    match now.values().map(|envelope| parse(envelope)).find(|is| is.as_ref().is_ok_and(|is| erased.has(&is.channel))) {
        Some(is) => Err(Broken::new(format!("event {} is of what was erased", is?.server_seq))),
        None => Ok(()),
    }
}

/// No number stands for another event than anybody saw under it. Returns how many events that were seen are gone.
pub fn shown(people: &[Person], log: &Log, erased: &Erased) -> Result<usize, Broken> {
    let mut lost = 0;
    let mut by_all: HashMap<u64, &str> = HashMap::new();
    for (seq, seen) in people.iter().flat_map(Person::seen) {
        let other = by_all.insert(*seq, seen);
        // What comes behind an erasure is told without its words.
        if let Some(other) = other
            && !is_same(other, seen)?
            && !erased.allows(other, Some(seen))?
            && !erased.allows(seen, Some(other))?
        {
            return Err(Broken::new(format!("two people saw event {seq} in two ways: {seen}")));
        }
    }
    for (seq, seen) in by_all {
        match log.get(&seq) {
            Some(stored) if is_same(seen, stored)? => {}
            stored if erased.allows(seen, stored.map(String::as_str))? => {}
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
