//! The TLS configuration of all drivers.
//!
//! It names the cryptography provider explicitly: the process-wide default of rustls is not ours to
//! set, and asking for it panics if two are compiled in (redis-rs#1812).

use std::io;
use std::sync::Arc;

use delayline_core::{Error, ErrorKind};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// A configuration without a client certificate that trusts the authorities in `ca_pem`, or those
/// of the operating system if that is `None`.
///
/// # Errors
///
/// [`ErrorKind::Tls`] if `ca_pem` contains no certificate or a damaged one, or the operating system
/// has no authorities.
pub fn client_config(ca_pem: Option<&[u8]>) -> Result<ClientConfig, Error> {
    let roots = match ca_pem {
        Some(pem) => given_roots(pem)?,
        None => system_roots()?,
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// The error for a TLS session that could not be set up, from the `Debug` text of a rustls error.
/// The text itself is left out: it is not readable, and could repeat what the server sent.
#[must_use]
pub fn failure(text: &str) -> Error {
    const WORDS: [(&str, &str); 10] = [
        ("UnknownIssuer", "the certificate's authority is not trusted"),
        ("NotValidForName", "the certificate is for another host"),
        ("Expired", "the certificate has expired"),
        ("NotValidYet", "the certificate is not valid yet"),
        ("CaUsedAsEndEntity", "the certificate is an authority's, not a server's"),
        ("InvalidCertificate", "the certificate is not valid"),
        ("CertificateRequired", "the server requires a client certificate"),
        ("AlertReceived", "the server refused the TLS session"),
        ("PeerIncompatible", "the server and this library have no TLS version or cipher in common"),
        ("InvalidMessage", "the server does not speak TLS on this port"),
    ];
    let known = WORDS.iter().find(|(word, _)| text.contains(word));
    Error::with_detail(ErrorKind::Tls, known.map_or("", |(_, words)| words))
}

/// The same from an I/O error, if rustls caused it.
#[must_use]
pub fn failure_of(error: &io::Error) -> Option<Error> {
    let cause = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(failure(&format!("{cause:?}")))
}

fn given_roots(pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        // Neither error is passed on: it could quote the text, which may hold a key by mistake.
        let certificate = certificate.map_err(|_| refused("the CA text is not valid PEM"))?;
        roots
            .add(certificate)
            .map_err(|_| refused("the CA text contains a damaged certificate"))?;
    }
    if roots.is_empty() {
        return Err(refused("the CA text contains no certificate"));
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    // Some systems carry certificates that rustls can't read; the others are as good without them.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(refused("the system has no certificate authorities; give one as PEM text"));
    }
    Ok(roots)
}

fn refused(detail: &str) -> Error {
    Error::with_detail(ErrorKind::Tls, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_certificate_is_refused_and_not_repeated() {
        for text in ["", "secret", "-----BEGIN CERTIFICATE-----\nsecret\n"] {
            let error = client_config(Some(text.as_bytes())).unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::Tls);
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn failures_are_told_in_words() {
        for (text, words) in [
            ("InvalidCertificate(Other(OtherError(CaUsedAsEndEntity)))", "an authority's"),
            ("InvalidCertificate(UnknownIssuer)", "not trusted"),
            ("InvalidCertificate(NotValidForNameContext { expected: .. })", "another host"),
            ("InvalidMessage(InvalidContentType)", "does not speak TLS"),
        ] {
            let error = failure(text);
            assert_eq!(error.kind(), &ErrorKind::Tls);
            assert!(error.detail().contains(words), "{error}");
        }
        assert_eq!(failure("secret").detail(), "");
    }

    #[test]
    fn damaged_certificate_is_refused() {
        let text = "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n-----END CERTIFICATE-----\n";
        let error = client_config(Some(text.as_bytes())).unwrap_err();
        assert_eq!(error.detail(), "the CA text contains a damaged certificate");
    }
}
