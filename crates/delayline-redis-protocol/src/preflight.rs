//! Checks once, when a queue is opened, whether the server is suitable.

use delayline_core::{Error, ErrorKind};

use crate::info::field;

/// Checks the server's `INFO` text.
///
/// # Errors
///
/// [`ErrorKind::ReadOnly`] for a replica; [`ErrorKind::Evicting`] if the server may evict keys and
/// `allow_eviction` is not set; [`ErrorKind::Unsupported`] if the server is older than Redis 6.0 or
/// built for 32 bits.
pub(crate) fn check_server(info: &str, allow_eviction: bool) -> Result<(), Error> {
    let field = |name| field(info, name);
    if field("role").is_some_and(|role| role == "slave" || role == "replica") {
        let [host, port] = ["master_host", "master_port"].map(|it| field(it).unwrap_or_default());
        let detail = format!("its primary is {host}:{port}");
        return Err(Error::with_detail(ErrorKind::ReadOnly, detail));
    }
    let major = field("redis_version")
        .and_then(|version| version.split('.').next().and_then(|major| major.parse::<u32>().ok()));
    if major.is_some_and(|major| major < 6) {
        return Err(Error::new(ErrorKind::Unsupported("a server older than Redis 6.0")));
    }
    // The scripts pack numbers of 48 and 64 bits, which a 32-bit build cuts.
    if field("arch_bits").is_some_and(|bits| bits == "32") {
        return Err(Error::new(ErrorKind::Unsupported("a 32-bit server")));
    }
    match field("maxmemory_policy") {
        Some(policy) if policy != "noeviction" && !allow_eviction => {
            Err(Error::new(ErrorKind::Evicting { policy: policy.to_owned() }))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(info: &str) -> Result<(), ErrorKind> {
        check_server(info, false).map_err(|error| error.kind().clone())
    }

    #[test]
    fn only_a_server_that_keeps_messages_will_do() {
        let good = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n";
        assert_eq!(check(good), Ok(()));
        assert_eq!(check(""), Ok(()), "a server that tells nothing is taken at its word");
        let policy = "allkeys-lru".to_owned();
        assert_eq!(check("maxmemory_policy:allkeys-lru\r\n"), Err(ErrorKind::Evicting { policy }));
        assert!(check_server("maxmemory_policy:volatile-ttl\r\n", true).is_ok());
        assert_eq!(check("role:slave\r\nmaster_host:10.0.0.1\r\n"), Err(ErrorKind::ReadOnly));
        assert_eq!(check("redis_version:6.0.16\r\n"), Ok(()));
        assert!(matches!(check("redis_version:5.0.3\r\n"), Err(ErrorKind::Unsupported(_))));
        assert!(matches!(check("arch_bits:32\r\n"), Err(ErrorKind::Unsupported(_))));
    }
}
