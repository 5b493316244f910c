//! How the program fails: one sentence, a hint, an exit code.

use std::error::Error as _;
use std::fmt::Display;
use std::process::ExitCode;

use delayline::{Error, ErrorClass, ErrorKind};
use delayline_json::{harmless, hint};

/// Why the program ends, for people and for scripts.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    sentence: String,
    hint: Option<&'static str>,
}

impl Failure {
    /// Some input was bad: exit code 1.
    pub(crate) fn input(sentence: impl Into<String>) -> Self {
        Self { code: SOME_BAD, sentence: sentence.into(), hint: None }
    }

    /// The command line is wrong: exit code 2.
    pub(crate) fn usage(sentence: impl Into<String>) -> Self {
        Self { code: 2, sentence: sentence.into(), hint: None }
    }

    /// Something that should not happen: exit code 5.
    pub(crate) fn other(sentence: &str, cause: &dyn Display) -> Self {
        Self { code: 5, sentence: format!("{sentence}: {cause}"), hint: None }
    }

    pub(crate) const fn hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }

    /// The backend could not be opened: whatever became of the attempt, nothing was asked of the
    /// queue.
    pub(crate) fn opening(error: &Error) -> Self {
        let mut failure = Self::of(error);
        if error.class() == ErrorClass::Ambiguous {
            failure.code = REFUSED;
            failure.hint = Some("no operation was sent, so the same command may be run again");
        }
        failure
    }

    /// Whether the operation may have been executed.
    pub(crate) const fn is_unknown(&self) -> bool {
        self.code == UNKNOWN
    }

    /// Adds its subject.
    pub(crate) fn about(mut self, what: &str) -> Self {
        self.sentence = format!("{what}: {}", self.sentence);
        self
    }

    /// Replaces the exit code.
    pub(crate) const fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// Says it on stderr.
    pub(crate) fn report(self) -> ExitCode {
        eprintln!("delayline: {}", harmless(&self.sentence));
        if let Some(hint) = self.hint {
            eprintln!("  hint: {hint}");
        }
        ExitCode::from(self.code)
    }

    fn of(error: &Error) -> Self {
        let mut sentence = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // Some errors repeat their cause in their own text.
            if !sentence.contains(&text) {
                sentence = format!("{sentence}: {text}");
            }
            cause = error.source();
        }
        let code = match error.kind() {
            ErrorKind::Invalid(_)
            | ErrorKind::Encode
            | ErrorKind::Decode
            | ErrorKind::Unsupported(_) => 2,
            kind if kind.class() == ErrorClass::Ambiguous => UNKNOWN,
            _ => REFUSED,
        };
        Self { code, sentence, hint: hint(error.kind()) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::of(&error)
    }
}

/// Some lines were bad, the rest was sent.
pub(crate) const SOME_BAD: u8 = 1;
const REFUSED: u8 = 3;
const UNKNOWN: u8 = 4;
