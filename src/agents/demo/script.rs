//! What a message asks the demo to do: its lines as steps, in order.
//!
//! Pure. The steps and their words are the outer contract of the demo agent: a change here is a breaking change.
//!
//! Always: every message gives at least one step, and no line is passed over in silence. A step that is unknown, or whose
//! arguments are wrong, becomes a [`Step::Say`] that says so.

use std::time::Duration;

use crate::actors::agent::LimitKind;

/// Steps of the contract that this version does not do yet: each is answered as an unknown step.
pub const LATER: &[&str] = &[];

/// What separates the steps of a worker.
const BETWEEN_STEPS: &str = " ;; ";

/// One step of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Stream a text, word by word.
    Say(String),
    /// Stream `w1 w2 …`, with a pause between two words.
    Words {
        count: u32,
        pause: Duration,
    },
    Think(String),
    Tool {
        name: String,
        input: String,
        /// Whether it waits for a confirmation.
        asks: bool,
    },
    /// Calls a tool that a client offers.
    ClientTool {
        name: String,
        input: String,
    },
    Question {
        text: String,
        /// None of them makes it a text question.
        options: Vec<String>,
        /// Whether the turn waits for the answer.
        waits: bool,
    },
    /// Publish a page.
    Visual {
        title: String,
        html: String,
    },
    Sleep(Duration),
    AwaitSteering,
    Usage {
        input: i64,
        output: i64,
    },
    Notice(String),
    /// Announce that the context was compacted; without numbers, the agent does not say.
    Compact {
        before: Option<u64>,
        after: Option<u64>,
    },
    /// Work that goes on past the turn.
    Background {
        label: String,
        pause: Duration,
    },
    /// Spawn a worker with this message, and wait for it.
    Subagent(String),
    /// What the chat is doing; `None` clears it.
    Activity(Option<String>),
    Fail {
        text: String,
        resumable: bool,
    },
    /// End at a limit, which lifts after this time where that is said.
    Limit {
        kind: LimitKind,
        lifts_after: Option<Duration>,
    },
    Crash,
    Context,
    History,
    Cwd,
}

/// The steps of a message, one for each line; a blank message is one plain line.
pub fn parse(message: &str) -> Vec<Step> {
    if message.trim().is_empty() {
        return vec![plain("")];
    }
    message.lines().map(step).collect()
}

/// The steps of a worker's message, which is one line: they are separated by ` ;; `, and a worker in it takes the rest.
pub fn parse_line(line: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = Some(line);
    while let Some(line) = rest {
        let spawns = line.strip_prefix("/subagent").is_some_and(|behind| behind.starts_with(char::is_whitespace));
        let (own, others) = match line.split_once(BETWEEN_STEPS) {
            Some((own, others)) if !spawns => (own, Some(others)),
            _ => (line, None),
        };
        steps.extend(parse(own));
        rest = others;
    }
    steps
}

/// The pieces that a text is streamed in: each word followed by its space, the last one too.
///
/// White space of the text is kept as it stands, in front of the first word also; a text that has nothing else is one piece.
pub fn words(text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut piece = String::new();
    let (mut has_word, mut spaced) = (false, false);
    for c in text.chars() {
        let space = c.is_whitespace();
        if has_word && spaced && !space {
            pieces.push(std::mem::take(&mut piece));
        }
        has_word |= !space;
        spaced = space;
        piece.push(c);
    }
    if has_word && !spaced {
        piece.push(' ');
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

fn step(line: &str) -> Step {
    let Some(command) = line.strip_prefix('/') else { return plain(line) };
    let (name, rest) = first_word(command);
    match name {
        "say" => text(rest).map(Step::Say),
        "words" => counted_words(rest),
        "think" => text(rest).map(Step::Think),
        "tool" => tool(rest, false),
        "ask-tool" => tool(rest, true),
        "client-tool" => client_tool(rest),
        "question" => question(rest, true),
        "question-async" => question(rest, false),
        "visual" => visual(rest),
        "sleep" => millis(rest).map(Step::Sleep),
        "await-steering" => Ok(Step::AwaitSteering),
        "usage" => usage(rest),
        "notice" => text(rest).map(Step::Notice),
        "compact" => compact(rest),
        "background" => background(rest),
        "subagent" => text(rest).map(Step::Subagent),
        "activity" => Ok(Step::Activity(text(rest).ok())),
        "fail" => text(rest).map(|text| Step::Fail { text, resumable: false }),
        "fail-resumable" => text(rest).map(|text| Step::Fail { text, resumable: true }),
        "limit" => limit(rest),
        "crash" => Ok(Step::Crash),
        "context" => Ok(Step::Context),
        "history" => Ok(Step::History),
        "cwd" => Ok(Step::Cwd),
        _ => return Step::Say(format!("unknown step: {line}")),
    }
    .unwrap_or_else(|needs| Step::Say(format!("bad arguments: /{name} needs {needs}")))
}

/// A step, or what its arguments lack.
type Parsed<T> = Result<T, &'static str>;

fn plain(line: &str) -> Step {
    Step::Say(format!("You said: {line}"))
}

/// The first word and what follows it, without the white space between them.
fn first_word(text: &str) -> (&str, &str) {
    match text.split_once(char::is_whitespace) {
        Some((word, rest)) => (word, rest.trim_start()),
        None => (text, ""),
    }
}

fn text(rest: &str) -> Parsed<String> {
    if rest.is_empty() { Err("a text") } else { Ok(rest.to_owned()) }
}

fn millis(word: &str) -> Parsed<Duration> {
    word.trim().parse().map(Duration::from_millis).map_err(|_| "a number of milliseconds")
}

fn counted_words(rest: &str) -> Parsed<Step> {
    let (count, pause) = first_word(rest);
    let count = count.parse().map_err(|_| "a number")?;
    let pause = if pause.is_empty() { Duration::ZERO } else { millis(pause)? };
    Ok(Step::Words { count, pause })
}

fn tool(rest: &str, asks: bool) -> Parsed<Step> {
    let (name, input) = first_word(rest);
    if name.is_empty() {
        return Err("a name");
    }
    Ok(Step::Tool { name: name.to_owned(), input: input.to_owned(), asks })
}

fn client_tool(rest: &str) -> Parsed<Step> {
    let (name, input) = first_word(rest);
    if name.is_empty() {
        return Err("a name");
    }
    Ok(Step::ClientTool { name: name.to_owned(), input: input.to_owned() })
}

fn visual(rest: &str) -> Parsed<Step> {
    let (title, html) = first_word(rest);
    if html.is_empty() {
        return Err("a title of one word and a page");
    }
    Ok(Step::Visual { title: title.to_owned(), html: html.to_owned() })
}

fn question(rest: &str, waits: bool) -> Parsed<Step> {
    let mut parts = rest.split('|').map(str::trim);
    let text = text(parts.next().unwrap_or_default())?;
    let mut options: Vec<String> = Vec::new();
    for option in parts.filter(|option| !option.is_empty()) {
        if !options.iter().any(|known| known == option) {
            options.push(option.to_owned());
        }
    }
    Ok(Step::Question { text, options, waits })
}

fn limit(rest: &str) -> Parsed<Step> {
    let (kind, seconds) = first_word(rest);
    let kind = match kind {
        "usage" => LimitKind::Usage,
        "overload" => LimitKind::Overload,
        _ => return Err("usage or overload"),
    };
    let seconds = seconds.trim();
    let lifts_after = match seconds {
        "" => None,
        seconds => Some(Duration::from_secs(seconds.parse::<u32>().map_err(|_| "a number of seconds")?.into())),
    };
    Ok(Step::Limit { kind, lifts_after })
}

fn usage(rest: &str) -> Parsed<Step> {
    let (input, output) = first_word(rest);
    let tokens = |word: &str| word.trim().parse::<u32>().map(i64::from).map_err(|_| "two numbers");
    Ok(Step::Usage { input: tokens(input)?, output: tokens(output)? })
}

fn compact(rest: &str) -> Parsed<Step> {
    if rest.is_empty() {
        return Ok(Step::Compact { before: None, after: None });
    }
    let (before, after) = first_word(rest);
    let tokens = |word: &str| word.trim().parse::<u32>().map(|n| Some(u64::from(n))).map_err(|_| "two numbers");
    Ok(Step::Compact { before: tokens(before)?, after: tokens(after)? })
}

fn background(rest: &str) -> Parsed<Step> {
    let needs = "a label and a number of milliseconds";
    let (label, pause) = rest.trim_end().rsplit_once(char::is_whitespace).ok_or(needs)?;
    let pause = millis(pause).map_err(|_| needs)?;
    Ok(Step::Background { label: label.trim_end().to_owned(), pause })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Step {
        let mut steps = parse(line);
        assert_eq!(steps.len(), 1, "{steps:?}");
        steps.remove(0)
    }

    fn say(text: &str) -> Step {
        Step::Say(text.to_owned())
    }

    fn tool(name: &str, input: &str, asks: bool) -> Step {
        Step::Tool { name: name.to_owned(), input: input.to_owned(), asks }
    }

    fn question(text: &str, options: &[&str], waits: bool) -> Step {
        Step::Question { text: text.to_owned(), options: options.iter().map(|o| (*o).to_owned()).collect(), waits }
    }

    fn words_step(count: u32, pause: u64) -> Step {
        Step::Words { count, pause: Duration::from_millis(pause) }
    }

    #[test]
    fn every_row_of_the_contract_is_read() {
        assert_eq!(one("hello world"), say("You said: hello world"));
        assert_eq!(one("/say hello world"), say("hello world"));
        assert_eq!(one("/words 3"), words_step(3, 0));
        assert_eq!(one("/words 3 20"), words_step(3, 20));
        assert_eq!(one("/think of it"), Step::Think("of it".to_owned()));
        assert_eq!(one("/tool ls -l /tmp"), tool("ls", "-l /tmp", false));
        assert_eq!(one("/ask-tool rm -r x"), tool("rm", "-r x", true));
        let client_tool = Step::ClientTool { name: "tests".to_owned(), input: "--all".to_owned() };
        assert_eq!(one("/client-tool tests --all"), client_tool);
        assert_eq!(one("/question Which? | a | b c"), question("Which?", &["a", "b c"], true));
        assert_eq!(one("/question Why?"), question("Why?", &[], true));
        assert_eq!(one("/question-async Which? | a"), question("Which?", &["a"], false));
        let (title, html) = ("Sales".to_owned(), "<p>up and up".to_owned());
        assert_eq!(one("/visual Sales <p>up and up"), Step::Visual { title, html });
        assert_eq!(one("/sleep 250"), Step::Sleep(Duration::from_millis(250)));
        assert_eq!(one("/await-steering"), Step::AwaitSteering);
        assert_eq!(one("/usage 10 20"), Step::Usage { input: 10, output: 20 });
        assert_eq!(one("/notice look here"), Step::Notice("look here".to_owned()));
        assert_eq!(one("/activity reading"), Step::Activity(Some("reading".to_owned())));
        assert_eq!(one("/fail it broke"), Step::Fail { text: "it broke".to_owned(), resumable: false });
        assert_eq!(one("/fail-resumable again"), Step::Fail { text: "again".to_owned(), resumable: true });
        let limit = |kind, seconds: Option<u64>| Step::Limit { kind, lifts_after: seconds.map(Duration::from_secs) };
        assert_eq!(one("/limit usage"), limit(LimitKind::Usage, None));
        assert_eq!(one("/limit overload 90"), limit(LimitKind::Overload, Some(90)));
        assert_eq!(one("/crash"), Step::Crash);
        assert_eq!(one("/context"), Step::Context);
        assert_eq!(one("/history"), Step::History);
        assert_eq!(one("/cwd"), Step::Cwd);
    }

    #[test]
    fn steps_of_a_later_version_are_unknown() {
        for name in LATER {
            let line = format!("/{name} a b");
            assert_eq!(one(&line), say(&format!("unknown step: {line}")));
        }
        assert_eq!(one("/etc/passwd is a file"), say("unknown step: /etc/passwd is a file"));
        assert_eq!(one("/"), say("unknown step: /"));
        assert_eq!(one("/ say x"), say("unknown step: / say x"));
        assert_eq!(one("/Say x"), say("unknown step: /Say x"));
    }

    #[test]
    fn bad_arguments_say_what_is_needed() {
        for (line, needs) in [
            ("/say", "/say needs a text"),
            ("/say  ", "/say needs a text"),
            ("/words", "/words needs a number"),
            ("/words many", "/words needs a number"),
            ("/words -1", "/words needs a number"),
            ("/words 3 soon", "/words needs a number of milliseconds"),
            ("/think", "/think needs a text"),
            ("/tool", "/tool needs a name"),
            ("/ask-tool ", "/ask-tool needs a name"),
            ("/client-tool", "/client-tool needs a name"),
            ("/question", "/question needs a text"),
            ("/question | a | b", "/question needs a text"),
            ("/question-async", "/question-async needs a text"),
            ("/sleep", "/sleep needs a number of milliseconds"),
            ("/sleep 1s", "/sleep needs a number of milliseconds"),
            ("/usage 1", "/usage needs two numbers"),
            ("/usage 1 x", "/usage needs two numbers"),
            ("/usage 1 2 3", "/usage needs two numbers"),
            ("/notice", "/notice needs a text"),
            ("/limit", "/limit needs usage or overload"),
            ("/limit plan 1", "/limit needs usage or overload"),
            ("/limit usage soon", "/limit needs a number of seconds"),
            ("/limit usage -1", "/limit needs a number of seconds"),
            ("/fail", "/fail needs a text"),
            ("/fail-resumable", "/fail-resumable needs a text"),
        ] {
            assert_eq!(one(line), say(&format!("bad arguments: {needs}")), "{line}");
        }
    }

    #[test]
    fn a_tool_may_have_no_input_and_an_activity_no_text() {
        assert_eq!(one("/tool ls"), tool("ls", "", false));
        assert_eq!(one("/activity"), Step::Activity(None));
    }

    #[test]
    fn options_need_no_spaces_and_empty_or_repeated_ones_are_left_out() {
        assert_eq!(one("/question a|b"), question("a", &["b"], true));
        assert_eq!(one("/question a | | b |b|"), question("a", &["b"], true));
        assert_eq!(one("/question a |"), question("a", &[], true));
    }

    #[test]
    fn lines_are_steps_in_order_and_a_line_break_of_windows_is_one() {
        assert_eq!(parse("one\r\n/say two\r\nthree\n"), [say("You said: one"), say("two"), say("You said: three")]);
        assert_eq!(parse("one\n\ntwo"), [say("You said: one"), say("You said: "), say("You said: two")]);
    }

    #[test]
    fn a_blank_message_is_one_plain_line() {
        for message in ["", " ", "\n", "\r\n \t\n\n"] {
            assert_eq!(parse(message), [say("You said: ")], "{message:?}");
        }
    }

    #[test]
    fn a_line_with_a_space_before_the_slash_is_plain() {
        assert_eq!(one(" /say x"), say("You said:  /say x"));
    }

    #[test]
    fn white_space_before_an_argument_is_dropped_and_inside_it_is_kept() {
        assert_eq!(one("/say   a  b"), say("a  b"));
        assert_eq!(one("/say\ta"), say("a"));
        assert_eq!(one("/tool  ls   -l  x"), tool("ls", "-l  x", false));
        assert_eq!(one("/words  3  20 "), words_step(3, 20));
    }

    #[test]
    fn text_in_any_script_is_kept() {
        assert_eq!(one("/tool поиск 東京 🗼"), tool("поиск", "東京 🗼", false));
        assert_eq!(one("/крик"), say("unknown step: /крик"));
        assert_eq!(one("/question ¿Cuál? | äö | 日本"), question("¿Cuál?", &["äö", "日本"], true));
    }

    #[test]
    fn each_word_is_followed_by_its_space() {
        assert_eq!(words("You said: hello"), ["You ", "said: ", "hello "]);
        assert_eq!(words("You said: "), ["You ", "said: "]);
        assert_eq!(words("a  b\tc "), ["a  ", "b\t", "c "]);
        assert_eq!(words("  a b"), ["  a ", "b "]);
        assert_eq!(words("東京 🗼"), ["東京 ", "🗼 "]);
        assert_eq!(words("  "), ["  "]);
        assert!(words("").is_empty());
    }
}
