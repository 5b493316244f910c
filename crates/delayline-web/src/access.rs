//! Authentication and permissions of visitors.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::{Choice, ConstantTimeEq as _};

use crate::Rights;
use crate::brake::Brake;

/// The visitor who makes a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Visitor {
    /// The name for the audit log.
    pub name: String,
    /// The visitor's permissions.
    pub rights: Rights,
    /// The queues that this visitor may see, by name, or by prefix and `*`; `None` for all.
    pub queues: Option<Arc<BTreeSet<String>>>,
}

impl Visitor {
    /// Creates a visitor who has these rights on all queues.
    #[must_use]
    pub fn new(name: impl Into<String>, rights: impl Into<Rights>) -> Self {
        Self { name: name.into(), rights: rights.into(), queues: None }
    }

    /// Limits the visitor to these queues: all others do not exist for this visitor. A name with
    /// `*` at its end stands for all queues that begin with it. The queue of
    /// [schedules](crate::Dashboard::schedules) brings all schedules with it, whatever their
    /// targets.
    #[must_use]
    pub fn only_queues(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { queues: Some(Arc::new(names.into_iter().map(Into::into).collect())), ..self }
    }

    /// Returns `true` if the queue of this name exists for the visitor.
    #[must_use]
    pub fn knows(&self, queue: &str) -> bool {
        let begins = |it: &String| it.strip_suffix('*').is_some_and(|it| queue.starts_with(it));
        let is_one = |queues: &BTreeSet<_>| queues.contains(queue) || queues.iter().any(begins);
        self.queues.as_deref().is_none_or(is_one)
    }
}

/// Authenticates requests. Unauthenticated visitors see nothing.
///
/// ```
/// use delayline_web::{Access, Credential, Role, Visitor};
///
/// // Behind a login of your own, whose middleware has checked a session.
/// #[derive(Clone)]
/// struct Session { user: String, is_admin: bool }
/// let access = Access::resolver(|request| {
///     let session = request.extensions.get::<Session>()?;
///     let role = if session.is_admin { Role::Admin } else { Role::Viewer };
///     Some(Visitor::new(&session.user, role))
/// });
///
/// // Or with fixed credentials.
/// let access = Access::credentials([
///     Credential::bearer("prometheus", "a long random token", Role::Viewer),
///     Credential::basic("anna", "a long password", Role::Admin),
///     // Handles the messages of one queue, and sees nothing else.
///     Credential::bearer("billing", "another token", Role::Worker).only_queues(["orders"]),
/// ]);
/// ```
#[derive(Clone)]
pub struct Access(Kind);

#[derive(Clone)]
enum Kind {
    Everyone(Rights),
    Resolver(Arc<Resolve>),
    Credentials(Arc<[Credential]>),
}

type Resolve = dyn Fn(&Parts) -> Option<Visitor> + Send + Sync;

impl Access {
    /// Gives these rights to everyone who can reach the router. Use it behind your own login, or if
    /// only this machine can connect.
    #[must_use]
    pub fn everyone(rights: impl Into<Rights>) -> Self {
        Self(Kind::Everyone(rights.into()))
    }

    /// Lets a function of the request decide: of its extensions, which your middleware may set, or
    /// of its headers. It must not block.
    #[must_use]
    pub fn resolver(resolve: impl Fn(&Parts) -> Option<Visitor> + Send + Sync + 'static) -> Self {
        Self(Kind::Resolver(Arc::new(resolve)))
    }

    /// Uses fixed tokens and passwords. They are sent with each request, so use TLS on a network.
    #[must_use]
    pub fn credentials(credentials: impl IntoIterator<Item = Credential>) -> Self {
        Self(Kind::Credentials(credentials.into_iter().collect()))
    }

    /// Who makes the request. `brake` slows clients that guess.
    pub(crate) async fn visitor(&self, parts: &Parts, brake: &Brake) -> Admission {
        let credentials = match &self.0 {
            Kind::Everyone(rights) => return Admission::Visitor(Visitor::new("everyone", *rights)),
            Kind::Resolver(resolve) => {
                return resolve(parts).map_or(Admission::Unauthenticated, Admission::Visitor);
            }
            Kind::Credentials(credentials) => credentials,
        };
        if !parts.headers.contains_key(AUTHORIZATION) {
            return Admission::Unauthenticated;
        }
        let presented = Presented::read(parts);
        let user = presented.as_ref().and_then(|presented| presented.user.as_deref());
        let address = parts.extensions.get::<ClientAddress>().map(|it| it.network());
        let find = || presented.as_ref().and_then(|it| it.find(credentials)).ok_or(());
        let token = presented.as_ref().filter(|it| it.is_long_token());
        let token = token.map(|it| (address, &it.secret));
        let checked = if token.is_some_and(|token| brake.has_passed(token))
            && let Ok(visitor) = find()
        {
            Some(Ok(visitor))
        } else {
            brake.check((address, user), find).await
        };
        match checked {
            Some(Ok(visitor)) => {
                if let Some(token) = token {
                    brake.passed(token);
                }
                Admission::Visitor(visitor)
            }
            Some(Err(())) => {
                // Any other text may be a secret in the wrong place.
                let known = credentials.iter().filter(|it| it.basic);
                let known = known.map(|it| &it.visitor.name).find(|name| Some(&***name) == user);
                Admission::Wrong { user: known.cloned() }
            }
            None => Admission::TooMany,
        }
    }

    /// Whether a browser should ask for a user and a password.
    pub(crate) const fn asks(&self) -> bool {
        matches!(self.0, Kind::Credentials(_))
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Everyone(rights) => f.debug_tuple("Everyone").field(rights).finish(),
            Kind::Resolver(_) => f.write_str("Resolver"),
            Kind::Credentials(list) => f.debug_tuple("Credentials").field(list).finish(),
        }
    }
}

/// A token or a password, its owner, and its rights.
///
/// The secret is not in the `Debug` output.
#[derive(Clone)]
pub struct Credential {
    visitor: Visitor,
    basic: bool,
    secret: String,
}

impl Credential {
    /// Creates a token, sent as `Authorization: Bearer TOKEN`. `name` appears in the audit log. An
    /// empty token never matches.
    #[must_use]
    pub fn bearer(
        name: impl Into<String>,
        token: impl Into<String>,
        rights: impl Into<Rights>,
    ) -> Self {
        Self { visitor: Visitor::new(name, rights), basic: false, secret: token.into() }
    }

    /// Creates a user and a password, for which browsers ask. An empty password never matches.
    #[must_use]
    pub fn basic(
        user: impl Into<String>,
        password: impl Into<String>,
        rights: impl Into<Rights>,
    ) -> Self {
        Self { visitor: Visitor::new(user, rights), basic: true, secret: password.into() }
    }

    /// Limits the visitor to these queues: see [`Visitor::only_queues`].
    #[must_use]
    pub fn only_queues(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { visitor: self.visitor.only_queues(names), ..self }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("visitor", &self.visitor).finish_non_exhaustive()
    }
}

/// Whether a request is let in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Visitor(Visitor),
    /// It has no login.
    Unauthenticated,
    /// Its login is wrong. The name of the user, if there is one of that name.
    Wrong {
        user: Option<String>,
    },
    /// There were too many failed logins, so this one was not checked.
    TooMany,
}

/// The address of the client, as an extension of the request, set by the server that accepts the
/// connections. Failed logins are logged with it and slowed per address; without it, all clients
/// are slowed together. Do not set the address of a proxy that all visitors share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientAddress(pub IpAddr);

impl ClientAddress {
    /// Returns the address by which the client is counted: of an IPv6 address, the network of 2^64
    /// addresses, of which one machine can have all.
    #[must_use]
    pub fn network(self) -> IpAddr {
        match self.0.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            v4 @ IpAddr::V4(_) => v4,
        }
    }
}

/// What a request says of who makes it.
struct Presented {
    /// With a password; a token has none.
    user: Option<String>,
    secret: String,
}

impl Presented {
    fn read(parts: &Parts) -> Option<Self> {
        let value = parts.headers.get(AUTHORIZATION)?.to_str().ok()?;
        let (scheme, rest) = value.split_once(' ')?;
        if scheme.eq_ignore_ascii_case("basic") {
            let pair = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
            let (user, password) = pair.split_once(':')?;
            Some(Self { user: Some(user.to_owned()), secret: password.to_owned() })
        } else if scheme.eq_ignore_ascii_case("bearer") {
            Some(Self { user: None, secret: rest.trim().to_owned() })
        } else {
            None
        }
    }

    /// Whether it is a token that no client finds by guesses, however fast.
    const fn is_long_token(&self) -> bool {
        self.user.is_none() && self.secret.len() >= LONG_TOKEN_BYTES
    }

    /// Compares with every credential, so that the time does not show which one came close.
    fn find(&self, credentials: &[Credential]) -> Option<Visitor> {
        let mut found = None;
        for credential in credentials.iter().filter(|it| it.basic == self.user.is_some()) {
            let named = match &self.user {
                Some(user) => user.as_bytes().ct_eq(credential.visitor.name.as_bytes()),
                None => Choice::from(1),
            };
            let known = named & self.secret.as_bytes().ct_eq(credential.secret.as_bytes());
            if bool::from(known) && !credential.secret.is_empty() {
                found = Some(&credential.visitor);
            }
        }
        found.cloned()
    }
}

/// Length of a token from which failures of others do not slow it after it has succeeded.
const LONG_TOKEN_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::Request;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::Role;

    async fn visitor(access: &Access, header: &str) -> Option<Visitor> {
        let request = Request::builder().header(AUTHORIZATION, header).body(()).unwrap();
        match access.visitor(&request.into_parts().0, &Brake::default()).await {
            Admission::Visitor(visitor) => Some(visitor),
            _ => None,
        }
    }

    #[test]
    fn a_visitor_knows_queues_by_name_and_by_prefix() {
        let visitor = Visitor::new("anna", Role::Admin);
        assert!(visitor.knows("orders"));
        let visitor = visitor.only_queues(["orders", "eu/*"]);
        for (queue, knows) in [("orders", true), ("orders2", false), ("eu/a", true), ("eu", false)]
        {
            assert_eq!(visitor.knows(queue), knows, "{queue}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_in_use_is_not_locked_out_by_failures_at_its_address() {
        let (used, fresh, short) = ("used-0123456789abcdef", "fresh-0123456789abcdef", "t0ken");
        let access = Access::credentials(
            [used, fresh, short].map(|it| Credential::bearer(it, it, Role::Viewer)),
        );
        let brake = Brake::default();
        let ask = async |token: &str| {
            let request = Request::builder().header(AUTHORIZATION, format!("Bearer {token}"));
            access.visitor(&request.body(()).unwrap().into_parts().0, &brake).await
        };
        for token in [used, short] {
            assert!(matches!(ask(token).await, Admission::Visitor(_)));
        }
        for number in 0..100 {
            let guess = format!("guess-0123456789-{number}");
            let _ = timeout(Duration::from_millis(1), ask(&guess)).await;
        }
        assert_eq!(ask("guess-0123456789abcdef").await, Admission::TooMany);
        let begin = Instant::now();
        assert_eq!(ask(used).await, Admission::Visitor(Visitor::new(used, Role::Viewer)));
        assert_eq!(begin.elapsed(), Duration::ZERO);
        // A token that may be guessed has to wait, used or not.
        for token in [fresh, short] {
            assert_eq!(ask(token).await, Admission::TooMany);
        }
    }

    #[tokio::test]
    async fn only_the_right_secret_lets_in() {
        let access = Access::credentials([
            Credential::bearer("robot", "t0ken", Role::Viewer),
            Credential::basic("anna", "pass:word", Role::Admin),
            Credential::basic("absent", "", Role::Admin),
            Credential::bearer("absent", "", Role::Admin),
        ]);
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        assert_eq!(
            visitor(&access, "bearer t0ken").await,
            Some(Visitor::new("robot", Role::Viewer))
        );
        let anna = Some(Visitor::new("anna", Role::Admin));
        assert_eq!(visitor(&access, &basic("anna:pass:word")).await, anna);
        for header in [
            "Bearer t0ke",
            "Bearer t0ken2",
            "Bearer pass:word",
            "Bearer ",
            "Bearer",
            "t0ken",
            "Basic t0ken",
            "Digest t0ken",
            &basic("anna:"),
            &basic("anna"),
            &basic("robot:t0ken"),
            &basic("absent:"),
            &basic("Anna:pass:word"),
        ] {
            assert_eq!(visitor(&access, header).await, None, "{header}");
        }
        let shown = format!("{access:?}");
        assert!(shown.contains("anna") && !shown.contains("pass"), "{shown}");
    }
}
