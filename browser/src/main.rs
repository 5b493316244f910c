//! Takes the pictures of the dashboard that the documents show.

use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use delayline_browser::{Settings, Site, samples, with_browser};
use delayline_web::Role;

#[tokio::main]
async fn main() -> Result<()> {
    let folder = env::args_os().nth(1).map(PathBuf::from).context("name a directory")?;
    fs::create_dir_all(&folder)?;
    let site = Site::serve(&samples().await?, Role::Admin).await?;
    with_browser(Settings::default(), async |page| {
        page.resize(1_440).await?;
        for (name, address) in [("queues", "queues"), ("queue", "queue?queue=orders")] {
            page.open(&site.at(address)).await?;
            let file = folder.join(format!("{name}-light-wide.png"));
            fs::write(&file, page.screenshot(1_440, 900).await?)
                .with_context(|| file.display().to_string())?;
        }
        Ok(())
    })
    .await
}
