//! `delayline relay`.

use std::process::ExitCode;

use delayline::Error;
use delayline::relay::{Backlog, Destination, DestinationKey, GroupName};
use serde_json::json;

use crate::args::{Relay, Target};
use crate::failure::Failure;
use crate::print::write;
use crate::signals::Signals;

pub(crate) async fn run(target: &Target, args: Relay) -> Result<ExitCode, Failure> {
    let to = destination(&args)?;
    if target.is_directory() {
        let sentence = "a directory has no lists and streams that other programs can read";
        return Err(Failure::usage(sentence).hint("consume over HTTP: `delayline serve`"));
    }
    let queue = target.open().await?;
    if queue.stats().await.is_ok_and(|stats| stats.paused) {
        eprintln!("delayline: the queue is paused; `delayline resume` resumes deliveries");
    }
    let mut signals = Signals::listen()?;
    let relay = queue.relay(to).batch(args.batch).until_empty(args.until_empty);
    let relayed = relay.run_until(signals.next()).await?.relayed;
    write(&if args.json {
        format!("{}\n", json!({ "relayed": relayed }))
    } else {
        format!("relayed {relayed}\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

fn destination(args: &Relay) -> Result<Destination, Failure> {
    let key = |key: &str| DestinationKey::try_from(key).map_err(Error::from);
    if let Some(list) = &args.to_list {
        return Ok(Destination::List { key: key(list)?, max_len: args.max_len });
    }
    let key = key(args.to_stream.as_deref().unwrap_or_default())?;
    let backlog = match args.group.as_deref().zip(args.max_backlog) {
        None => None,
        Some((group, max)) => {
            let group = GroupName::try_from(group).map_err(Error::from)?;
            Some(Backlog::new(group, max))
        }
    };
    Ok(Destination::Stream { key, backlog })
}
