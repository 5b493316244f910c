//! Certificates, made when a server starts: nothing secret or perishable is kept in the repository.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// The certificate that a TLS server shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Certificate {
    /// For `localhost` and 127.0.0.1, good for many years.
    #[default]
    Valid,
    /// For the same names, but it ran out in 2020.
    Expired,
    /// Good, but made out to another host.
    WrongHost,
}

/// What a TLS server needs, as PEM text.
#[derive(Clone)]
pub(crate) struct Identity {
    /// The authority that signed `cert`.
    pub(crate) ca: String,
    /// The server's certificate.
    pub(crate) cert: String,
    /// The server's private key.
    pub(crate) key: String,
}

impl Identity {
    /// A fresh authority and a certificate signed by it.
    pub(crate) fn generate(kind: Certificate) -> Result<Self, rcgen::Error> {
        let authority = authority("Delayline test authority")?;
        let names: &[&str] = match kind {
            Certificate::Valid | Certificate::Expired => &["localhost", "127.0.0.1"],
            Certificate::WrongHost => &["elsewhere.invalid"],
        };
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, "Delayline test server");
        if kind == Certificate::Expired {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        }
        let key = KeyPair::generate()?;
        let cert = params.signed_by(&key, &authority)?;
        Ok(Self { ca: authority.pem(), cert: cert.pem(), key: key.serialize_pem() })
    }
}

/// Shows nothing of the key.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity")
    }
}

/// The certificate of an authority that signed nothing here, as PEM text: a client that trusts only
/// this one must refuse every [`Server`](crate::Server).
#[must_use]
#[expect(clippy::expect_used, reason = "fixed parameters: fails only if the generator is broken")]
pub fn foreign_ca_pem() -> String {
    authority("Another authority").expect("fixed parameters make a certificate").pem()
}

fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}
