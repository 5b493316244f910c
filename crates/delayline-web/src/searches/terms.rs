//! What a search is for, as it is written in a form or an object.

use delayline::admin::{Listed, Stats};
use delayline_admin::Wanted;
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::params::Params;

/// The states and texts of a search. Pages show them again to the visitor who has given them.
#[derive(Clone)]
pub(crate) struct Terms {
    /// `None` for all.
    state: Option<Listed>,
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) header: String,
    pub(crate) content: String,
}

impl Terms {
    pub(crate) const NAMES: [&str; 5] = ["state", "group", "kind", "header", "content"];

    pub(crate) fn in_params(params: &Params) -> Result<Self, Failure> {
        Self::new(|name| Ok(params.texts(name).next().unwrap_or_default().to_owned()))
    }

    pub(crate) fn in_object(members: &Map<String, Value>) -> Result<Self, Failure> {
        Self::new(|name| match members.get(name) {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(Failure::Wrong(format!("`{name}` is a string"))),
        })
    }

    fn new(text: impl Fn(&str) -> Result<String, Failure>) -> Result<Self, Failure> {
        let state = state(&text("state")?)?;
        let (group, kind) = (text("group")?, text("kind")?);
        let terms = Self { state, group, kind, header: text("header")?, content: text("content")? };
        terms.wanted()?;
        Ok(terms)
    }

    pub(crate) fn wanted(&self) -> Result<Wanted, Failure> {
        let [group, kind, header, content] =
            [&self.group, &self.kind, &self.header, &self.content].map(|text| Some(text.as_str()));
        Wanted::new(group, kind, header, content).map_err(Failure::Wrong)
    }

    pub(crate) fn states(&self) -> Vec<Listed> {
        self.state.map_or_else(|| Listed::ALL.to_vec(), |state| vec![state])
    }

    /// The name of its state, or the empty text for all.
    pub(crate) fn state_name(&self) -> &'static str {
        self.state.map_or("", |state| state.name())
    }

    /// Number of messages to examine.
    pub(crate) fn total(&self, stats: &Stats) -> u64 {
        let count = |state| match state {
            Listed::Scheduled => stats.scheduled,
            Listed::Ready => stats.ready,
            Listed::Leased => stats.leased,
            Listed::Dead => stats.dead,
            _ => 0,
        };
        self.states().into_iter().map(count).fold(0, u64::saturating_add)
    }
}

/// The state of a name; `None` for all.
pub(crate) fn state(name: &str) -> Result<Option<Listed>, Failure> {
    if name.is_empty() {
        return Ok(None);
    }
    let state = Listed::ALL.iter().copied().find(|state| state.name() == name);
    let wrong = || Failure::Wrong("`state` is scheduled, ready, leased or dead".to_owned());
    state.map(Some).ok_or_else(wrong)
}
