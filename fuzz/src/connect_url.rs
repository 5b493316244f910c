//! Server addresses.

use delayline_redis_protocol::{Address, ConnectOptions, Topology};

/// The shown text must be the same with either of them. Two, because the fuzzer would find one and
/// put it where it may be shown.
const PASSWORDS: [&str; 2] = ["Zq7-Passwd-Zq7", "Xk3-Secret-Xk3"];

/// Reads the bytes as an address, and as what stands before and after a password in one.
///
/// # Panics
///
/// Reading panics, a displayed address does not read back, or an output depends on the password.
pub fn connect_url(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(options) = text.parse() {
        does_not_depend_on_the_password(&options);
        reads_back(&options);
    }
    let (before, after) = text.split_once('|').unwrap_or((&text, ""));
    // After a colon it is the password, whatever comes before it, and never a user name.
    for scheme in ["redis", "rediss", "redis-cluster", "rediss-sentinel"] {
        is_not_shown(|password| format!("{scheme}://{before}:{password}{after}"));
    }
    // A question mark ends the path.
    let path = before.replace('?', "");
    is_not_shown(|password| format!("unix:{path}?password={password}{after}"));
}

fn is_not_shown(text: impl Fn(&str) -> String) {
    let shown = PASSWORDS.map(|password| match text(password).parse::<ConnectOptions>() {
        Ok(options) => format!("{options} {options:?}"),
        Err(violation) => format!("{violation} {violation:?}"),
    });
    assert_eq!(shown[0], shown[1], "from {}", text(PASSWORDS[0]));
}

fn does_not_depend_on_the_password(options: &ConnectOptions) {
    let mut other = options.clone();
    // Only the presence of a password may be shown.
    other.password = options.exposed_password().map(|password| format!("{password}x").into());
    assert_eq!(format!("{options} {options:?}"), format!("{other} {other:?}"));
}

/// The path of a unix socket may begin with slashes that are read as part of the scheme.
fn reads_back(options: &ConnectOptions) {
    if !matches!(options.topology, Topology::Single(Address::Unix(_))) {
        let shown = options.to_string();
        let again = shown.parse::<ConnectOptions>();
        let again = again.unwrap_or_else(|violation| panic!("{shown} is refused: {violation}"));
        assert_eq!(again.topology, options.topology);
    }
}
