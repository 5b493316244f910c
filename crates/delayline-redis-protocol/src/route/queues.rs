//! The names of all queues on the servers: for operators.

use std::collections::BTreeSet;

use delayline_core::{Error, ErrorKind, QueueName};

use crate::driver_transport::wrong_mode;
use crate::info::field;
use crate::keys::{CONTROL, KEY_PREFIX};
use crate::link::Link;
use crate::link::driver::Driver;
use crate::{ConnectOptions, Topology, Value};

use super::directory::{Directory, no_answer, refusal, words};
use super::fleet::Fleet;
use super::map::Map;
use super::survey::{Place, cluster, watched};

/// See [`DriverTransport::queues`](crate::DriverTransport::queues).
pub(crate) async fn queues<D: Driver>(options: &ConnectOptions) -> Result<Vec<QueueName>, Error> {
    let mut found = BTreeSet::new();
    if let Topology::Single(address) = &options.topology {
        let link = Link::<D>::of(address, options, None)?;
        link.connect().await?;
        // A user who may not ask is told below what else is missing.
        if let Ok(info) = link.info().await
            && let Some(error) = field(&info, "redis_mode").and_then(wrong_mode)
        {
            return Err(error);
        }
        scan(&link, &mut found).await?;
        return Ok(found.into_iter().collect());
    }
    let (directory, is_encrypted) = super::directory::<D>(options)?;
    let fleet = Fleet::new(options.clone(), is_encrypted, false);
    let places = match directory {
        Directory::Cluster { seeds } => cluster::<D>(&fleet, seeds).await?,
        Directory::Sentinel { sentinels, service } => watched(sentinels, &service).await?.0,
    };
    for Place { name, .. } in places.iter().filter(|place| is_primary(place)) {
        let unknown = || Error::with_detail(ErrorKind::Unreachable, "its address is unknown");
        let node = fleet.node::<D>(name.as_ref().ok_or_else(unknown)?, &Map::default())?;
        node.link.connect().await?;
        scan(&node.link, &mut found).await?;
    }
    Ok(found.into_iter().collect())
}

/// Whether others call it the primary, and it does not fail: then another one takes over.
fn is_primary(place: &Place) -> bool {
    let has = |flag: &str| place.flags.iter().any(|it| it == flag);
    has("master") && !["fail", "noaddr", "s_down", "o_down"].into_iter().any(has)
}

async fn scan<D: Driver>(link: &Link<D>, found: &mut BTreeSet<QueueName>) -> Result<(), Error> {
    let (before, after) = (format!("{KEY_PREFIX}{{"), format!("}}:{CONTROL}"));
    let pattern = format!("{before}*{after}");
    let mut cursor = "0".to_owned();
    loop {
        let args = words(&[&cursor, "MATCH", &pattern, "COUNT", KEYS_A_STEP]);
        let reply = link.request("SCAN", args).await.map_err(refusal)?;
        let Value::Array(parts) = reply else { return Err(no_answer("SCAN")) };
        let [Value::Bytes(next), Value::Array(keys)] = &parts[..] else {
            return Err(no_answer("SCAN"));
        };
        for key in keys {
            let Value::Bytes(key) = key else { return Err(no_answer("SCAN")) };
            let name = std::str::from_utf8(key).ok();
            let name = name.and_then(|key| key.strip_prefix(&before)?.strip_suffix(&after));
            // Keys of others may look similar.
            found.extend(name.and_then(|name| QueueName::new(name).ok()));
        }
        let next = String::from_utf8_lossy(next).into_owned();
        if next == "0" {
            return Ok(());
        }
        if next == cursor {
            return Err(no_answer("SCAN"));
        }
        cursor = next;
    }
}

/// Enough to be quick, and few enough not to hold up a server.
const KEYS_A_STEP: &str = "1000";
