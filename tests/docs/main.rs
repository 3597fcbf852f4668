//! Keeps the documents true: their commands are run, their frames are sent, their tables are compared with the code.
//!
//! In README.md and docs/:
//! - a block marked `sh` is run, in the order of its document, in a folder of its own. `scrollback serve` starts the host
//!   that the blocks behind it talk to. A block that cannot be run is marked `sh no-run: REASON`, or `console` where it is
//!   for another machine or another user;
//! - a `text` block is what the `sh` block before it prints, `«…»` standing for what varies;
//! - `json client` blocks are sent through a real socket, and what comes back must be the next `json host` block;
//! - `toml` is a configuration that the host takes;
//! - the `nginx` block is what `tests/host/secured/proxied.rs` goes through.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

#[path = "../command/mod.rs"]
mod command;

mod commands;
mod contrib;
mod damage;
mod example;
mod limits;
mod links;
mod named;
mod pages;
mod proofs;
mod tables;
mod transcript;
