//! The steps of the demo as commands that a client can offer.

use super::script::LATER;
use crate::actors::agent::AgentCommand;

/// Every step of the contract: its name, what is written behind it, and what it does.
const STEPS: [(&str, &str, &str); 24] = [
    ("say", "TEXT", "Streams the text word by word"),
    ("words", "N [MS]", "Streams N words, one each MS milliseconds"),
    ("think", "TEXT", "Reasons"),
    ("tool", "NAME INPUT", "Calls a tool that does not ask"),
    ("ask-tool", "NAME INPUT", "Calls a tool that waits for a confirmation"),
    ("client-tool", "NAME INPUT", "Calls a tool that a connected client offers"),
    ("question", "TEXT | a | b", "Asks a question and waits for the answer"),
    ("question-async", "TEXT | a | b", "Asks a question and goes on"),
    ("visual", "TITLE HTML", "Publishes a visual"),
    ("sleep", "MS", "Waits"),
    ("usage", "IN OUT", "Tells tokens that were used"),
    ("notice", "TEXT", "Says a notice"),
    ("compact", "BEFORE AFTER", "Announces that it compacted its context"),
    ("activity", "TEXT", "Tells what the chat is at"),
    ("background", "LABEL MS", "Works on in the background"),
    ("subagent", "SCRIPT", "Lets a worker chat do a script, and waits for it"),
    ("await-steering", "", "Waits for a steering message"),
    ("context", "", "Says the prompt that it was handed"),
    ("history", "", "Says the conversation as it has it"),
    ("cwd", "", "Says its working directories"),
    ("fail", "TEXT", "Ends the turn in an error"),
    ("fail-resumable", "TEXT", "Ends the turn in an error that can be resumed"),
    ("limit", "usage|overload [SECONDS]", "Ends the turn at a limit"),
    ("crash", "", "Goes away in the middle of the turn"),
];

/// The steps that are served.
pub(super) fn all() -> Vec<AgentCommand> {
    let served = STEPS.iter().filter(|(name, _, _)| !LATER.contains(name));
    let command = |(name, arguments, description): &(&str, &str, &str)| AgentCommand {
        name: (*name).to_owned(),
        description: (*description).to_owned(),
        arguments: (*arguments).to_owned(),
    };
    served.map(command).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_is_what_the_script_knows() {
        let script = include_str!("script.rs");
        let table = script.split("match name {").nth(1).unwrap().split("_ => return").next().unwrap();
        let known: Vec<&str> =
            table.lines().filter_map(|line| line.trim().strip_prefix('"')?.split('"').next()).collect();
        let offered: Vec<String> = all().into_iter().map(|command| command.name).collect();
        for name in &known {
            assert!(offered.iter().any(|offer| offer == name), "/{name} is a step and is not offered");
        }
        assert_eq!(offered.len(), known.len(), "{offered:?} {known:?}");
    }
}
