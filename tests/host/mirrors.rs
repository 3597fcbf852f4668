//! Two official mirrors on two connections hold what the host holds, whatever clients do, drop and come back.

use std::sync::Arc;
use std::time::Duration;

use scrollback::actors::host::HostSettings;
use scrollback::events::memory::MemoryStore;

use crate::harness::walk::{Choice, Walk};
use crate::harness::{Options, Random, TestHost, Watched, from_environment, seed};

/// How many steps the longest walk has, where [`STEPS`] does not say.
const USUAL: usize = 1_000;
/// The environment variable that sets it.
const STEPS: &str = "SCROLLBACK_TEST_STEPS";

fn all_steps() -> usize {
    from_environment(STEPS).map_or(USUAL, |steps| steps as usize)
}

/// What no walk of the usual length can do without; then what a much longer one cannot.
const SERVED: [&[&str]; 2] = [
    &["createChat", "disposeChat", "disposeSession", "x-scrollback/publishVisual", "log restore", "log erase"],
    &["moveChat", "x-scrollback/clear", "x-scrollback/forkAt"],
];
const RECORDED: [&[&str]; 2] = [
    &[
        "chat/turnComplete",
        "chat/turnCancelled",
        "chat/pendingMessageSet",
        "chat/pendingMessageRemoved",
        "chat/truncated",
        "chat/draftChanged",
        "session/metaChanged",
    ],
    &["chat/error", "chat/toolCallConfirmed", "chat/inputCompleted", "host/steeringHanded", "chat/workingDirectorySet"],
];
/// How many times the usual length a much longer walk has.
const MUCH_LONGER: usize = 5;

/// A host that keeps attachments in `directory`.
fn keeping(directory: &tempfile::TempDir) -> Options {
    let data_directory = Some(directory.path().canonicalize().unwrap());
    Options { settings: HostSettings { data_directory, ..HostSettings::default() }, ..Options::default() }
}

async fn steps(walk: &mut Walk, random: &mut Random, count: usize) {
    for _ in 0..count {
        walk.step(Choice::random(random)).await;
    }
}

#[tokio::test]
async fn mirrors_hold_what_the_host_holds_after_random_actions_and_drops() {
    let mut random = Random::new(seed("random actions and drops"));
    let directory = tempfile::tempdir().unwrap();
    let mut walk = Walk::begin(TestHost::with(keeping(&directory))).await;
    steps(&mut walk, &mut random, all_steps()).await;
    walk.finish().await;
    assert!(walk.drops > 10 && walk.compared > 10, "{} drops, {} compared", walk.drops, walk.compared);
    // A walk in which everything is refused shows nothing.
    let (served, recorded) = (&walk.served, walk.recorded());
    println!("served: {served:?}\nrecorded: {recorded:?}");
    let lists = if all_steps() >= USUAL * MUCH_LONGER { 2 } else { 1 };
    for command in SERVED[..lists].iter().copied().flatten() {
        assert!(served.get(*command).is_some_and(|times| *times > 0), "{command} was never served: {served:?}");
    }
    for kind in RECORDED[..lists].iter().copied().flatten() {
        assert!(recorded.contains_key(*kind), "{kind} was never recorded: {recorded:?}");
    }
}

#[tokio::test]
async fn mirrors_hold_what_the_host_holds_when_it_restarts_in_between() {
    let mut random = Random::new(seed("restarts in between"));
    let directory = tempfile::tempdir().unwrap();
    let mut walk = Walk::begin(TestHost::on_disk(directory.path())).await;
    for _ in 0..3 {
        steps(&mut walk, &mut random, all_steps() / 20).await;
        walk = walk.restart(|| TestHost::on_disk(directory.path())).await;
    }
    steps(&mut walk, &mut random, all_steps() / 20).await;
    walk.finish().await;
}

#[tokio::test]
async fn mirrors_hold_what_the_host_holds_when_it_crashes_in_between() {
    let mut random = Random::new(seed("crashes in between"));
    let store = Arc::new(MemoryStore::new().unwrap());
    let mut handle = Arc::new(Watched::over(Arc::clone(&store)));
    let directory = tempfile::tempdir().unwrap();
    let mut walk = Walk::begin(TestHost::start(handle.clone(), keeping(&directory))).await;
    for _ in 0..6 {
        let count = 1 + random.below(all_steps() as u64 / 6) as usize;
        steps(&mut walk, &mut random, count).await;
        // Half of the crashes come while something is erased.
        if random.below(2) == 0 {
            handle.fail_after(random.below(20));
            walk.erase_at_the_end(random.below(1 << 32)).await;
        }
        let gone = std::mem::replace(&mut handle, Arc::new(Watched::over(Arc::clone(&store))));
        walk = walk.crash(|| gone.fail(true), || TestHost::start(handle.clone(), keeping(&directory))).await;
    }
    walk.finish().await;
}

#[tokio::test]
async fn mirrors_hold_what_the_host_holds_when_chats_fall_asleep_all_the_time() {
    let mut random = Random::new(seed("asleep all the time"));
    let settings = HostSettings { idle_timeout: Duration::from_millis(1), ..HostSettings::default() };
    let options = Options { settings, ..Options::default() };
    let mut walk = Walk::begin(TestHost::start(Arc::new(MemoryStore::new().unwrap()), options)).await;
    steps(&mut walk, &mut random, all_steps() / 2).await;
    walk.finish().await;
}
