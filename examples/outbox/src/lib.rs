#![doc = include_str!("../../../crates/delayline/docs/guides/outbox.md")]

use std::time::{Duration, UNIX_EPOCH};

use delayline::{Draft, Queue};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgListener, PgPool};
use sqlx::{PgConnection, Postgres, Transaction};
use tokio::time::{sleep, timeout};

/// Any error.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Messages that one batch sends.
pub const BATCH: i64 = 500;

/// How long the loop waits for a notification of PostgreSQL before it reads the table.
pub const POLL: Duration = Duration::from_secs(5);

/// The message: an order is to be closed unless it is paid.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloseOrder {
    /// The order's number.
    pub order: i64,
}

/// Creates the tables.
///
/// # Errors
///
/// Those of the database.
pub async fn create_tables(pool: &PgPool) -> Result<(), Error> {
    sqlx::raw_sql(include_str!("outbox.sql")).execute(pool).await?;
    Ok(())
}

/// Places an order and, in the same transaction, a message that closes it after `delay`.
///
/// # Errors
///
/// Those of the database. An order of this number may exist already.
pub async fn place(
    tx: &mut Transaction<'_, Postgres>,
    order: i64,
    delay: Duration,
) -> Result<(), Error> {
    sqlx::query("INSERT INTO orders (number) VALUES ($1)").bind(order).execute(&mut **tx).await?;
    add(tx, &CloseOrder { order }, delay).await
}

/// Adds a message to the outbox. It is sent if, and only if, the caller's transaction commits.
async fn add(tx: &mut PgConnection, message: &CloseOrder, delay: Duration) -> Result<(), Error> {
    let payload = serde_json::to_string(message)?;
    sqlx::query(
        "INSERT INTO outbox (payload, due)
         VALUES ($1::jsonb, now() + make_interval(secs => $2))",
    )
    .bind(payload)
    .bind(delay.as_secs_f64())
    .execute(&mut *tx)
    .await?;
    // PostgreSQL notifies listeners when the transaction commits, and not before.
    sqlx::query("NOTIFY outbox").execute(tx).await?;
    Ok(())
}

/// A row of the outbox: number, id, payload, and due time in milliseconds since 1970.
pub type Row = (i64, String, String, i64);

/// Locks the first rows that can be sent and that no other sender has locked.
///
/// # Errors
///
/// Those of the database.
pub async fn take(tx: &mut Transaction<'_, Postgres>) -> Result<Vec<Row>, Error> {
    let rows = sqlx::query_as(
        "SELECT seq, id::text, payload::text, ceil(extract(epoch FROM due) * 1000)::bigint
         FROM outbox WHERE refused IS NULL ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED",
    );
    Ok(rows.bind(BATCH).fetch_all(&mut **tx).await?)
}

/// Outcomes of the rows of a batch. A row that is in neither list stays for the next batch.
#[derive(Debug, Default)]
pub struct Batch {
    /// Numbers of the rows that the queue has now.
    pub sent: Vec<i64>,
    /// Numbers of the rows that no later batch can send either, each with the reason.
    pub refused: Vec<(i64, String)>,
    /// The first error of the other rows.
    pub error: Option<delayline::Error>,
}

/// Sends rows under their ids.
pub async fn send(queue: &Queue<CloseOrder>, rows: &[Row]) -> Batch {
    let (mut batch, mut numbers, mut drafts) = (Batch::default(), Vec::new(), Vec::new());
    for row in rows {
        match draft(queue, row) {
            Ok(draft) => {
                numbers.push(row.0);
                drafts.push(draft);
            }
            Err(error) => batch.refused.push((row.0, error.to_string())),
        }
    }
    for (number, result) in numbers.into_iter().zip(queue.send_many(drafts).await) {
        match result {
            Ok(it) if it.is_conflict() => {
                batch.refused.push((number, "its id is that of another message".to_owned()));
            }
            // A duplicate was sent by a process that died before it deleted the row.
            Ok(_) => batch.sent.push(number),
            Err(error) if error.is_invalid() => batch.refused.push((number, error.to_string())),
            Err(error) => batch.error = batch.error.or(Some(error)),
        }
    }
    batch
}

/// The message of a row.
fn draft(queue: &Queue<CloseOrder>, (_, id, payload, due): &Row) -> Result<Draft, Error> {
    let message: CloseOrder = serde_json::from_str(payload)?;
    let due = UNIX_EPOCH + Duration::from_millis(u64::try_from(*due)?);
    Ok(queue.message(&message).id(id.as_str()).due_at(due))
}

/// Deletes rows that were sent.
///
/// # Errors
///
/// Those of the database.
pub async fn delete(tx: &mut Transaction<'_, Postgres>, sent: &[i64]) -> Result<(), Error> {
    sqlx::query("DELETE FROM outbox WHERE seq = ANY($1)").bind(sent).execute(&mut **tx).await?;
    Ok(())
}

/// Marks rows that cannot be sent, so that later batches leave them out.
///
/// # Errors
///
/// Those of the database.
pub async fn refuse(
    tx: &mut Transaction<'_, Postgres>,
    refused: &[(i64, String)],
) -> Result<(), Error> {
    for (number, reason) in refused {
        eprintln!("row {number} of the outbox cannot be sent: its column refused has the reason");
        let query = sqlx::query("UPDATE outbox SET refused = $2 WHERE seq = $1");
        query.bind(number).bind(reason).execute(&mut **tx).await?;
    }
    Ok(())
}

/// Sends one batch. Returns the number of rows that were sent or refused.
///
/// # Errors
///
/// Those of the database and of the queue. Rows that were neither sent nor refused stay, and the
/// next batch repeats them.
pub async fn send_batch(pool: &PgPool, queue: &Queue<CloseOrder>) -> Result<usize, Error> {
    let mut tx = pool.begin().await?;
    let rows = take(&mut tx).await?;
    let batch = send(queue, &rows).await;
    delete(&mut tx, &batch.sent).await?;
    refuse(&mut tx, &batch.refused).await?;
    tx.commit().await?;
    match batch.error {
        Some(error) => Err(error.into()),
        None => Ok(batch.sent.len() + batch.refused.len()),
    }
}

/// Sends the rows of the outbox, forever. Several processes may run this.
///
/// # Errors
///
/// The listener cannot be started. Later errors are printed, and the loop continues.
pub async fn run(pool: PgPool, queue: Queue<CloseOrder>) -> Result<(), Error> {
    let mut commits = PgListener::connect_with(&pool).await?;
    commits.listen("outbox").await?;
    loop {
        match send_batch(&pool, &queue).await {
            Ok(0) => {}
            Ok(_) => continue,
            Err(error) => eprintln!("the outbox waits: {error}"),
        }
        // A notification is lost if the connection breaks, hence the time limit.
        if let Ok(Err(error)) = timeout(POLL, commits.recv()).await {
            eprintln!("no notifications: {error}");
            sleep(POLL).await;
        }
    }
}
