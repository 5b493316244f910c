//! Bodies of requests: their types, and the memory that they may take together.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::failure::Failure;

/// Reads bodies. All that are longer than [`SMALL`] share [`MOST_BYTES`].
#[derive(Clone)]
pub(crate) struct Bodies(Arc<Semaphore>);

/// Types of bodies, the usual one first.
pub(crate) type Types = &'static [&'static str];

pub(crate) const FORM: Types = &["application/x-www-form-urlencoded"];
pub(crate) const JSON: Types = &["application/json"];
pub(crate) const JSON_OR_LINES: Types =
    &["application/json", "application/x-ndjson", "application/jsonl"];

/// A whole body. It counts until this is dropped.
pub(crate) struct Whole {
    /// One of the types that were asked for.
    pub(crate) media_type: &'static str,
    bytes: Vec<u8>,
    _share: Option<OwnedSemaphorePermit>,
}

impl Deref for Whole {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Bodies {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MOST_BYTES / UNIT)))
    }

    /// Reads a body of one of these types and of up to `most` bytes, within a limit of time,
    /// without its byte order mark. An empty body needs no type.
    pub(crate) async fn read(
        &self,
        request: Request,
        types: Types,
        most: usize,
    ) -> Result<Whole, Failure> {
        let (parts, body) = request.into_parts();
        let media_type = match media_type(&parts.headers, types) {
            None if !body.is_end_stream() => return Err(Failure::MediaType(types)),
            known => known.or_else(|| types.first().copied()).unwrap_or_default(),
        };
        let read = timeout(READ, self.collect(body, media_type, most)).await;
        let mut whole = read.map_err(|_| Failure::Slow)??;
        if types != FORM && whole.starts_with(BYTE_ORDER_MARK) {
            whole.bytes.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(whole)
    }

    async fn collect(
        &self,
        mut body: Body,
        media_type: &'static str,
        most: usize,
    ) -> Result<Whole, Failure> {
        let declared = body.size_hint().exact().and_then(|it| usize::try_from(it).ok());
        if declared.is_some_and(|declared| declared > most) {
            // A client that asked whether to continue need not send it.
            return Err(Failure::TooLarge(most));
        }
        let expected = declared.unwrap_or(most);
        let mut whole = Whole { media_type, bytes: Vec::new(), _share: None };
        while let Some(frame) = body.frame().await {
            let early = |_| Failure::Wrong("the body ended early".to_owned());
            let Ok(data) = frame.map_err(early)?.into_data() else { continue };
            let length = whole.bytes.len().saturating_add(data.len());
            if length > most {
                return Err(Failure::TooLarge(most));
            }
            if length > SMALL && whole._share.is_none() {
                // All of it at once: two that have a part and wait for more would wait for ever.
                whole._share = Some(self.share(expected.max(length)).await?);
                whole.bytes.reserve_exact(expected.saturating_sub(whole.bytes.len()));
            }
            whole.bytes.extend_from_slice(&data);
        }
        Ok(whole)
    }

    /// Waits until there is memory for a body.
    async fn share(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Failure> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let share = timeout(WAIT, Arc::clone(&self.0).acquire_many_owned(units)).await;
        share.ok().and_then(Result::ok).ok_or(Failure::Crowded)
    }
}

/// Refuses a body of a request that takes none.
pub(crate) async fn absent(mut body: Body) -> Result<(), Failure> {
    let given = async {
        // A client that asked whether to continue need not send it.
        let mut is_given = body.size_hint().lower() > 0;
        while !is_given && let Some(frame) = body.frame().await {
            let data = frame.ok().and_then(|it| it.into_data().ok());
            is_given = data.is_none_or(|data| !data.is_empty());
        }
        is_given
    };
    match timeout(READ, given).await {
        Ok(false) => Ok(()),
        Ok(true) => Err(Failure::Wrong("this request takes no body".to_owned())),
        Err(_) => Err(Failure::Slow),
    }
}

/// Which of the types a body has. Text in another encoding than UTF-8 has none of them.
fn media_type(headers: &HeaderMap, types: Types) -> Option<&'static str> {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let (value, None) = (values.next()?.to_str().ok()?, values.next()) else { return None };
    let mut parts = value.split(';').map(str::trim);
    let name = parts.next()?;
    let is_utf_8 = parts.filter_map(|part| part.split_once('=')).all(|(name, value)| {
        !name.eq_ignore_ascii_case("charset")
            || UTF_8.iter().any(|utf_8| value.trim_matches('"').eq_ignore_ascii_case(utf_8))
    });
    types.iter().copied().find(|known| is_utf_8 && known.eq_ignore_ascii_case(name))
}

/// The name of the encoding, and a common misspelling.
const UTF_8: [&str; 2] = ["utf-8", "utf8"];

/// Some editors write it at the start of a file.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Bodies up to this length do not count: as many as there are connections.
const SMALL: usize = 64 * 1024;
/// Of all longer bodies together.
const MOST_BYTES: usize = 128 * 1024 * 1024;
const UNIT: usize = 1024;
/// For a whole body.
const READ: Duration = Duration::from_secs(20);
/// For memory, as a part of that.
const WAIT: Duration = Duration::from_secs(5);
