//! `delayline serve`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use delayline::Durability;
use ipnet::IpNet;

use super::Post;
use super::work::concurrency;

/// Serve a dashboard, an HTTP API and metrics
///
/// Runs until Ctrl-C or SIGTERM. Programs in other languages use the API, which api/v1/openapi.json
/// describes. Prometheus reads /metrics. /health answers 200 if every queue can be counted, and
/// /ready if at least one can, or if there are none.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Serve {
    /// Queues to serve, in addition to that of --queue
    #[arg(value_name = "QUEUE")]
    pub(crate) queues: Vec<String>,

    /// Show all queues of the server, which is the default if none is named
    #[arg(long)]
    pub(crate) all: bool,

    /// Address and port to listen on; port 0 chooses a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7380")]
    pub(crate) listen: SocketAddr,

    /// Also answer the AWS SDKs as Amazon SQS does, at this address
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1)]
    #[arg(default_missing_value = "127.0.0.1:9324")]
    pub(crate) sqs: Option<SocketAddr>,

    /// Limits of SQS for --sqs, such as delays of at most 15 minutes
    #[arg(long, requires = "sqs")]
    pub(crate) sqs_strict: bool,

    /// Serve nothing else than --sqs: no dashboard, no API and no metrics
    #[arg(long, requires = "sqs")]
    #[arg(conflicts_with_all = ["exec", "post", "scheduler", "schedules"])]
    pub(crate) sqs_only: bool,

    /// How the URLs of queues begin for clients behind a proxy, such as https://sqs.example
    #[arg(long, value_name = "URL", requires = "sqs")]
    pub(crate) sqs_url: Option<String>,

    /// What confirms a request to --sqs before it is answered: only the server (none), also N
    /// replicas (replicas=N), or the server's disk (disk)
    #[arg(long, value_name = "WHERE", requires = "sqs", default_value_t)]
    pub(crate) sqs_durability: Durability,

    /// File that lists the users, one per line: roles (viewer, operator, admin, worker), then
    /// `basic USER PASSWORD` or `bearer NAME TOKEN`
    #[arg(long, value_name = "FILE")]
    pub(crate) users: Option<PathBuf>,

    /// Proxy, or network of proxies such as 10.0.0.0/8, whose X-Forwarded-For names the clients, so
    /// that wrong passwords of one do not lock out the others; repeatable
    #[arg(long, value_name = "ADDRESS", requires = "users", value_parser = network)]
    pub(crate) trusted_proxy: Vec<IpNet>,

    /// Roles of everyone on this machine, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "operator,worker")]
    #[arg(conflicts_with = "users")]
    pub(crate) role: Vec<Role>,

    /// Lowest role that sees payloads and header values
    #[arg(long, value_name = "ROLE", value_enum, default_value_t = Role::Operator)]
    pub(crate) contents_for: Role,

    /// Maximum number of connections, and as many for --sqs; each waiting consumer uses one
    #[arg(long, value_name = "N", default_value_t = 4_096)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(16..=100_000))]
    pub(crate) connections: usize,

    /// Secret that makes claim ids unguessable, of at least 16 bytes; safer in the environment
    /// variable. With the same secret, a claim can be repeated at another server or after a
    /// restart. Default: a new secret at each start
    #[arg(long, value_name = "SECRET", env = "DELAYLINE_CLAIM_SECRET", hide_env_values = true)]
    pub(crate) claim_secret: Option<String>,

    /// Queue that holds the schedules to show [default: schedules, if all queues are shown or with
    /// --scheduler]
    #[arg(long, value_name = "QUEUE")]
    pub(crate) schedules: Option<String>,

    /// Also run a scheduler in this process, like `delayline schedule run`
    #[arg(long)]
    pub(crate) scheduler: bool,

    /// Deliver the messages of the named queues to this shell command, like `delayline work --exec`
    #[arg(long, value_name = "COMMAND", group = "action", conflicts_with = "post")]
    pub(crate) exec: Option<String>,

    /// Messages to deliver at once: 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = concurrency())]
    #[arg(requires = "action")]
    pub(crate) concurrency: usize,

    #[command(flatten)]
    pub(crate) post: Post,
}

/// The permissions of a visitor.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Role {
    /// See queues and messages, without payloads and header values
    Viewer,
    /// See contents and servers; send, cancel, reschedule, redrive, pause, resume and limit; change
    /// schedules
    Operator,
    /// Everything that an operator may do; delete dead letters, and repair
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

/// Reads a network, such as `10.0.0.0/8`, or a single address.
fn network(text: &str) -> Result<IpNet, String> {
    let neither = || "it is neither an address nor a network such as 10.0.0.0/8".to_owned();
    // The network's own parser reads 010 as 10.
    let address: IpAddr =
        text.split('/').next().unwrap_or_default().parse().map_err(|_| neither())?;
    if !text.contains('/') {
        return Ok(address.to_canonical().into());
    }
    let network: IpNet = text.parse().map_err(|_| neither())?;
    if address != network.trunc().addr() {
        return Err(format!("it is no network, but an address in {}", network.trunc()));
    }
    // Clients are compared in their form of IPv4, so it would match none.
    if address != address.to_canonical() {
        return Err("write a network of IPv4 in its own form, such as 10.0.0.0/8".to_owned());
    }
    Ok(network)
}

const HELP: &str = "\
Examples:
  delayline serve --all
  delayline serve orders texts
  delayline serve --listen 0.0.0.0:7380 --users /etc/delayline/users orders
  delayline serve --post https://hooks.example/orders orders
  delayline --url file:/var/lib/queues serve --all --scheduler
  delayline serve --all --sqs
  curl -d '{\"id\":\"order-1\",\"payload\":7,\"delay\":\"30m\"}' -H 'content-type: application/json' \\
    http://127.0.0.1:7380/api/v1/queues/orders/messages

With --all, or if neither the arguments, --queue nor DELAYLINE_QUEUE name a queue, it finds up to
1,000 queues by SCAN, at most once a minute, among the first 1,000,000 keys of each primary. The
page of all queues says when they were read, and whether some may be missing. The user needs SCAN,
which the rules of `delayline acl` do not include.

Without --users only this machine can connect, and only under localhost, 127.0.0.1, [::1], the
address of --listen and the host of --sqs-url, so that pages of other sites cannot reach it. A file
of users:

  # roles                 kind    name        secret
  admin                   basic   anna        a long password
  viewer                  bearer  prometheus  a-long-random-token
  worker@orders,texts     bearer  billing     another-token
  operator+worker@orders  bearer  shop        a-third-token

Each name must be unique. No other user may have access to the file, and its group must not be able
to change it: chmod 600. The queues after @ are the only ones that the user sees; eu/* stands for
all queues that begin with eu/. A worker claims and settles messages; it sees neither pages nor
lists.

At most --connections are served, or fewer if the limit of open files is low. One address gets at
most half of the free ones. When all are taken, only /health, /ready and /metrics are answered. At
the end, waiting consumers are answered at once, without messages.

With --post or --exec, this process also delivers messages, with the same requests, variables and
answers as `delayline work`. At the end, running deliveries get 20 s; a second signal ends them. A
client that does not read its answer within 30 s is disconnected.

With --scheduler, this process also sends the messages of schedules. One process owns a directory
(file:), so this is the only way to run its schedules. An operator of the queue of schedules can
send messages to any queue, through a schedule.

With --sqs, programs use the queues through the AWS SDK of their language: set its endpoint to the
second address that is printed. The access key is the name of a user, and the secret is the user's
password or token. Sending and changing queues needs the role operator, receiving the role worker.
If queues are named, only these exist, and they need not be created. Attributes of queues are kept
in the queue sqs-settings, and move tasks in sqs-settings-moves. Without --sqs-strict, delays may be
as long as those of the library.

Passwords and tokens are sent with each request, except to --sqs: on a network, put a proxy with TLS
in front, and name its address with --trusted-proxy. Each action of an operator is logged on stderr,
as are refused requests and failed logins, which are slowed down; sends, claims and settlements are
logged at DEBUG (-vv).
For exit codes, see `delayline --help`.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_as_written() {
        for (text, expected) in [
            ("10.0.0.0/8", Ok("10.0.0.0/8")),
            ("10.1.2.3", Ok("10.1.2.3/32")),
            ("::ffff:10.1.2.3", Ok("10.1.2.3/32")),
            ("2001:db8::/32", Ok("2001:db8::/32")),
            ("0.0.0.0/0", Ok("0.0.0.0/0")),
            ("10.1.2.3/8", Err("an address in 10.0.0.0/8")),
            ("::ffff:10.0.0.0/104", Err("in its own form")),
            ("010.0.0.0/8", Err("neither")),
            ("10.0.0.0/33", Err("neither")),
            ("10.0.0/8", Err("neither")),
            ("/", Err("neither")),
        ] {
            match (network(text), expected) {
                (Ok(read), Ok(expected)) => assert_eq!(read.to_string(), expected),
                (Err(why), Err(words)) => assert!(why.contains(words), "{text}: {why}"),
                (read, _) => panic!("{text}: {read:?}"),
            }
        }
    }
}
