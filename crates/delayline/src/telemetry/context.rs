//! W3C trace context: the trace that a message belongs to.

use std::fmt;

use delayline_core::{Headers, Violation};

/// A position in a distributed trace, as defined by the W3C recommendation *Trace Context*.
///
/// The producer attaches it to a message with
/// [`Draft::trace_context`](crate::Draft::trace_context), or to all messages with
/// [`Queue::trace_source`](crate::Queue::trace_source). The consumer reads it with
/// [`from_headers`](Self::from_headers) and passes it to its tracer, as a link of the handler's
/// span or as a parent: see the guide [`traces`](crate::guides::traces). This crate has no tracer
/// itself, because `tracing` alone has no such ids.
///
/// ```
/// use delayline::message::Headers;
/// use delayline::telemetry::TraceContext;
///
/// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let context = TraceContext::parse(text)?.with_state("vendor=1")?;
/// assert!(context.is_sampled());
///
/// let mut headers = Headers::new();
/// context.put(&mut headers)?;
/// assert_eq!(TraceContext::from_headers(&headers), Some(context));
/// # Ok::<(), delayline::Violation>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace_id: u128,
    span_id: u64,
    flags: u8,
    state: Option<String>,
}

impl TraceContext {
    /// The name of the header with the ids.
    pub const TRACEPARENT: &str = Headers::TRACEPARENT;

    /// The name of the header with the data of tracing systems.
    pub const TRACESTATE: &str = Headers::TRACESTATE;

    /// The span `span_id` of the trace `trace_id`; `sampled` if it is recorded.
    ///
    /// # Errors
    ///
    /// [`Violation::OutOfRange`] if an id is 0, which means no id.
    pub fn new(trace_id: u128, span_id: u64, sampled: bool) -> Result<Self, Violation> {
        if trace_id == 0 || span_id == 0 {
            return Err(Violation::OutOfRange {
                what: "a trace or span id",
                actual: 0,
                least: 1,
                most: u64::MAX,
            });
        }
        Ok(Self { trace_id, span_id, flags: u8::from(sampled), state: None })
    }

    /// Parses a `traceparent`. Of a later version, only the known fields are used.
    ///
    /// # Errors
    ///
    /// [`Violation::Malformed`] if it is invalid. The error does not repeat the text, whose source
    /// may not be trusted.
    pub fn parse(traceparent: &str) -> Result<Self, Violation> {
        fields(traceparent).ok_or_else(|| Violation::Malformed {
            what: "the traceparent",
            value: String::new(),
            reason: "it is not VERSION-TRACE-SPAN-FLAGS in lower-case hexadecimal".to_owned(),
        })
    }

    /// Sets the `tracestate`: list members such as `vendor=value`, separated by commas.
    ///
    /// # Errors
    ///
    /// [`Violation`] if it is longer than 512 bytes or contains characters that are not printable
    /// ASCII.
    pub fn with_state(mut self, tracestate: impl Into<String>) -> Result<Self, Violation> {
        let state = tracestate.into();
        let (what, actual) = ("the tracestate", state.len());
        if actual > MAX_STATE_BYTES {
            return Err(Violation::TooLong { what, unit: "bytes", actual, limit: MAX_STATE_BYTES });
        }
        if !state.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
            let reason = "it has characters that are not printable ASCII".to_owned();
            return Err(Violation::Malformed { what, value: String::new(), reason });
        }
        self.state = (!state.is_empty()).then_some(state);
        Ok(self)
    }

    /// Reads the trace context from a message's headers. Returns `None` if the `traceparent` is
    /// missing or invalid. An invalid `tracestate` is ignored, as the W3C recommends.
    #[must_use]
    pub fn from_headers(headers: &Headers) -> Option<Self> {
        let text = |name| headers.get(name).and_then(|value| std::str::from_utf8(value).ok());
        let context = fields(text(Self::TRACEPARENT)?)?;
        Some(match text(Self::TRACESTATE) {
            Some(state) => context.clone().with_state(state).unwrap_or(context),
            None => context,
        })
    }

    /// Sets the headers, replacing an earlier trace context.
    ///
    /// # Errors
    ///
    /// [`Violation`] if there would be too many headers, or too many bytes of them.
    pub fn put(&self, headers: &mut Headers) -> Result<(), Violation> {
        let mut changed = headers.clone();
        changed.set(Self::TRACEPARENT, self.to_string())?;
        match &self.state {
            Some(state) => changed.set(Self::TRACESTATE, state.clone())?,
            // The state of another trace must not remain.
            None if changed.get(Self::TRACESTATE).is_some() => changed.set(Self::TRACESTATE, "")?,
            None => {}
        }
        *headers = changed;
        Ok(())
    }

    /// The id of the trace.
    #[must_use]
    pub const fn trace_id(&self) -> u128 {
        self.trace_id
    }

    /// The id of the span that sent the message.
    #[must_use]
    pub const fn span_id(&self) -> u64 {
        self.span_id
    }

    /// Whether that span is recorded.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The `tracestate`.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

/// Formats the `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

fn fields(traceparent: &str) -> Option<TraceContext> {
    let mut parts = traceparent.splitn(5, '-');
    let version = hex(parts.next()?, 2)?;
    let trace_id = hex(parts.next()?, 32)?;
    let span_id = u64::try_from(hex(parts.next()?, 16)?).ok()?;
    let flags = u8::try_from(hex(parts.next()?, 2)?).ok()?;
    // Version 0 ends here; a later one may continue.
    if trace_id == 0 || span_id == 0 || version == 0xff || (version == 0 && parts.next().is_some())
    {
        return None;
    }
    // Flags unknown to this version must not be passed on.
    Some(TraceContext { trace_id, span_id, flags: flags & (SAMPLED | RANDOM), state: None })
}

fn hex(text: &str, digits: usize) -> Option<u128> {
    let lower = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (text.len() == digits && text.bytes().all(lower)).then_some(())?;
    u128::from_str_radix(text, 16).ok()
}

const SAMPLED: u8 = 1;
/// Level 2 of the recommendation: the trace id is random.
const RANDOM: u8 = 2;
/// The length that every participant in a trace must be able to pass on.
const MAX_STATE_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_and_written() {
        let context = TraceContext::parse(PARENT).unwrap();
        assert_eq!(context.to_string(), PARENT);
        assert_eq!(context.trace_id(), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(context.span_id(), 0x00f0_67aa_0ba9_02b7);
        assert!(context.is_sampled());
        let later = PARENT.replacen("00", "cc", 1) + "-more-of-it";
        assert_eq!(TraceContext::parse(&later).unwrap(), context);
        assert!(TraceContext::new(1, 0, true).is_err());
    }

    #[test]
    fn anything_else_is_refused_and_not_repeated() {
        let zeros = "0".repeat(32);
        for text in [
            "",
            "00",
            &PARENT[1..],
            &PARENT.to_uppercase(),
            &format!("{PARENT}-"),
            &PARENT.replacen("00", "ff", 1),
            &PARENT.replacen("4bf92f3577b34da6a3ce929d0e0e4736", &zeros, 1),
            &PARENT.replacen("4bf", "+bf", 1),
            "hunter2",
        ] {
            let error = TraceContext::parse(text).unwrap_err().to_string();
            assert!(!error.contains("4bf") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn hostile_headers_are_no_context() {
        let mut headers = Headers::new();
        headers.set("traceparent", vec![0xff; 55]).unwrap();
        assert_eq!(TraceContext::from_headers(&headers), None);
        headers.set("traceparent", PARENT).unwrap();
        headers.set("tracestate", "a=1\r\nb").unwrap();
        let context = TraceContext::from_headers(&headers).unwrap();
        assert_eq!(context.state(), None);
        assert!(context.clone().with_state("x".repeat(513)).is_err());
        context.put(&mut headers).unwrap();
        assert_eq!(headers.get("tracestate").unwrap(), "", "no other trace's state stays behind");
    }
}
