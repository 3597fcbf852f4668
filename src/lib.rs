//! Scrollback: an Agent Host Protocol host whose chats are logs.
//!
//! The folders tell the life of a command: a frame comes in at `protocol`, is checked by `access`, becomes a command to
//! an actor in `actors`, which decides, appends to `events`, folds with `projections`, and only then do subscribers and
//! agents hear of it. Imports go one way: `events` ← `projections`, `resources` ← `actors` ← `agents`, `access`, `admin`,
//! `pages` ← `protocol` ← `main`. `backup` is how a log leaves a
//! store and comes into a new one.

pub mod access;
pub mod actors;
pub mod admin;
pub mod agents;
pub mod attachments;
pub mod backup;
pub mod cli;
pub mod clock;
pub mod config;
pub mod events;
pub mod pages;
pub mod projections;
pub mod protocol;
pub mod resources;
pub mod telemetry;
pub mod tools;
pub mod visuals;
