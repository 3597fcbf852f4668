//! The pages in a real browser, over a real host: the binary, at a port of its own, with a data directory of its own.
//!
//! Each test drives Chromium over its own protocol and waits for what it looks for, never for a time. A page that complains in
//! its console fails its test. Without Chromium the tests are left out, unless `SCROLLBACK_TEST_BROWSER` is 1. With
//! `SCROLLBACK_SCREENSHOTS` set to a folder they also write pictures there.

// A test may fail by panicking, and so may what only tests call.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../command/mod.rs"]
mod command;

mod browser;
mod keys;
mod served;
mod window;

mod admin;
mod chat;
mod connection;
mod in_step;
mod shells;
mod talk;
mod wire;
mod writing;
