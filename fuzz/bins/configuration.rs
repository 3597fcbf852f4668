#![no_main]

#[path = "../targets/configuration.rs"]
mod target;

libfuzzer_sys::fuzz_target!(|text: &str| target::run(text));
