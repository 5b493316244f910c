//! Server addresses.

use delayline_redis_protocol::{Address, ConnectOptions};

/// A password that stands nowhere else in the output by chance: the fuzzer would have to find it.
const PASSWORD: &str = "Zq7-Passwd-Zq7";

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
    if text.contains(PASSWORD) {
        return;
    }
    let (before, after) = text.split_once('|').unwrap_or((&text, ""));
    // Behind a colon it is the password, whatever comes before; so it is nobody's name.
    for scheme in ["redis", "rediss"] {
        is_not_shown(&format!("{scheme}://{before}:{PASSWORD}{after}"));
    }
    // A question mark ends the path.
    let path = before.replace('?', "");
    is_not_shown(&format!("unix:{path}?password={PASSWORD}{after}"));
}

fn is_not_shown(text: &str) {
    let shown = match text.parse::<ConnectOptions>() {
        Ok(options) => {
            does_not_depend_on_the_password(&options);
            format!("{options} {options:?}")
        }
        Err(violation) => format!("{violation} {violation:?}"),
    };
    assert!(!shown.contains(PASSWORD), "{text} is shown as {shown}");
}

fn does_not_depend_on_the_password(options: &ConnectOptions) {
    let mut other = options.clone();
    // Whether there is one may be told.
    other.password = options.exposed_password().map(|password| format!("{password}x").into());
    assert_eq!(format!("{options} {options:?}"), format!("{other} {other:?}"));
}

/// The path of a unix socket may begin with slashes that are read as part of the scheme.
fn reads_back(options: &ConnectOptions) {
    if !matches!(options.address, Address::Unix(_)) {
        let shown = options.to_string();
        let again = shown.parse::<ConnectOptions>();
        let again = again.unwrap_or_else(|violation| panic!("{shown} is refused: {violation}"));
        assert_eq!(again.address, options.address);
    }
}
