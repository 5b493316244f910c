//! What clients see of claim ids and leases.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use delayline::admin::ProcessId;
use delayline::backend::{ClaimId, Lease};
use ring::hmac::{self, Context, HMAC_SHA256, Key};
use ring::rand::SystemRandom;

/// Turns the claim ids of clients into those of the queue.
///
/// Clients choose claim ids, and may choose poor ones. The queue's claim id is an HMAC of the
/// visitor and the chosen id. So neither it nor a lease can be guessed, and no visitor can repeat
/// the claim of another one.
pub(crate) struct ClaimIds(Key);

impl ClaimIds {
    /// With a secret, servers that share it repeat each other's claims, also after a restart.
    /// Without one, the key is random. `None` if the machine has no randomness.
    pub(crate) fn new(secret: Option<&[u8]>) -> Option<Self> {
        match secret {
            Some(secret) => Some(Self(Key::new(HMAC_SHA256, secret))),
            None => Key::generate(HMAC_SHA256, &SystemRandom::new()).ok().map(Self),
        }
    }

    /// Returns the queue's claim id for what a client has sent. `parts` are the visitor, the queue,
    /// the consumer and the client's claim id.
    ///
    /// Its first half depends on the visitor alone, so that leases are grouped by visitor.
    pub(crate) fn of(&self, parts: [&[u8]; 4]) -> ClaimId {
        let [visitor, ..] = parts;
        let (whole, of_visitor) = (self.sign(&parts), self.sign(&[visitor]));
        let mut bytes = [0; ClaimId::BYTES];
        let tags = of_visitor.as_ref().iter().take(ProcessId::BYTES).chain(whole.as_ref());
        bytes.iter_mut().zip(tags).for_each(|(to, from)| *to = *from);
        ClaimId::from_bytes(bytes)
    }

    fn sign(&self, parts: &[&[u8]]) -> hmac::Tag {
        let mut context = Context::with_key(&self.0);
        for part in parts {
            context.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            context.update(part);
        }
        context.sign()
    }
}

/// A lease as clients hold it: opaque text. It also has what a settlement at any server needs to
/// know of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) lease: Lease,
    /// The backoff of a retry is computed from them.
    pub(crate) failures: u32,
    /// It has waited for others, and a late wake-up must not end a snooze.
    pub(crate) has_waited: bool,
}

impl Token {
    pub(crate) fn write(self) -> String {
        let Self { lease, failures, has_waited } = self;
        let flag = if has_waited { HAS_WAITED } else { 0 };
        let mut bytes = lease.claim_id.as_bytes().to_vec();
        bytes.extend(lease.epoch.to_be_bytes());
        bytes.extend((failures | flag).to_be_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Returns `None` for a text that [`write`](Self::write) never returns.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (claim_id, rest) = bytes.split_first_chunk()?;
        let (epoch, rest) = rest.split_first_chunk()?;
        let lease =
            Lease { claim_id: ClaimId::from_bytes(*claim_id), epoch: u64::from_be_bytes(*epoch) };
        let last = u32::from_be_bytes(rest.try_into().ok()?);
        Some(Self { lease, failures: last & !HAS_WAITED, has_waited: last & HAS_WAITED != 0 })
    }
}

/// More failures than a message can have.
const HAS_WAITED: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_ids_depend_on_the_secret_and_on_every_part() {
        let ids = ClaimIds::new(Some(b"secret")).unwrap();
        let parts: [&[u8]; 4] = [b"robot", b"orders", b"worker-1", b"1"];
        let id = ids.of(parts);
        assert_eq!(id, ClaimIds::new(Some(b"secret")).unwrap().of(parts));
        assert_ne!(id, ClaimIds::new(Some(b"other")).unwrap().of(parts));
        assert_ne!(id, ClaimIds::new(None).unwrap().of(parts));
        for part in 0..4 {
            let mut other = parts;
            other[part] = b"x";
            assert_ne!(id, ids.of(other));
        }
        // Those of a visitor belong together.
        assert_eq!(id.process(), ids.of([b"robot", b"x", b"y", b"z"]).process());
        assert_ne!(id.process(), ids.of([b"other", b"orders", b"worker-1", b"1"]).process());
        // The same bytes, divided elsewhere.
        assert_ne!(id, ids.of([b"roboto", b"rders", b"worker-1", b"1"]));
    }

    #[test]
    fn tokens_come_back_and_others_are_refused() {
        let lease = Lease { claim_id: ClaimId::from_bytes([7; 16]), epoch: u64::MAX - 1 };
        let waited = Token { lease, failures: 3, has_waited: true };
        let token = Token { has_waited: false, ..waited };
        assert_eq!(Token::read(&waited.write()), Some(waited));
        let text = token.write();
        assert_eq!(Token::read(&text), Some(token));
        for wrong in ["", "x", &text[1..], &format!("{text}AA"), &text.replace('B', "+")] {
            assert_eq!(Token::read(wrong), None, "{wrong}");
        }
    }
}
