//! Which tools no longer ask, by session.
//!
//! A rule that somebody granted holds at once in every process of the session that is up, and through the session's memory
//! ([`AgentEvent::Remember`]) in each one that starts later. It names one tool and nothing wider.
//!
//! [`AgentEvent::Remember`]: crate::actors::agent::AgentEvent::Remember

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::Value;

use crate::events::Channel;

const KEY: &str = "allow:";

/// The rules of all sessions that have a process now.
#[derive(Default)]
pub struct RuleBook {
    sessions: Mutex<HashMap<Channel, Weak<SessionRules>>>,
}

/// The rules of one session. Its processes share it across threads.
#[derive(Default)]
pub struct SessionRules {
    allowed: Mutex<HashSet<String>>,
}

impl RuleBook {
    /// The rules of `session`: those in its memory, and those granted since one of its processes is up.
    pub fn of_session(&self, session: &Channel, memory: &BTreeMap<String, Value>) -> Arc<SessionRules> {
        let mut sessions = locked(&self.sessions);
        sessions.retain(|_, rules| rules.strong_count() > 0);
        let rules = sessions.get(session).and_then(Weak::upgrade).unwrap_or_default();
        sessions.insert(session.clone(), Arc::downgrade(&rules));
        let kept = memory.iter().filter(|(_, value)| **value == Value::Bool(true));
        locked(&rules.allowed).extend(kept.filter_map(|(key, _)| key.strip_prefix(KEY)).map(str::to_owned));
        rules
    }
}

impl SessionRules {
    /// The key that the session's memory holds the rule for `tool` under; its value is `true`.
    pub fn key(tool: &str) -> String {
        format!("{KEY}{tool}")
    }

    /// Whether `tool` runs without asking.
    pub fn allows(&self, tool: &str) -> bool {
        locked(&self.allowed).contains(tool)
    }

    /// Lets `tool` run without asking from now on.
    pub fn allow(&self, tool: &str) {
        locked(&self.allowed).insert(tool.to_owned());
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(name: &str) -> Channel {
        Channel::from(format!("ahp-session:/{name}"))
    }

    #[test]
    fn a_rule_holds_in_every_process_of_its_session_and_in_no_other() {
        let book = RuleBook::default();
        let first = book.of_session(&session("a"), &BTreeMap::new());
        let second = book.of_session(&session("a"), &BTreeMap::new());
        let other = book.of_session(&session("b"), &BTreeMap::new());
        first.allow("rm");
        assert!(second.allows("rm") && !second.allows("ls") && !other.allows("rm"));
    }

    #[test]
    fn memory_brings_a_rule_back_when_no_process_is_left() {
        let book = RuleBook::default();
        book.of_session(&session("a"), &BTreeMap::new()).allow("rm");
        assert!(!book.of_session(&session("a"), &BTreeMap::new()).allows("rm"));
        let memory = BTreeMap::from([
            (SessionRules::key("rm"), Value::Bool(true)),
            (SessionRules::key("ls"), Value::Bool(false)),
            ("position:x".to_owned(), Value::Bool(true)),
        ]);
        let rules = book.of_session(&session("a"), &memory);
        assert!(rules.allows("rm") && !rules.allows("ls") && !rules.allows("x"));
    }
}
