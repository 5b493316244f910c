//! A driver without servers: a function returns the reply to each command.

use std::collections::HashMap;
use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use delayline_core::{Error, ErrorKind};
use delayline_redis_protocol::{
    Address, CallError, ConnectOptions, Connection, Driver, DriverTransport, Value,
};
use tokio::time::{Instant, sleep};

/// The reaction of a server to a command.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// It returns a value.
    Value(Value),
    /// It refuses, with this line.
    Line(String),
    /// It returns a value after this time.
    #[allow(dead_code, reason = "not every program with fakes needs slow ones")]
    After(Duration, Value),
    /// The connection ends instead.
    #[allow(dead_code, reason = "not every program with fakes needs broken ones")]
    Lost,
    /// It is silent.
    #[allow(dead_code, reason = "not every program with fakes needs silent ones")]
    Never,
}

/// A command that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    #[allow(dead_code, reason = "not every program with fakes looks at times")]
    pub(crate) at: Instant,
    /// `HOST:PORT`.
    #[allow(dead_code, reason = "not every program with fakes looks at all commands")]
    pub(crate) server: String,
    /// The command with its arguments, as text.
    #[allow(dead_code, reason = "not every program with fakes looks at all commands")]
    pub(crate) command: String,
}

type Answers = dyn Fn(&str, &str) -> Answer + Send + Sync;

/// Servers that reply by a function of `HOST:PORT` and the command with its arguments.
pub(crate) struct World {
    answers: Box<Answers>,
    sent: Mutex<Vec<Sent>>,
    pings: AtomicUsize,
    pings_are_lost: AtomicBool,
}

/// The worlds by user name, because a driver is made from its address and options alone.
static WORLDS: Mutex<Option<HashMap<String, Arc<World>>>> = Mutex::new(None);

impl World {
    pub(crate) fn new(answers: impl Fn(&str, &str) -> Answer + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            answers: Box::new(answers),
            sent: Mutex::default(),
            pings: AtomicUsize::new(0),
            pings_are_lost: AtomicBool::new(false),
        })
    }

    /// Connects to the world at a URL without a user name.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        url: &str,
    ) -> Result<DriverTransport<Fake>, Error> {
        let mut options: ConnectOptions = url.parse()?;
        let name = format!("{:p}", Arc::as_ptr(self));
        {
            let mut worlds = WORLDS.lock().unwrap_or_else(PoisonError::into_inner);
            worlds.get_or_insert_default().insert(name.clone(), Arc::clone(self));
        }
        options.username = Some(name.clone());
        options.sentinel_username = Some(name);
        DriverTransport::connect(&options).await
    }

    /// Returns the number of pings so far.
    #[allow(dead_code, reason = "not every program with fakes is about pings")]
    pub(crate) fn pings(&self) -> usize {
        self.pings.load(Ordering::Relaxed)
    }

    /// Sets whether pings are answered from now on. At first they are.
    #[allow(dead_code, reason = "not every program with fakes is about pings")]
    pub(crate) fn answer_pings(&self, answer: bool) {
        self.pings_are_lost.store(!answer, Ordering::Relaxed);
    }

    /// Returns the commands so far, except for pings.
    #[allow(dead_code, reason = "not every program with fakes looks at all commands")]
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

pub(crate) struct Fake {
    server: String,
    world: Arc<World>,
}

#[async_trait]
impl Driver for Fake {
    type Connection = Self;

    fn new(address: &Address, options: &ConnectOptions) -> Result<Self, Error> {
        let server = address.to_string();
        let server = server.split_once("://").map_or(server.as_str(), |(_, server)| server);
        let worlds = WORLDS.lock().unwrap_or_else(PoisonError::into_inner);
        let name = options.username.clone().unwrap_or_default();
        let world = worlds.as_ref().and_then(|worlds| worlds.get(&name));
        let world = Arc::clone(world.expect("the user of a world"));
        Ok(Self { server: server.to_owned(), world })
    }

    fn database(&self) -> u32 {
        0
    }

    async fn connect(&self) -> Result<Self, Error> {
        if let Answer::Never = (self.world.answers)(&self.server, "connect") {
            return pending().await;
        }
        Ok(Self { server: self.server.clone(), world: Arc::clone(&self.world) })
    }
}

#[async_trait]
impl Connection for Fake {
    async fn request(&self, command: &'static str, args: Vec<Bytes>) -> Result<Value, CallError> {
        if command == "PING" {
            self.world.pings.fetch_add(1, Ordering::Relaxed);
            if self.world.pings_are_lost.load(Ordering::Relaxed) {
                return pending().await;
            }
            return Ok(Value::Bytes("PONG".into()));
        }
        let args = args.iter().map(|arg| String::from_utf8_lossy(arg));
        let words: Vec<_> = std::iter::once(command.into()).chain(args).collect();
        let command = words.join(" ");
        let answer = (self.world.answers)(&self.server, &command);
        let sent = Sent { at: Instant::now(), server: self.server.clone(), command };
        self.world.sent.lock().unwrap_or_else(PoisonError::into_inner).push(sent);
        match answer {
            Answer::Value(value) => Ok(value),
            Answer::Line(line) => Err(CallError::Reply(line)),
            Answer::After(time, value) => {
                sleep(time).await;
                Ok(value)
            }
            Answer::Lost => Err(Error::new(ErrorKind::ConnectionLost).into()),
            Answer::Never => pending().await,
        }
    }

    fn is_closed(&self) -> bool {
        false
    }
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.server)
    }
}
