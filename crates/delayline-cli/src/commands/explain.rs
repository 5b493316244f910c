//! `delayline explain`.

use std::process::ExitCode;

use delayline::admin::Explanation;
use delayline_json::{self as json, harmless_line};

use crate::args::{Explain, Target};
use crate::failure::{Failure, SOME_BAD};
use crate::input;
use crate::print::write;

pub(crate) async fn run(target: &Target, args: Explain) -> Result<ExitCode, Failure> {
    let ids = input::ids(args.ids)?;
    let queue = target.open_known().await?;
    let mut unknown = false;
    for id in &ids {
        let explanation = queue.explain(id.clone()).await?;
        unknown |= explanation == Explanation::Unknown;
        let line = if args.json {
            let value = json::explanation(id, &explanation);
            json::line(&value).map_err(|error| Failure::other("no JSON", &error))?
        } else {
            harmless_line(&format!("{id}: {explanation}")) + "\n"
        };
        write(&line)?;
    }
    Ok(if unknown { ExitCode::from(SOME_BAD) } else { ExitCode::SUCCESS })
}
