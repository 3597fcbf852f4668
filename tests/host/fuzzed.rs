//! What the fuzz targets hold, with the texts that they begin from and some that are bent: so they are built and run with every test run.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

#[path = "../../fuzz/targets/actions.rs"]
mod actions;
#[path = "../../fuzz/targets/configuration.rs"]
mod configuration;
#[path = "../../fuzz/targets/frames.rs"]
mod frames;
#[path = "../../fuzz/targets/lines.rs"]
mod lines;
#[path = "../../fuzz/targets/records.rs"]
mod records;
#[path = "../../fuzz/targets/uris.rs"]
mod uris;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!paths.is_empty(), "{target} begins from nothing");
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn each_seed(target: &str, run: impl Fn(&[u8])) {
    seeds(target).iter().for_each(|seed| run(seed));
}

/// A seed with some bytes that are others, and its end cut off.
fn bent(target: &str) -> impl Strategy<Value = Vec<u8>> {
    let bytes = proptest::collection::vec((any::<Index>(), any::<u8>()), 0..6);
    (proptest::sample::select(seeds(target)), bytes, proptest::option::weighted(0.3, any::<Index>())).prop_map(
        |(mut seed, bytes, end)| {
            for (at, byte) in bytes {
                let at = at.index(seed.len());
                seed[at] = byte;
            }
            if let Some(end) = end {
                seed.truncate(end.index(seed.len()));
            }
            seed
        },
    )
}

fn each_text(target: &str, run: impl Fn(&str)) {
    each_seed(target, |seed| run(&String::from_utf8_lossy(seed)));
}

#[test]
fn frames_of_the_seeds() {
    each_seed("frames", frames::run);
}

#[test]
fn actions_of_the_seeds() {
    each_text("actions", actions::run);
}

#[test]
fn records_of_the_seeds() {
    each_seed("records", records::run);
}

#[test]
fn uris_of_the_seeds() {
    each_text("uris", uris::run);
}

#[test]
fn configurations_of_the_seeds() {
    each_text("configuration", configuration::run);
}

#[test]
fn lines_of_the_seeds() {
    each_seed("lines", lines::run);
}

proptest! {
    #[test]
    fn bent_frames(data in bent("frames")) {
        frames::run(&data);
    }

    #[test]
    fn bent_records(data in bent("records")) {
        records::run(&data);
    }

    #[test]
    fn bent_lines(data in bent("lines")) {
        lines::run(&data);
    }

    #[test]
    fn bent_actions(data in bent("actions")) {
        actions::run(&String::from_utf8_lossy(&data));
    }
}
