//! What tutorials do with plain Redis commands, written as one would for speed: few round trips, one
//! connection for all tasks where that is possible.

mod blocking;
mod pop;
mod strings;
mod zset;

use anyhow::Result;
use delayline_test_server::Server;
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, Client};

pub(crate) use self::blocking::Blocking;
pub(crate) use self::pop::Pop;
pub(crate) use self::strings::Strings;
pub(crate) use self::zset::Zset;
use crate::load::{bulks, client_millis, in_tasks, numbered_payload};

const QUEUE: &str = "bench";

async fn connect(server: &Server) -> Result<MultiplexedConnection> {
    Ok(Client::open(server.url())?.get_multiplexed_async_connection().await?)
}

/// `ZADD` of each payload, due now by this process's clock.
async fn add(connection: &MultiplexedConnection, messages: usize) -> Result<()> {
    let connection = connection.clone();
    in_tasks(messages, move |number| {
        let mut connection = connection.clone();
        async move {
            let payload = numbered_payload(number);
            let added: usize = connection.zadd(QUEUE, payload, client_millis()).await?;
            anyhow::ensure!(added == 1, "a payload stands in the set already");
            Ok(())
        }
    })
    .await
}

/// `ZADD` with many members.
async fn add_in_bulk(connection: &mut MultiplexedConnection, messages: usize) -> Result<()> {
    for (first, length) in bulks(messages) {
        let now = client_millis();
        let items: Vec<_> =
            (first..first + length).map(|number| (now, numbered_payload(number))).collect();
        let added: usize = connection.zadd_multiple(QUEUE, &items).await?;
        anyhow::ensure!(added == length, "{added} of {length} were added");
    }
    Ok(())
}
