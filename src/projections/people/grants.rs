//! What a person may be allowed to do: operations, grants of them, and roles.
//!
//! A grant is written `SUBJECT:OPERATION`, or `SUBJECT:OPERATION@SESSION-URI` for one session; either side may be `*`, and
//! an operation one of the groups `read` and `write`. A session's groups cover its chats.
//! Source: the list of features, who may do what.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What an operation is done with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    Chat,
    Session,
    Log,
    Config,
    File,
    User,
    Host,
}

impl Subject {
    const ALL: &[Subject] =
        &[Subject::Chat, Subject::Session, Subject::Log, Subject::Config, Subject::File, Subject::User, Subject::Host];

    fn word(self) -> &'static str {
        match self {
            Subject::Chat => "chat",
            Subject::Session => "session",
            Subject::Log => "log",
            Subject::Config => "config",
            Subject::File => "file",
            Subject::User => "user",
            Subject::Host => "host",
        }
    }

    /// Whether it can be granted for one session alone.
    fn is_of_sessions(self) -> bool {
        matches!(self, Subject::Chat | Subject::Session | Subject::Log)
    }
}

/// Names the operations once: the variant, its subject, its word, and whether it only reads.
macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident = $subject:ident $word:literal $reads:literal,)*) => {
        /// Something that somebody may do.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Operation { $($(#[$doc])* $variant,)* }

        impl Operation {
            /// All of them.
            pub const ALL: &[Operation] = &[$(Operation::$variant,)*];

            /// What it is done with.
            pub fn subject(self) -> Subject {
                match self { $(Operation::$variant => Subject::$subject,)* }
            }

            /// Its word, without the subject.
            pub fn word(self) -> &'static str {
                match self { $(Operation::$variant => $word,)* }
            }

            /// Whether it is in the group `read`; the others are in `write`.
            pub fn reads(self) -> bool {
                match self { $(Operation::$variant => $reads,)* }
            }
        }
    };
}

operations! {
    /// Reading a chat: its state, its turns, its completions, its canvases.
    ChatTurns = Chat "turns" true,
    ChatCreate = Chat "create" false,
    ChatDispose = Chat "dispose" false,
    /// Messages, waiting ones too, and what asks the agent for a turn.
    ChatSend = Chat "send" false,
    ChatCancel = Chat "cancel" false,
    /// Decisions about tool calls, and answers to questions.
    ChatAnswer = Chat "answer" false,
    /// Offering tools, and results of them.
    ChatTool = Chat "tool" false,
    ChatDraft = Chat "draft" false,
    ChatFolders = Chat "folders" false,
    ChatMark = Chat "mark" false,
    ChatTruncate = Chat "truncate" false,
    ChatFork = Chat "fork" false,
    ChatMove = Chat "move" false,
    ChatRename = Chat "rename" false,
    ChatVisual = Chat "visual" false,
    /// Seeing a session in the list, and hearing that it came, changed or went.
    SessionList = Session "list" true,
    /// Reading a session's own channel.
    SessionState = Session "state" true,
    SessionCreate = Session "create" false,
    SessionDispose = Session "dispose" false,
    SessionRename = Session "rename" false,
    SessionConfigure = Session "configure" false,
    SessionFolders = Session "folders" false,
    SessionMark = Session "mark" false,
    /// Reading the event log with the host's own records.
    LogRead = Log "read" true,
    /// Erasing, restoring, and whatever else changes the log.
    LogAdmin = Log "admin" false,
    ConfigRead = Config "read" true,
    ConfigChange = Config "change" false,
    FileRead = File "read" true,
    FileWrite = File "write" false,
    UserRead = User "read" true,
    UserChange = User "change" false,
    HostRead = Host "read" true,
    HostAdmin = Host "admin" false,
}

impl Operation {
    /// What somebody is told who was not granted it.
    pub fn not_granted(self) -> String {
        format!("needs {self}, which was not granted")
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.subject().word(), self.word())
    }
}

/// The right side of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum What {
    All,
    Read,
    Write,
    Named(&'static str),
}

/// Operations that somebody may do, everywhere or in one session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Grant {
    /// `None` for every subject.
    subject: Option<Subject>,
    what: What,
    session: Option<String>,
}

/// A grant or a role that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadGrant(String);

impl Grant {
    const fn everywhere(subject: Option<Subject>, what: What) -> Self {
        Self { subject, what, session: None }
    }

    /// Whether it covers `operation`, in whatever session.
    pub fn covers(&self, operation: Operation) -> bool {
        let subject = operation.subject();
        let is_group = !matches!(self.what, What::Named(_));
        let of_subject = match self.subject {
            None => true,
            Some(Subject::Session) if is_group => matches!(subject, Subject::Session | Subject::Chat),
            Some(own) => own == subject,
        };
        // What is for one session covers nothing of the host's own.
        let in_place = self.session.is_none() || (subject.is_of_sessions() && operation != Operation::LogAdmin);
        let fits = match self.what {
            What::All => true,
            What::Read => operation.reads(),
            What::Write => !operation.reads(),
            What::Named(word) => word == operation.word(),
        };
        of_subject && in_place && fits
    }

    /// The session that it is for; `None` for all of them.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// The operations that it covers.
    pub fn operations(&self) -> impl Iterator<Item = Operation> {
        Operation::ALL.iter().copied().filter(|operation| self.covers(*operation))
    }
}

impl FromStr for Grant {
    type Err = BadGrant;

    fn from_str(text: &str) -> Result<Self, BadGrant> {
        let (pair, session) = match text.split_once('@') {
            Some((pair, session)) => (pair, Some(session)),
            None => (text, None),
        };
        let bad = |problem: String| BadGrant(format!("{text}: {problem}"));
        let (subject, what) = pair
            .split_once(':')
            .ok_or_else(|| bad("a grant is SUBJECT:OPERATION, or SUBJECT:OPERATION@SESSION-URI".into()))?;
        let subject = match subject {
            "*" => None,
            word => Some(subject_of(word).ok_or_else(|| bad(format!("there are the subjects *, {}", subjects())))?),
        };
        let what =
            what_of(subject, what).ok_or_else(|| bad(format!("there are *, read, write, {}", words(subject))))?;
        if let Some(session) = session {
            let other_kind = session.starts_with("ahp-") && !session.starts_with("ahp-session:/");
            if !session.contains(":/") || other_kind || session.chars().any(|c| c.is_whitespace() || c.is_control()) {
                return Err(bad("behind @ stands the URI of a session, such as ahp-session:/<id>".into()));
            }
            if subject == Some(Subject::Log) && what != What::Read {
                return Err(bad("of the log only read can be granted for one session".into()));
            }
            if subject.is_some_and(|subject| !subject.is_of_sessions()) {
                return Err(bad("only chat, session, log and * can be granted for one session".into()));
            }
        }
        Ok(Self { subject, what, session: session.map(str::to_owned) })
    }
}

fn subject_of(word: &str) -> Option<Subject> {
    Subject::ALL.iter().copied().find(|subject| subject.word() == word)
}

fn what_of(subject: Option<Subject>, word: &str) -> Option<What> {
    match word {
        "*" => Some(What::All),
        "read" => Some(What::Read),
        "write" => Some(What::Write),
        word => named(subject).find(|operation| operation.word() == word).map(|found| What::Named(found.word())),
    }
}

fn named(subject: Option<Subject>) -> impl Iterator<Item = Operation> {
    let all = Operation::ALL.iter().copied();
    all.filter(move |operation| subject.is_none_or(|subject| subject == operation.subject()))
}

fn subjects() -> String {
    Subject::ALL.iter().map(|subject| subject.word()).collect::<Vec<_>>().join(", ")
}

fn words(subject: Option<Subject>) -> String {
    let mut words: Vec<&str> =
        named(subject).map(Operation::word).filter(|word| !["read", "write"].contains(word)).collect();
    words.dedup();
    words.join(", ")
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            What::All => "*",
            What::Read => "read",
            What::Write => "write",
            What::Named(word) => word,
        };
        write!(f, "{}:{what}", self.subject.map_or("*", Subject::word))?;
        match &self.session {
            Some(session) => write!(f, "@{session}"),
            None => Ok(()),
        }
    }
}

impl Serialize for Grant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Grant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Reads what is known of a list in the log: a word that another version has granted is passed over, and so grants nothing.
pub fn known<'de, D: Deserializer<'de>, T: FromStr>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let words = Vec::<String>::deserialize(deserializer)?;
    Ok(words.iter().filter_map(|word| word.parse().ok()).collect())
}

/// Grants under one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything.
    Admin,
    /// Works in every session, and with files.
    Member,
    /// Reads every session.
    Guest,
}

impl Role {
    /// All of them.
    pub const ALL: &[Role] = &[Role::Admin, Role::Member, Role::Guest];

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Member => "member",
            Role::Guest => "guest",
        }
    }

    /// What it grants.
    pub fn grants(self) -> &'static [Grant] {
        const ADMIN: &[Grant] = &[Grant::everywhere(None, What::All)];
        const MEMBER: &[Grant] = &[
            Grant::everywhere(Some(Subject::Session), What::Read),
            Grant::everywhere(Some(Subject::Session), What::Write),
            Grant::everywhere(Some(Subject::File), What::Read),
            Grant::everywhere(Some(Subject::File), What::Write),
        ];
        const GUEST: &[Grant] = &[Grant::everywhere(Some(Subject::Session), What::Read)];
        match self {
            Role::Admin => ADMIN,
            Role::Member => MEMBER,
            Role::Guest => GUEST,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Role {
    type Err = BadGrant;

    fn from_str(text: &str) -> Result<Self, BadGrant> {
        let found = Role::ALL.iter().copied().find(|role| role.word() == text);
        found.ok_or_else(|| BadGrant(format!("{text}: there are the roles admin, member and guest")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(grant: &str) -> Vec<String> {
        grant.parse::<Grant>().unwrap().operations().map(|operation| operation.to_string()).collect()
    }

    #[test]
    fn a_grant_reads_back_as_it_was_written() {
        for text in [
            "*:*",
            "chat:send",
            "*:read",
            "session:write@ahp-session:/a@b",
            "log:admin",
            "*:turns@demo:/x",
            "log:read@ahp-session:/s",
        ] {
            assert_eq!(text.parse::<Grant>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_grant_says_what_there_is() {
        let problem = |text: &str| text.parse::<Grant>().unwrap_err().to_string();
        assert!(problem("chat").contains("SUBJECT:OPERATION"));
        assert!(problem("room:send").contains("chat, session, log, config, file, user, host"));
        assert!(problem("chat:reed").contains("turns, create"));
        assert!(problem("chat:admin").contains("turns"));
        assert!(problem("chat:send@nowhere").contains("ahp-session:/<id>"));
        assert!(problem("chat:send@ahp-chat:/c").contains("ahp-session:/<id>"));
        assert!(problem("file:read@ahp-session:/s").contains("only chat, session, log"));
        assert!(problem("").contains("SUBJECT:OPERATION"));
    }

    #[test]
    fn a_sessions_groups_cover_its_chats_and_a_named_operation_does_not() {
        assert_eq!(covered("session:read"), ["chat:turns", "session:list", "session:state"]);
        assert_eq!(covered("session:rename"), ["session:rename"]);
        assert_eq!(covered("*:rename"), ["chat:rename", "session:rename"]);
        assert_eq!(covered("log:read"), ["log:read"]);
        assert!(covered("session:write").contains(&"chat:send".to_owned()));
    }

    #[test]
    fn what_is_granted_for_one_session_covers_nothing_of_the_host() {
        let all = covered("*:*@ahp-session:/s");
        assert!(all.contains(&"chat:send".to_owned()) && all.contains(&"log:read".to_owned()));
        assert!(
            !all.iter().any(|one| one.starts_with("file:") || one.starts_with("user:") || one.starts_with("host:"))
        );
    }

    #[test]
    fn roles_grant_what_is_written_of_them() {
        let of = |role: Role| role.grants().iter().map(Grant::to_string).collect::<Vec<_>>();
        assert_eq!(of(Role::Admin), ["*:*"]);
        assert_eq!(of(Role::Member), ["session:read", "session:write", "file:read", "file:write"]);
        assert_eq!(of(Role::Guest), ["session:read"]);
    }
}
