//! AWS Signature Version 4, in the header or in the query.

use std::collections::BTreeMap;

use axum::http::request::Parts;
use jiff::civil::DateTime;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use ring::digest::{SHA256, digest};
use ring::hmac::{HMAC_SHA256, Key, sign};
use subtle::ConstantTimeEq as _;

use crate::digest::hex;
use crate::error::{Code, Error};

/// The signature of a request, and the parts of the request that it covers.
pub(crate) struct Signature {
    pub(crate) access_key_id: String,
    /// The region that the client has signed for.
    pub(crate) region: String,
    date: String,
    service: String,
    /// The instant of the signature, as the request has it.
    instant: String,
    /// For how many seconds a signature in the query is valid.
    expires_s: Option<i64>,
    signed_headers: String,
    signature: String,
}

impl Signature {
    /// Reads the signature of a request; `None` if it has none.
    ///
    /// # Errors
    ///
    /// If it is incomplete, or of another kind.
    pub(crate) fn read(parts: &Parts) -> Result<Option<Self>, Error> {
        if let Some(value) = parts.headers.get("authorization") {
            let value = value.to_str().map_err(|_| incomplete())?;
            return Self::of_header(parts, value).map(Some);
        }
        let query = pairs(parts.uri.query().unwrap_or_default());
        if query.iter().any(|(name, _)| name == "X-Amz-Signature") {
            return Self::of_query(parts, &query).map(Some);
        }
        Ok(None)
    }

    fn of_header(parts: &Parts, value: &str) -> Result<Self, Error> {
        let fields = value.strip_prefix(ALGORITHM).ok_or_else(incomplete)?;
        let fields = fields.split(',').filter_map(|field| field.trim().split_once('='));
        let fields: BTreeMap<_, _> = fields.collect();
        let field = |name| fields.get(name).map(|it| (*it).to_owned()).ok_or_else(incomplete);
        let instant = parts.headers.get("x-amz-date").and_then(|it| it.to_str().ok());
        let instant = instant.ok_or_else(incomplete)?.to_owned();
        let (credential, signed) = (field("Credential")?, field("SignedHeaders")?);
        Self::of(parts, &credential, instant, None, signed, field("Signature")?)
    }

    fn of_query(parts: &Parts, query: &[(String, String)]) -> Result<Self, Error> {
        let field = |name: &str| {
            let found = query.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone()).ok_or_else(incomplete)
        };
        if field("X-Amz-Algorithm")? != ALGORITHM {
            return Err(incomplete());
        }
        let expires_s = field("X-Amz-Expires")?.parse().map_err(|_| incomplete())?;
        let (credential, instant) = (field("X-Amz-Credential")?, field("X-Amz-Date")?);
        let (signed, signature) = (field("X-Amz-SignedHeaders")?, field("X-Amz-Signature")?);
        Self::of(parts, &credential, instant, Some(expires_s), signed, signature)
    }

    fn of(
        parts: &Parts,
        credential: &str,
        instant: String,
        expires_s: Option<i64>,
        signed_headers: String,
        signature: String,
    ) -> Result<Self, Error> {
        // An access key may have slashes; the scope does not.
        let mut scope = credential.rsplitn(5, '/');
        let mut next = || scope.next().map(str::to_owned).ok_or_else(incomplete);
        let (end, service, region, date, access_key_id) =
            (next()?, next()?, next()?, next()?, next()?);
        let is_whole = end == "aws4_request" && service == "sqs" && instant.starts_with(&date);
        let is_signed = |name: &str| signed_headers.split(';').any(|it| it == name);
        // Otherwise, another action could be requested with the signature.
        let has_target = parts.headers.contains_key("x-amz-target");
        let covers_action = is_signed("host") && (!has_target || is_signed("x-amz-target"));
        // It becomes a part of ARNs.
        let is_region = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let is_region = region.len() <= MOST_REGION_BYTES && region.chars().all(is_region);
        if !is_whole || !covers_action || !is_region {
            return Err(incomplete());
        }
        Ok(Self {
            access_key_id,
            region,
            date,
            service,
            instant,
            expires_s,
            signed_headers,
            signature,
        })
    }

    /// Checks the signature with the secret of its access key, at `now_s` seconds since 1970. The
    /// time it takes does not depend on the secret.
    ///
    /// # Errors
    ///
    /// If the signature does not match, or is not valid now.
    pub(crate) fn check(
        &self,
        secret: &str,
        parts: &Parts,
        body: &[u8],
        now_s: i64,
    ) -> Result<(), Error> {
        let wrong = |why: &str| Err(Error::new(Code::SignatureDoesNotMatch, why));
        let expected = self.sign(secret, parts, body)?;
        if !bool::from(expected.as_bytes().ct_eq(self.signature.as_bytes())) {
            return wrong(
                "The request signature we calculated does not match the signature you provided. \
                 Check your AWS Secret Access Key and signing method.",
            );
        }
        let signed = DateTime::strptime("%Y%m%dT%H%M%SZ", &self.instant).ok();
        let signed = signed.and_then(|it| it.in_tz("UTC").ok()).ok_or_else(incomplete)?;
        let signed_s = signed.timestamp().as_second();
        let is_valid = match self.expires_s {
            None => (signed_s - now_s).abs() <= MOST_SKEW_S,
            Some(expires_s) => {
                (0..=MOST_EXPIRES_S).contains(&expires_s)
                    && signed_s - MOST_SKEW_S <= now_s
                    && now_s <= signed_s + expires_s
            }
        };
        if is_valid {
            return Ok(());
        }
        wrong("Signature expired or not yet valid: compare the clocks of client and server.")
    }

    /// The signature that the request should have.
    fn sign(&self, secret: &str, parts: &Parts, body: &[u8]) -> Result<String, Error> {
        let payload = hex(digest(&SHA256, body).as_ref());
        if let Some(declared) = parts.headers.get("x-amz-content-sha256")
            && declared.as_bytes() != payload.as_bytes()
        {
            let why = "The header x-amz-content-sha256 does not match the body.";
            return Err(Error::new(Code::SignatureDoesNotMatch, why));
        }
        let canonical = self.canonical(parts, &payload)?;
        let Self { date, region, service, instant, .. } = self;
        let scope = format!("{date}/{region}/{service}/aws4_request");
        let hashed = hex(digest(&SHA256, canonical.as_bytes()).as_ref());
        let text = format!("{ALGORITHM}\n{instant}\n{scope}\n{hashed}");
        let key = [date, region, service, "aws4_request"]
            .into_iter()
            .fold(format!("AWS4{secret}").into_bytes(), |key, part| mac(&key, part));
        Ok(hex(&mac(&key, &text)))
    }

    fn canonical(&self, parts: &Parts, payload: &str) -> Result<String, Error> {
        // Each client encodes the path that it sends once more.
        let path: Vec<_> = parts.uri.path().split('/').map(encoded).collect();
        let mut query = pairs(parts.uri.query().unwrap_or_default());
        query.retain(|(name, _)| name != "X-Amz-Signature");
        let mut query: Vec<_> =
            query.iter().map(|(name, value)| (encoded(name), encoded(value))).collect();
        query.sort();
        let query: Vec<_> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut headers = String::new();
        for name in self.signed_headers.split(';') {
            let values = parts.headers.get_all(name).iter();
            let values: Option<Vec<_>> = values.map(|value| value.to_str().ok()).collect();
            let values = values.filter(|values| !values.is_empty()).ok_or_else(incomplete)?;
            let words = |value: &str| value.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
            let values: Vec<_> = values.into_iter().map(words).collect();
            headers.push_str(&format!("{name}:{}\n", values.join(",")));
        }
        let (method, path, query) = (&parts.method, path.join("/"), query.join("&"));
        let signed = &self.signed_headers;
        Ok(format!("{method}\n{path}\n{query}\n{headers}\n{signed}\n{payload}"))
    }
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    sign(&Key::new(HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// The decoded pairs of a query.
fn pairs(query: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    };
    pairs.map(pair).collect()
}

fn incomplete() -> Error {
    let why = "The signature of the request is incomplete, or not one of AWS Signature Version 4 \
               for the service sqs.";
    Error::new(Code::MissingAuthentication, why)
}

const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const MOST_SKEW_S: i64 = 15 * 60;
const MOST_EXPIRES_S: i64 = 7 * 86_400;
const MOST_REGION_BYTES: usize = 40;

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    /// A request that botocore has signed for the key `anna` and the secret `a secret`.
    fn signed() -> Parts {
        let request = Request::post("/000000000000/orders")
            .header("host", "localhost:9324")
            .header("content-type", "application/x-amz-json-1.0")
            .header("x-amz-target", "AmazonSQS.SendMessage")
            .header("x-amz-date", "20260102T030405Z")
            .header("authorization", SIGNED);
        request.body(()).unwrap().into_parts().0
    }

    const SIGNED: &str = "AWS4-HMAC-SHA256 Credential=anna/20260102/eu-central-1/sqs/aws4_request, \
        SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature=128af8db8a2ccc511897d8342b4449e70e18d88bcd9a4b2b749577ecaccdd8ea";
    const BODY: &[u8] = b"{\"MessageBody\": \"x\"}";
    /// 2026-01-02 03:04:05.
    const AT_S: i64 = 1_767_323_045;

    #[test]
    fn a_signature_is_valid_for_its_request_and_a_quarter_of_an_hour() {
        let parts = signed();
        let signature = Signature::read(&parts).unwrap().unwrap();
        assert_eq!((&*signature.access_key_id, &*signature.region), ("anna", "eu-central-1"));
        for now_s in [AT_S - 900, AT_S, AT_S + 900] {
            signature.check("a secret", &parts, BODY, now_s).unwrap();
        }
        for now_s in [AT_S - 901, AT_S + 901] {
            let error = signature.check("a secret", &parts, BODY, now_s).unwrap_err();
            assert!(error.message().contains("clocks"), "{error}");
        }
        let mut other = signed();
        other.headers.insert("x-amz-target", "AmazonSQS.PurgeQueue".parse().unwrap());
        for (secret, parts, body) in
            [("b secret", &parts, BODY), ("a secret", &other, BODY), ("a secret", &parts, b"")]
        {
            let error = signature.check(secret, parts, body, AT_S).unwrap_err();
            assert_eq!(error.code(), Code::SignatureDoesNotMatch);
        }
    }

    #[test]
    fn incomplete_signatures_are_refused() {
        for value in [
            "",
            "Basic YTpi",
            "AWS4-HMAC-SHA256",
            &SIGNED.replace("Signature=", "x="),
            &SIGNED.replace("host;", ""),
            &SIGNED.replace(";x-amz-target", ""),
            &SIGNED.replace("/sqs/", "/"),
            &SIGNED.replace("/sqs/", "/sns/"),
            &SIGNED.replace("/20260102/", "/20260103/"),
        ] {
            let mut parts = signed();
            parts.headers.insert("authorization", value.parse().unwrap());
            assert!(Signature::read(&parts).is_err(), "{value}");
        }
        let mut parts = signed();
        parts.headers.remove("x-amz-target");
        let signature = Signature::read(&parts).unwrap().unwrap();
        assert!(signature.check("a secret", &parts, BODY, AT_S).is_err());
    }
}
