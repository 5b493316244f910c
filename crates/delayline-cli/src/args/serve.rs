//! `delayline serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;

/// Serve a dashboard, an HTTP API and metrics
///
/// Until Ctrl-C or SIGTERM. Programs in other languages send messages by the API, which
/// api/v1/openapi.json describes; Prometheus reads /metrics; /health answers 200 if all is well.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Serve {
    /// The queues, in addition to that of --queue
    #[arg(value_name = "QUEUE")]
    pub(crate) queues: Vec<String>,

    /// Show all queues of the server, which is the default if none is named
    #[arg(long)]
    pub(crate) all: bool,

    /// Address and port; with port 0, some free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7380")]
    pub(crate) listen: SocketAddr,

    /// File that lists the users, one per line: a role (viewer, operator or admin), then
    /// `basic USER PASSWORD` or `bearer NAME TOKEN`
    #[arg(long, value_name = "FILE")]
    pub(crate) users: Option<PathBuf>,

    /// What everyone on this machine may do
    #[arg(long, value_enum, default_value_t = Role::Operator, conflicts_with = "users")]
    pub(crate) role: Role,

    /// Lowest role that sees payloads and header values
    #[arg(long, value_name = "ROLE", value_enum, default_value_t = Role::Operator)]
    pub(crate) contents_for: Role,
}

/// What a visitor may do; each role may do what the ones before it may.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Role {
    /// Look
    Viewer,
    /// Send, cancel, reschedule, redrive, pause and resume
    Operator,
    /// Delete dead letters, and repair
    Admin,
}

impl From<Role> for delayline_web::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Viewer => Self::Viewer,
            Role::Operator => Self::Operator,
            Role::Admin => Self::Admin,
        }
    }
}

const HELP: &str = "\
Examples:
  delayline serve --all
  delayline serve orders texts
  delayline serve --listen 0.0.0.0:7380 --users /etc/delayline/users orders
  curl -d '{\"id\":\"order-1\",\"payload\":7,\"delay\":\"30m\"}' -H 'content-type: application/json' \\
    http://127.0.0.1:7380/api/v1/queues/orders/messages

With --all, or without a name in the arguments, --queue or DELAYLINE_QUEUE, queues are found by SCAN,
at most once a minute: up to 200 of them, among the first 1,000,000 keys of each primary. The page of all queues
says when it was read, and whether there may be more. The user needs SCAN, which the rules of
`delayline acl` do not include.

Without --users only this machine can connect, and only under localhost, 127.0.0.1, [::1] and the
address of --listen, so that pages of other sites cannot reach it. A file of users:

  # role    kind    name        secret
  admin     basic   anna        a long password
  viewer    bearer  prometheus  a-long-random-token

Each name is there once, and only the owner of the file may change it.

At most 1,024 connections are served, and one address has half of the free ones at most. Beyond them
only /health and /metrics are answered. A client that does not read its answer within 30 s is
disconnected.

Passwords and tokens travel with each request: on a network, put a proxy with TLS before it. Each
action of a visitor except sending is logged on stderr, and so are refused ones and failed logins,
which are slowed; sends are logged at DEBUG (-vv). Exit codes:
see `delayline --help`.";
