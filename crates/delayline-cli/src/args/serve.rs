//! `delayline serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;

use super::Post;

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

    /// File that lists the users, one per line: roles (viewer, operator, admin, worker), then
    /// `basic USER PASSWORD` or `bearer NAME TOKEN`
    #[arg(long, value_name = "FILE")]
    pub(crate) users: Option<PathBuf>,

    /// Roles of everyone on this machine, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "operator,worker")]
    #[arg(conflicts_with = "users")]
    pub(crate) role: Vec<Role>,

    /// Lowest role that sees payloads and header values
    #[arg(long, value_name = "ROLE", value_enum, default_value_t = Role::Operator)]
    pub(crate) contents_for: Role,

    /// Most connections: each consumer that waits for messages has one
    #[arg(long, value_name = "N", default_value_t = 4_096)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(16..=100_000))]
    pub(crate) connections: usize,

    /// Secret that makes claim ids unguessable: servers with the same one repeat each other's
    /// claims, also after a restart. Without it, each start makes a new one; safer in the
    /// environment variable
    #[arg(long, value_name = "SECRET", env = "DELAYLINE_CLAIM_SECRET", hide_env_values = true)]
    pub(crate) claim_secret: Option<String>,

    /// Queue whose schedules are shown and changed [default: schedules, if all queues are shown or
    /// with --scheduler]
    #[arg(long, value_name = "QUEUE")]
    pub(crate) schedules: Option<String>,

    /// Run a scheduler in this process, too: like `delayline schedule run`
    #[arg(long)]
    pub(crate) scheduler: bool,

    /// Deliver the messages of the named queues to this command: like `delayline work --exec`, but
    /// the shell reads it
    #[arg(long, value_name = "COMMAND", conflicts_with = "post")]
    pub(crate) exec: Option<String>,

    /// Messages to deliver at once: 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) concurrency: usize,

    #[command(flatten)]
    pub(crate) post: Post,
}

/// What a visitor may do.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Role {
    /// Look
    Viewer,
    /// Look, send, cancel, reschedule, redrive, pause, resume and limit; change schedules
    Operator,
    /// What an operator may do; delete dead letters, and repair
    Admin,
    /// Claim messages, settle and extend
    Worker,
}

impl From<Role> for delayline_web::Role {
    fn from(role: Role) -> Self {
        match role {
            Role::Viewer => Self::Viewer,
            Role::Operator => Self::Operator,
            Role::Admin => Self::Admin,
            Role::Worker => Self::Worker,
        }
    }
}

const HELP: &str = "\
Examples:
  delayline serve --all
  delayline serve orders texts
  delayline serve --listen 0.0.0.0:7380 --users /etc/delayline/users orders
  delayline serve --post https://hooks.example/orders orders
  delayline --url file:/var/lib/queues serve --all --scheduler
  curl -d '{\"id\":\"order-1\",\"payload\":7,\"delay\":\"30m\"}' -H 'content-type: application/json' \\
    http://127.0.0.1:7380/api/v1/queues/orders/messages

With --all, or without a name in the arguments, --queue or DELAYLINE_QUEUE, queues are found by
SCAN, at most once a minute: up to 200 of them, among the first 1,000,000 keys of each primary. The
page of all queues says when it was read, and whether there may be more. The user needs SCAN, which
the rules of `delayline acl` do not include.

Without --users only this machine can connect, and only under localhost, 127.0.0.1, [::1] and the
address of --listen, so that pages of other sites cannot reach it. A file of users:

  # roles                 kind    name        secret
  admin                   basic   anna        a long password
  viewer                  bearer  prometheus  a-long-random-token
  worker@orders,texts     bearer  billing     another-token
  operator+worker@orders  bearer  shop        a-third-token

Each name is there once, and only the owner of the file may change it. After @ are the only queues
that exist for the user. A worker claims and settles messages; it sees neither pages nor lists.

At most --connections are served, fewer if the limit of open files is low, and one address has half
of the free ones at most. Beyond them only /health and /metrics are answered. At the end, consumers
that wait are answered at once, without messages.

With --post or --exec this process also delivers, as `delayline work` does: with the same requests,
variables and answers. At the end, deliveries under way have 20 s; a second signal ends them. A
client that does not read its answer within 30 s is disconnected.

With --scheduler this process also sends the messages of schedules. One process owns a directory
(file:), so a directory can have schedules only in this way. A user who may operate on the queue of
schedules may send into every queue by a schedule.

Passwords and tokens travel with each request: on a network, put a proxy with TLS before it. Each
action of a visitor except sending is logged on stderr, and so are refused ones and failed logins,
which are slowed; sends are logged at DEBUG (-vv). Exit codes:
see `delayline --help`.";
