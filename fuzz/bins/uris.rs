#![no_main]

#[path = "../targets/uris.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|text: &str| target::run(text));
