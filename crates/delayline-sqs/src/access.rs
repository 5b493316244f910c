//! Access keys: who makes a request.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::request::Parts;
use delayline_web::waiting::Brake;
use delayline_web::{ClientAddress, Rights, Role, Visitor};

use crate::error::{Code, Error};
use crate::signature::Signature;

/// Authenticates requests by their signatures.
#[derive(Clone)]
pub struct Access(Kind);

#[derive(Clone)]
enum Kind {
    Everyone(Rights),
    Keys(Arc<[AccessKey]>, Arc<Brake>),
}

/// An access key id, its secret, and the rights of its user.
///
/// The secret is not in the `Debug` output.
#[derive(Clone)]
pub struct AccessKey {
    visitor: Visitor,
    secret: String,
}

impl AccessKey {
    /// Creates an access key. Its id is the name of the user. An empty secret never matches.
    #[must_use]
    pub fn new(
        id: impl Into<String>,
        secret: impl Into<String>,
        rights: impl Into<Rights>,
    ) -> Self {
        Self { visitor: Visitor::new(id, rights), secret: secret.into() }
    }

    /// Limits the user to these queues: all others do not exist for the user. A name with `*` at
    /// its end stands for all queues that begin with it.
    #[must_use]
    pub fn only_queues(self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { visitor: self.visitor.only_queues(names), ..self }
    }
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKey").field("visitor", &self.visitor).finish_non_exhaustive()
    }
}

impl Access {
    /// Gives these rights to everyone who can reach the router, whatever the signature. Use it if
    /// only this machine can connect.
    #[must_use]
    pub fn everyone(rights: impl Into<Rights>) -> Self {
        Self(Kind::Everyone(rights.into()))
    }

    /// Checks the signature of each request with the secret of its access key. Wrong signatures are
    /// slowed down per access key and [`ClientAddress`], and then all are refused unchecked. If a
    /// secret has at least 16 bytes, and was used from the address in the last hour, they slow down
    /// only themselves.
    #[must_use]
    pub fn keys(keys: impl IntoIterator<Item = AccessKey>) -> Self {
        Self(Kind::Keys(keys.into_iter().collect(), Arc::new(Brake::default())))
    }

    /// Returns the caller of a request.
    pub(crate) async fn caller(&self, parts: &Parts, body: &[u8]) -> Result<Caller, Error> {
        let (keys, brake) = match &self.0 {
            Kind::Everyone(rights) => {
                // A signature only says which region the client takes the server for.
                let signature = Signature::read(parts).ok().flatten();
                let region = signature.map_or_else(|| REGION.to_owned(), |it| it.region);
                let visitor = Visitor::new("everyone", *rights);
                return Ok(Caller { visitor, region, is_named: false });
            }
            Kind::Keys(keys, brake) => (keys, brake),
        };
        let signature = Signature::read(parts)?.ok_or_else(|| {
            let why = "The request must be signed with an access key.";
            Error::new(Code::MissingAuthentication, why)
        })?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let key = keys.iter().find(|key| key.visitor.name == signature.access_key_id);
        let key = key.filter(|key| !key.secret.is_empty());
        let check = || {
            let key = key.ok_or_else(|| {
                let why = "The security token included in the request is invalid.";
                Error::new(Code::InvalidClientTokenId, why)
            })?;
            signature.check(&key.secret, parts, body, now_s)?;
            Ok(key.visitor.clone())
        };
        let login = (
            parts.extensions.get::<ClientAddress>().map(|it| it.network()),
            &signature.access_key_id,
        );
        // Wrong signatures of others must not lock out a key in use. A short secret may be guessed.
        let is_long = key.is_some_and(|key| key.secret.len() >= LONG_SECRET_BYTES);
        let checked = if is_long
            && brake.has_passed(login)
            && let Ok(visitor) = check()
        {
            Some(Ok(visitor))
        } else {
            brake.check(login, check).await
        };
        let visitor = checked.unwrap_or_else(|| {
            let why = "Too many wrong signatures. Wait for a few seconds.";
            Err(Error::new(Code::RequestThrottled, why))
        })?;
        if is_long {
            brake.passed(login);
        }
        Ok(Caller { visitor, region: signature.region, is_named: true })
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Everyone(rights) => f.debug_tuple("Everyone").field(rights).finish(),
            Kind::Keys(keys, _) => f.debug_tuple("Keys").field(keys).finish(),
        }
    }
}

/// The user who makes a request, and the region that the client has signed for.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) visitor: Visitor,
    pub(crate) region: String,
    /// The user has an access key.
    pub(crate) is_named: bool,
}

impl Caller {
    /// Returns an error unless the caller has one of these roles.
    pub(crate) fn require(&self, roles: &[Role]) -> Result<(), Error> {
        if roles.iter().any(|role| self.visitor.rights.include(*role)) {
            return Ok(());
        }
        let names: Vec<_> = roles.iter().map(|role| role.name()).collect();
        let why = format!("The action needs the role {}.", names.join(" or "));
        Err(Error::new(Code::AccessDenied, why))
    }

    /// Returns `true` if the queue of this name exists for the caller.
    pub(crate) fn knows(&self, queue: &str) -> bool {
        self.visitor.knows(queue)
    }
}

/// Length of a secret from which wrong signatures do not slow it after it has been used.
const LONG_SECRET_BYTES: usize = 16;
/// The region of requests without a signature.
const REGION: &str = "us-east-1";
