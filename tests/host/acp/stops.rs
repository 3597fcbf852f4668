//! Turns that are stopped, and programs that stop by themselves.

use std::time::Duration;

use serde_json::json;

use super::{Rig, S, calls, ended, error, notices, said, turn};

#[tokio::test]
async fn a_stop_answers_the_open_question_and_the_agent_goes_on_with_the_next_message() {
    let rig = Rig::new(&[]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    client.say(&chat, "t", "/ask one rm").await;
    client.until_type("session/inputNeededSet").await;
    client.cancel(&chat, "t").await;
    client.until_ended("t").await;
    assert_eq!(client.subscribe(S).await["state"].get("inputNeeded"), None);
    assert_eq!(said(&turn(&mut client, &chat, "u", "next").await), "You said: next");
    assert_eq!(calls(&ended(&mut client, &chat, "t").await)[0]["status"], json!("cancelled"));
    rig.noted("cancel").await;
}

#[tokio::test]
async fn what_an_agent_still_says_of_a_stopped_turn_goes_nowhere_whatever_it_says_of_the_end() {
    let rig = Rig::new(&[]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    client.say(&chat, "t", "/late").await;
    client.until_type("chat/delta").await;
    client.cancel(&chat, "t").await;
    client.until_ended("t").await;
    rig.noted("late \"cancelled\"").await;
    assert_eq!(said(&turn(&mut client, &chat, "u", "next").await), "You said: next");
    let stopped = ended(&mut client, &chat, "t").await;
    assert_eq!((said(&stopped), stopped["state"].clone()), ("before ".to_owned(), json!("cancelled")));
    assert_eq!(calls(&stopped).len(), 0);
}

#[tokio::test]
async fn an_agent_that_does_not_stop_is_ended_and_the_next_message_starts_it_on_its_conversation() {
    let mut rig = Rig::lasting(&["resume"]);
    rig.limits.cancel_timeout = Duration::from_millis(200);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    turn(&mut client, &chat, "t1", "remember me").await;
    client.say(&chat, "t2", "/deaf-to-cancel").await;
    client.until_type("chat/delta").await;
    client.cancel(&chat, "t2").await;
    client.until_ended("t2").await;
    // At once: it waits until the old program is gone.
    let third = turn(&mut client, &chat, "t3", "/history").await;
    assert!(said(&third).contains("You said: remember me"), "{third}");
    assert!(rig.notes().iter().any(|note| note.starts_with("resume ")));
    assert_eq!(notices(&third), [] as [String; 0]);
}

#[tokio::test]
async fn a_program_that_dies_in_the_middle_ends_its_turn_with_its_last_words_and_nothing_else() {
    let rig = Rig::lasting(&["load"]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    let died = turn(&mut client, &chat, "t", "/say half\n/die 3").await;
    let (kind, words) = error(&died);
    assert_eq!((said(&died), kind.as_str()), ("half".to_owned(), "agent-gone"));
    assert!(words.contains("in the middle of a turn (exit status: 3)"), "{words}");
    assert!(words.ends_with("fake_acp: it was told to die"), "{words}");
    let next = turn(&mut client, &chat, "u", "/history").await;
    assert!(said(&next).contains("half"), "{next}");
}

#[tokio::test]
async fn bad_output_is_a_fault_of_the_program_and_its_turn_ends() {
    for (script, words) in [
        ("/raw {\"jsonrpc\":", "does not speak the Agent Client Protocol"),
        ("/raw {\"jsonrpc\":\"2.0\"}", "does not speak the Agent Client Protocol"),
        ("/cut", "does not speak the Agent Client Protocol"),
    ] {
        let rig = Rig::new(&[]);
        let host = rig.host();
        let (mut client, chat) = rig.open(&host).await;
        let (kind, told) = error(&turn(&mut client, &chat, "t", script).await);
        assert_eq!(kind, "agent-gone");
        assert!(told.contains(words), "{script}: {told}");
        assert_eq!(said(&turn(&mut client, &chat, "u", "again").await), "You said: again");
    }
}

#[tokio::test]
async fn a_few_plain_lines_are_let_pass_and_many_are_a_fault() {
    let rig = Rig::new(&[]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    let lines = |number: usize| "/raw a warning\n".repeat(number);
    let fine = format!("{}/say a\n{}/say b", lines(8), lines(8));
    assert_eq!(said(&turn(&mut client, &chat, "t", &fine).await), "ab");
    let (kind, told) = error(&turn(&mut client, &chat, "u", &lines(9)).await);
    assert_eq!(kind, "agent-gone");
    assert!(told.contains("\"a warning\""), "{told}");
}

#[tokio::test]
async fn a_message_that_is_too_long_is_a_fault_and_a_hundred_megabytes_of_stderr_are_none() {
    let mut rig = Rig::new(&[]);
    rig.limits.max_message = 64 << 10;
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    let loud = turn(&mut client, &chat, "t", "/stderr 104857600\n/say heard").await;
    assert_eq!(said(&loud), "heard");
    let long = format!("/say {}", "x".repeat(70 << 10));
    let (_, told) = error(&turn(&mut client, &chat, "u", &long).await);
    assert!(told.contains("longer than `max_agent_message`"), "{told}");
    assert!(crate::harness::met("agent_message") > 0);
}

#[tokio::test]
async fn a_program_that_ends_between_turns_is_started_again_by_the_next_message() {
    let rig = Rig::lasting(&["load"]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    let pid = said(&turn(&mut client, &chat, "t", "/child").await);
    // Its child lives in its group; the program itself is killed.
    let group = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let parent: i32 = group.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(parent).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
    rig.programs.ended().await;
    // What has exited may wait for somebody to ask how.
    let left = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    assert!(left.is_empty() || left.contains(") Z "), "{left}");
    // The chat has heard of it when its session says so: before, a message is handed to the program that is gone.
    let heard = async {
        while client.subscribe("ahp-session:/s").await["state"]["_meta"]["scrollback.process"][&chat] != "ended" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::harness::PATIENCE, heard).await.expect("the session says that it ended");
    let next = turn(&mut client, &chat, "u", "/history").await;
    assert!(said(&next).contains("/child"), "{next}");
}

#[tokio::test]
async fn a_stop_of_the_host_ends_a_program_that_does_not_leave_by_itself() {
    let rig = Rig::new(&["ignores-end", "close"]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    turn(&mut client, &chat, "t", "/child").await;
    assert_eq!(rig.programs.alive(), 1);
    host.stop();
    tokio::time::timeout(crate::harness::PATIENCE, rig.programs.ended()).await.unwrap();
    assert_eq!(rig.notes(), ["closed"]);
}

#[tokio::test]
async fn an_agent_whose_chat_goes_away_in_the_middle_of_a_turn_is_told_to_stop_and_to_close() {
    for (abilities, told) in [(&["close"][..], &["cancel", "closed"][..]), (&[], &["cancel"])] {
        let rig = Rig::new(abilities);
        let host = rig.host();
        let (mut client, chat) = rig.open(&host).await;
        client.say(&chat, "t", "/say x\n/wait").await;
        client.until_type("chat/delta").await;
        client.ask("disposeSession", json!({ "channel": S })).await.unwrap();
        rig.programs.ended().await;
        assert_eq!(rig.notes(), told);
    }
}

#[tokio::test]
async fn a_stop_right_before_a_rewind_reaches_the_agent_with_answers_to_its_questions() {
    let rig = Rig::new(&[]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    turn(&mut client, &chat, "t", "first").await;
    client.say(&chat, "u", "/ask one rm").await;
    client.until_type("session/inputNeededSet").await;
    client.cancel(&chat, "u").await;
    client.accepted(&chat, json!({ "type": "chat/truncated", "turnId": "t" })).await;
    rig.programs.ended().await;
    assert_eq!(rig.notes(), ["cancel", "answered \"cancelled\""]);
}

#[tokio::test]
async fn a_program_that_exits_since_it_was_stopped_is_started_again_for_the_message_that_waits() {
    let rig = Rig::lasting(&["resume"]);
    let host = rig.host();
    let (mut client, chat) = rig.open(&host).await;
    turn(&mut client, &chat, "t1", "remember me").await;
    client.say(&chat, "t2", &format!("/say x\n/die-on-cancel {}", rig.path("go").display())).await;
    client.until_type("chat/delta").await;
    client.cancel(&chat, "t2").await;
    client.until_ended("t2").await;
    let seq = client.say(&chat, "t3", "/history").await;
    client.echo(seq).await;
    std::fs::write(rig.path("go"), "").unwrap();
    client.until_ended("t3").await;
    let third = ended(&mut client, &chat, "t3").await;
    assert!(said(&third).contains("You said: remember me"), "{third}");
}
