//! redis-rs and fred compared: speed, faults, and build times.

mod builds;
mod faults;
mod sheet;
mod speed;
mod topologies;

use std::fs;
use std::path::Path;

use anyhow::Result;
use indicatif::ProgressBar;

use crate::table::Table;

/// Measures all of it and writes the page `which-driver.md` and its plot to a directory.
pub(crate) async fn write_page(
    directory: &Path,
    circumstances: &str,
    messages: usize,
    progress: &ProgressBar,
) -> Result<()> {
    let [speed, ratios] = speed::measure(messages, progress).await?;
    progress.suspend(|| println!("{speed}\n\n{ratios}\n"));
    let client = of_client(messages, progress).await?;
    progress.suspend(|| println!("{client}\n"));
    let faults = faults::measure(progress).await?;
    progress.suspend(|| println!("{}", faults.to_markdown()));
    let topologies = topologies::measure(messages, progress).await?;
    progress.suspend(|| println!("{}", topologies.to_markdown()));
    let builds = builds::measure(progress)?;
    progress.suspend(|| println!("{}", builds.to_markdown()));
    let tables = [speed, ratios, client];
    crate::save_figures(directory, circumstances, &tables)?;
    let mut page = format!("{HEAD}```text\n{circumstances}\n```\n\n");
    page += &tables.map(|table| table.to_markdown() + "\n").concat();
    page += &[topologies, faults, builds].map(|sheet| sheet.to_markdown()).concat();
    Ok(fs::write(directory.join("which-driver.md"), page.trim_end().to_owned() + "\n")?)
}

/// What a queue behind sentinels and in a cluster costs, as a section of a page.
pub(crate) async fn topologies(messages: usize, progress: &ProgressBar) -> Result<String> {
    Ok(topologies::measure(messages, progress).await?.to_markdown())
}

/// Client cost per message.
async fn of_client(messages: usize, progress: &ProgressBar) -> Result<Table> {
    let progress = progress.clone();
    // It has its own runtime.
    tokio::task::spawn_blocking(move || speed::of_client(messages, &progress)).await?
}

const HEAD: &str = "\
# Which driver?

A queue behaves the same over redis-rs and over fred: the [suite](../proof.md) compares both with one model, over RESP2
and RESP3. So **use the client that your program already uses**. If it uses neither, use redis-rs, the default: it is
more actively maintained and has fewer dependencies. One build can include both drivers;
`Connect::client(RedisClient::Fred)` chooses at run time. The figures below have the details.

`cargo xtask bench drivers --save docs/drivers` writes this page, and its figures as
[figures.json](figures.json). This run:

";
