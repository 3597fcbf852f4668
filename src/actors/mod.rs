//! Who decides and in what order things become visible.
//!
//! A command reaches the actor of its session or chat, which decides, folds, and hands one batch to its lane of the log
//! writer. The writer makes batches durable and hands them over, in the order of the line, to the routers, which own the
//! connections. Whatever rests on an event (an answer, a refusal, a snapshot, a prompt to an agent) is an entry of the
//! same lane and leaves only when every batch before it is durable.

pub mod agent;
pub mod asked;
pub mod attaching;
pub mod chat;
pub mod clients;
pub mod command;
pub mod connection;
pub mod core;
pub mod counts;
pub mod envelope;
pub mod host;
pub mod identity;
pub mod moves;
pub mod owed;
pub mod people;
pub mod probing;
pub mod received;
pub mod registry;
pub mod rejection;
pub mod resent;
pub mod resource_tokens;
pub mod root;
pub mod router;
pub mod session;
pub mod shared;
pub mod tools;
pub mod transcript;
pub mod visuals;
pub mod writer;
