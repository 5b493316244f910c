//! Signatures by Standard Webhooks, for which libraries of many languages exist.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use ring::hmac;

/// What this process and the receiver share. It is not in the `Debug` output.
#[derive(Clone)]
pub(in crate::commands::work) struct Secret(hmac::Key);

impl Secret {
    /// Reads `whsec_` and the key in base64, or takes another text as the key. No error repeats it.
    pub(in crate::commands::work) fn new(text: &str) -> Result<Self, String> {
        let key = match text.trim().strip_prefix("whsec_") {
            Some(base64) => STANDARD
                .decode(base64)
                .map_err(|_| "after whsec_ the secret must be in base64".to_owned())?,
            None => text.trim().as_bytes().to_vec(),
        };
        if key.len() < LEAST_BYTES {
            return Err(format!("the secret must have at least {LEAST_BYTES} bytes"));
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &key)))
    }

    /// The signature of a message that is posted now.
    pub(super) fn sign(&self, id: &str, seconds: u64, payload: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(format!("{id}.{seconds}.").as_bytes());
        context.update(payload);
        format!("v1,{}", STANDARD.encode(context.sign()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// An id in percent-encoding, without dots, which separate the signed parts.
pub(super) fn id(id: &[u8]) -> String {
    percent_encode(id, ENCODED).to_string()
}

/// Seconds since 1970 by this machine's clock.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');
const LEAST_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's own libraries.
    #[test]
    fn signatures_are_those_of_the_specification() {
        let secret = Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature =
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(format!("{secret:?}"), "Secret");
    }

    #[test]
    fn secrets_are_long_enough_and_told_nowhere() {
        for text in ["", "hunter2", "whsec_", "whsec_hunter2hunter2!", "whsec_aHVudGVyMg=="] {
            let error = Secret::new(text).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
        Secret::new("hunter2hunter2hunter2").unwrap();
    }

    #[test]
    fn ids_have_no_dots() {
        assert_eq!(id(b"order-1.2\xff"), "order-1%2E2%FF");
    }
}
