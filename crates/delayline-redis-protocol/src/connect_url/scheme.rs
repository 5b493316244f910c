//! The schemes of URLs of servers, in the spellings of many libraries.

/// What a scheme says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scheme {
    pub(super) shape: Shape,
    pub(super) is_encrypted: bool,
}

/// What stands at the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Single,
    Cluster,
    Sentinel,
    Unix,
}

impl Scheme {
    /// Reads the text before the first colon; `None` for an unknown scheme.
    ///
    /// fred and this crate write `redis-sentinel`, prefect and `Redis-Sentinel-Url`
    /// `redis+sentinel`, redis-rs and fred `redis+unix`, kombu and Lettuce `redis+socket`, and Bun
    /// and Lettuce `redis+tls` and `redis+ssl`. No two of them mean different servers.
    pub(super) fn of(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let mut words = name.split(['+', '-']);
        let (mut shape, mut is_encrypted) = (None, false);
        match words.next() {
            Some("redis" | "valkey") => {}
            Some("rediss" | "valkeys") => is_encrypted = true,
            Some("unix") => shape = Some(Shape::Unix),
            _ => return None,
        }
        for word in words {
            let said = match word {
                "tls" | "ssl" if !is_encrypted => {
                    is_encrypted = true;
                    continue;
                }
                "cluster" => Shape::Cluster,
                "sentinel" => Shape::Sentinel,
                "unix" | "socket" => Shape::Unix,
                _ => return None,
            };
            if shape.replace(said).is_some() {
                return None;
            }
        }
        Some(Self { shape: shape.unwrap_or(Shape::Single), is_encrypted })
    }
}

pub(super) const EXPECTED: &str = "it must begin with redis://, redis-cluster:// or redis-sentinel://, with TLS rediss://, \
     rediss-cluster:// or rediss-sentinel://, or with unix: (valkey is the same as redis)";
