//! People, grants and tokens through changes of every kind, disks that fail and hosts that are gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use scrollback::access::Identity;
use scrollback::actors::host::HostSettings;
use scrollback::actors::people::{PeopleChange, Told};
use scrollback::actors::writer::Durability;
use scrollback::events::memory::MemoryStore;
use scrollback::projections::people::{Grant, Role};
use scrollback::projections::verify::verify;

use crate::harness::{Options, Random, TestHost, Watched, seed};

const NAMES: [&str; 4] = ["ada", "bob", "eve", "no:name"];
const GRANTS: [&str; 4] = ["chat:send", "session:read@ahp-session:/s", "user:*", "log:read"];
const ROLES: [Role; 3] = [Role::Admin, Role::Member, Role::Guest];

/// Who there is, as the answers to the changes say, and what the tokens that were shown are good for.
#[derive(Default)]
struct Model {
    people: BTreeMap<String, Told>,
    tokens: BTreeMap<String, (String, String)>,
}

impl Model {
    /// Asks for one change; what is answered, or that nothing is, is what holds from now on.
    async fn change(&mut self, host: &TestHost, random: &mut Random) {
        let name = NAMES[random.below(4) as usize].to_owned();
        let roles: Vec<Role> = ROLES.into_iter().filter(|_| random.below(3) == 0).collect();
        let grants: Vec<Grant> =
            GRANTS.iter().filter(|_| random.below(3) == 0).map(|grant| grant.parse().unwrap()).collect();
        let expires = (random.below(2) == 0).then_some(Duration::from_secs(3_600));
        let change = match random.below(6) {
            0 | 1 => PeopleChange::Add { name: name.clone(), roles, grants, expires },
            2 => PeopleChange::Grant { name: name.clone(), roles, grants },
            3 => PeopleChange::Revoke { name: name.clone(), roles, grants },
            4 => PeopleChange::Token { name: name.clone(), replace: random.below(2) == 0, expires },
            _ => PeopleChange::Remove { name: name.clone() },
        };
        let is_removal = matches!(change, PeopleChange::Remove { .. });
        let Ok(told) = host.host.change_people(&Identity::root("test"), change).await else { return };
        if is_removal {
            self.people.remove(&name);
        } else {
            self.people.insert(name.clone(), Told { token: None, ..told.clone() });
        }
        if let Some(token) = told.token {
            let id = told.tokens.last().map(|token| token.id.clone()).unwrap();
            self.tokens.insert(token, (name, id));
        }
    }

    /// The host has the people of the answers, and lets in who has a token of them.
    async fn holds(&self, host: &TestHost) {
        let all: Vec<Told> = self.people.values().cloned().collect();
        assert_eq!(host.host.people(), all);
        for (token, (name, id)) in &self.tokens {
            let is_good = self.people.get(name).is_some_and(|told| told.tokens.iter().any(|token| token.id == *id));
            assert_eq!(lets_in(host, token).await, is_good, "a token of {name}");
        }
        verify(host.host.store().as_ref(), &mut |_| {}).unwrap();
    }
}

async fn lets_in(host: &TestHost, token: &str) -> bool {
    let url = format!("http://{}/api/users?tkn={token}", host.address);
    let ask = move || {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        agent.get(&url).call().unwrap().status().as_u16()
    };
    tokio::task::spawn_blocking(ask).await.unwrap() != 401
}

async fn survives(durability: Durability) {
    let mut random = Random::new(seed("people that are kept"));
    let store = Arc::new(MemoryStore::new().unwrap());
    let mut model = Model::default();
    let options = || Options { settings: HostSettings { durability, ..HostSettings::default() }, ..Options::default() };
    for round in 0..6 {
        let disk = Arc::new(Watched::over(Arc::clone(&store)));
        let host = TestHost::start(disk.clone(), options());
        model.holds(&host).await;
        for _ in 0..10 {
            model.change(&host, &mut random).await;
        }
        // From some write on the disk takes nothing for a while. With `interval` an answer waits for it.
        if durability == Durability::Commit {
            disk.fail_after(random.below(4));
            for _ in 0..5 {
                model.change(&host, &mut random).await;
            }
            disk.fail(false);
        }
        model.holds(&host).await;
        for _ in 0..5 {
            model.change(&host, &mut random).await;
        }
        model.holds(&host).await;
        if round % 2 == 0 {
            disk.fail(true);
            // What nobody was answered is not there when the host is back.
            let unanswered = Arc::clone(&host.host);
            let add = PeopleChange::Add {
                name: "mallory".into(),
                roles: vec![Role::Admin],
                grants: Vec::new(),
                expires: None,
            };
            tokio::spawn(async move { unanswered.change_people(&Identity::root("test"), add).await });
            host.abandon();
        } else {
            host.stop();
        }
    }
    assert!(!model.tokens.is_empty());
}

#[tokio::test]
async fn what_was_answered_of_people_holds_through_failing_disks_and_restarts() {
    survives(Durability::Commit).await;
}

#[tokio::test]
async fn it_holds_with_durability_interval_too() {
    survives(Durability::Interval(Duration::from_millis(5))).await;
}
