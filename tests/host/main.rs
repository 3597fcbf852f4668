//! What the host does, stated through a real socket, with the real store and the real agent. One binary for all of it:
//! each file is a subject, and `harness` is how they reach a host.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod acp;
mod actors;
mod approvals;
mod attached_chats;
mod attachments;
mod audit;
mod authenticate;
mod background;
mod batches;
mod bounds;
mod cases;
mod chats;
mod claude;
mod client_tools;
#[path = "../command/mod.rs"]
mod command;
mod compaction;
mod completions;
mod configuration;
mod conversation;
#[path = "../support/crash/mod.rs"]
mod crash;
mod deltas;
mod directories;
mod disk;
mod drafts;
mod durability;
mod endings;
mod erasure;
mod fetched;
mod forks;
mod frames;
mod harness;
mod killed;
mod limits;
mod looking;
mod mirrors;
mod moves;
mod official;
mod oidc;
mod openai;
mod over_http;
mod people;
mod permissions;
mod processes;
mod programs;
mod properties;
mod queue;
mod real_agents;
mod refusals;
mod refused;
mod refused_commands;
mod replay;
mod resources;
mod rewinds;
mod roles;
mod samples;
mod secured;
mod send_now;
mod sessions;
mod slow;
mod steering;
mod summaries;
mod taken_up;
mod tools;
mod turns;
mod verify;
mod visuals;
mod vscode;
mod watches;
mod windows;
mod workers;
