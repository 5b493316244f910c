//! Who asks for what.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request};
use axum::http::Method;
use axum::http::request::Parts;
use delayline::after::Member;
use delayline::codec::Raw;
use delayline::message::MessageInfo;
use delayline::schedules::Schedules;
use delayline::{Bytes, Connection, Found, MessageId, Queue};

use crate::body::FORM;
use crate::directory::Known;
use crate::failure::Failure;
use crate::ids;
use crate::params::Params;
use crate::served::Served;
use crate::shared::Shared;
use crate::{Role, Visitor};

/// A request: who makes it, and what its query says.
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    /// The queues there were when the request came.
    pub(crate) known: Known,
    pub(crate) visitor: Visitor,
    pub(crate) params: Params,
}

impl FromRequestParts<Arc<Shared>> for Context {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Failure> {
        let context = Self::of(parts, shared).await?;
        if !context.may(Role::Viewer) {
            // The right to view would not be enough for a change.
            let needs = if parts.method.is_safe() { Role::Viewer } else { Role::Operator };
            return Err(Failure::Forbidden { needs });
        }
        context.with_named_in(parts).await
    }
}

/// A change of what only the visitor sees, which every viewer may make.
pub(crate) struct ForViewers(pub(crate) Context);

impl FromRequestParts<Arc<Shared>> for ForViewers {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Failure> {
        let context = Context::of(parts, shared).await?;
        context.require(Role::Viewer)?;
        Ok(Self(context))
    }
}

/// A request of a worker, who may be no viewer.
pub(crate) struct ForWorkers(pub(crate) Context);

impl FromRequestParts<Arc<Shared>> for ForWorkers {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Failure> {
        let context = Context::of(parts, shared).await?;
        context.require(Role::Worker)?;
        Ok(Self(context))
    }
}

/// A request that only visitors who see contents may make.
pub(crate) struct ForReaders(pub(crate) Context);

impl FromRequestParts<Arc<Shared>> for ForReaders {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Failure> {
        let context = Context::of(parts, shared).await?;
        context.require(shared.contents_for)?;
        Ok(Self(context.with_named_in(parts).await?))
    }
}

impl Context {
    /// Returns the request with the queues that exist for its visitor.
    async fn of(parts: &Parts, shared: &Arc<Shared>) -> Result<Self, Failure> {
        let visitor = parts.extensions.get::<Visitor>().cloned();
        let visitor = visitor.ok_or(Failure::Unauthenticated { asks: false })?;
        let params = Params::read(parts.uri.query().unwrap_or_default().as_bytes());
        let mut known = shared.directory.known().await;
        if visitor.queues.is_some() {
            known = known.only(|name| visitor.knows(name));
        }
        Ok(Self { shared: Arc::clone(shared), known, visitor, params })
    }

    /// Adds the queue that a path of the API names, if it exists and is not in the list yet. A send
    /// opens its queue in any case.
    async fn with_named_in(mut self, parts: &Parts) -> Result<Self, Failure> {
        let path = parts.uri.path();
        if parts.method == Method::POST && path.ends_with("/messages") {
            return Ok(self);
        }
        let name = path.strip_prefix("/queues/").and_then(|rest| rest.split('/').next());
        let name = name.map(|name| ids::decoded(name.as_bytes()).into_owned());
        let name = name.and_then(|name| String::from_utf8(name).ok());
        let is_new =
            |name: &String| !self.known.queues.contains_key(name) && self.visitor.knows(name);
        if let Some(name) = name.filter(is_new)
            && let Some(served) = self.shared.directory.find(&name).await?
        {
            Arc::make_mut(&mut self.known.queues).insert(name, served);
        }
        Ok(self)
    }

    /// Returns `true` if the visitor may do what needs a role.
    pub(crate) const fn may(&self, role: Role) -> bool {
        self.visitor.rights.include(role)
    }

    pub(crate) fn require(&self, needs: Role) -> Result<(), Failure> {
        if self.may(needs) { Ok(()) } else { Err(Failure::Forbidden { needs }) }
    }

    /// Whether the visitor may see payloads and header values.
    pub(crate) fn sees_contents(&self) -> bool {
        self.may(self.shared.contents_for)
    }

    /// The queue of this name.
    pub(crate) fn named(&self, name: &str) -> Result<(&str, &Queue<Bytes, Raw>), Failure> {
        self.served(name).map(|(name, served)| (name, &served.queue))
    }

    /// The queue of this name, with its latest readings.
    pub(crate) fn served(&self, name: &str) -> Result<(&str, &Served), Failure> {
        match self.known.queues.get_key_value(name) {
            Some((name, served)) => Ok((name, served)),
            None => Err(self.unknown_queue()),
        }
    }

    /// The queue of this name, and whether it is not in the list yet. If queues are looked for, a
    /// change may create it.
    pub(crate) async fn known_or_new(&self, name: &str) -> Result<(Arc<Served>, bool), Failure> {
        if let Some(served) = self.known.queues.get(name) {
            return Ok((Arc::clone(served), false));
        }
        if !self.visitor.knows(name) {
            return Err(self.unknown_queue());
        }
        match self.shared.directory.open(name).await {
            Some(opened) => Ok((opened?, true)),
            None => Err(self.unknown_queue()),
        }
    }

    pub(crate) fn unknown_queue(&self) -> Failure {
        Failure::Unknown("there is no such queue here".to_owned())
    }

    /// Whether an open page asks for itself again, and so may get what others got a moment ago.
    pub(crate) fn is_live(&self) -> bool {
        self.params.text("live").is_some()
    }

    /// The queue that the query names.
    pub(crate) fn queue(&self) -> Result<(&str, &Queue<Bytes, Raw>), Failure> {
        self.named(self.params.text("queue").unwrap_or_default())
    }

    /// The id in the query.
    pub(crate) fn id(&self) -> Result<MessageId, Failure> {
        let id = self.params.bytes("id").unwrap_or_default();
        Ok(MessageId::new(id.to_vec())?)
    }

    /// The messages as the visitor may see them in a list.
    pub(crate) fn redacted(&self, queue: &str, infos: Vec<MessageInfo>) -> Vec<MessageInfo> {
        let redacted = self.shared.redactor();
        infos.into_iter().map(|info| redacted(queue, info)).collect()
    }

    /// Whether the visitor sees what cannot be redacted: results, and payloads of schedules.
    pub(crate) fn sees_unredacted(&self) -> bool {
        self.sees_contents() && !self.shared.redacts()
    }

    /// The connection to the directory of the queues, if all queues exist for the visitor.
    pub(crate) fn storage(&self) -> Option<&Connection> {
        self.shared.storage.as_ref().filter(|_| self.visitor.queues.is_none())
    }

    /// The schedules, and the name of their queue.
    pub(crate) fn schedules(&self) -> Result<(&str, &Schedules), Failure> {
        let schedules = self.shared.schedules.as_ref().and_then(|schedules| {
            let name = schedules.queue().backend().queue_name()?.as_str();
            self.visitor.knows(name).then_some((name, schedules))
        });
        schedules.ok_or_else(|| Failure::Unknown("there are no schedules here".to_owned()))
    }

    /// Whether the queue of a member exists for the visitor, who knows the queue that names it.
    pub(crate) fn knows(&self, member: &Member) -> bool {
        member.queue().is_none_or(|queue| self.visitor.knows(queue.as_str()))
    }

    /// The message or end of an id, as the visitor may see it.
    pub(crate) async fn get(&self, name: &str, id: &MessageId) -> Result<Found<Bytes>, Failure> {
        let (name, queue) = self.named(name)?;
        let mut found = queue.get(id.clone()).await?;
        if let Found::Live(message) = &mut found {
            self.shared.redact(name, message);
        }
        Ok(found)
    }

    /// Where to continue a list, of which status.
    pub(crate) fn cursor(&self) -> Result<Option<delayline_json::Cursor>, Failure> {
        let Some(text) = self.params.text("after") else { return Ok(None) };
        text.parse()
            .map(Some)
            .map_err(|_| Failure::Wrong("`after` must be a cursor from an earlier list".to_owned()))
    }
}

/// The fields of a form, which may have these names, each once unless it ends with `*`.
pub(crate) async fn form(
    context: &Context,
    request: Request,
    names: &[&'static str],
) -> Result<Params, Failure> {
    let body = context.shared.bodies.read(request, FORM, MOST_FORM_BYTES).await?;
    Params::read(&body).only("the form", "field", names.iter().copied())
}

/// The id that stands percent-encoded in a field of a form.
pub(crate) fn encoded_id(text: &[u8]) -> Result<MessageId, Failure> {
    Ok(ids::id(text)?)
}

/// A page of dead letters, whose ids stand there twice and encoded twice.
const MOST_FORM_BYTES: usize = 256 * 1024;
