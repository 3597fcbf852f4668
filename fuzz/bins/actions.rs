#![no_main]

#[path = "../targets/actions.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|text: &str| target::run(text));
