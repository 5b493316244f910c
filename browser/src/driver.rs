//! A Chromium without a window, through its WebDriver.

use std::env;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use fantoccini::ClientBuilder;
use futures_util::FutureExt as _;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::Page;

/// How the browser is to be.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The width of its window in pixels.
    pub width: u32,
    /// Whether its user prefers dark pages.
    pub dark: bool,
    /// Whether it runs scripts.
    pub scripts: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { width: 1280, dark: false, scripts: true }
    }
}

/// Starts a browser, does something with it, and ends it, also if that panics.
///
/// # Errors
///
/// There is no browser, or no driver for it; the message says what to install. Otherwise the error
/// of `work`.
pub async fn with_browser<T>(
    settings: Settings,
    work: impl AsyncFnOnce(&Page) -> Result<T>,
) -> Result<T> {
    let (_driver, address) = start_driver().await?;
    let capabilities = json!({
        "goog:chromeOptions": {
            // A root user, such as in a container, has no sandbox.
            "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage",
                     "--hide-scrollbars", "--lang=en-GB"],
        },
        "goog:loggingPrefs": { "browser": "ALL" },
        "unhandledPromptBehavior": "ignore",
    });
    let Value::Object(capabilities) = capabilities else { bail!("no object") };
    let client = ClientBuilder::new(HttpConnector::new())
        .capabilities(capabilities)
        .connect(&address)
        .await
        .context(MISSING)?;
    let page = Page::new(client.clone());
    let result = async {
        page.prepare(settings).await?;
        work(&page).await
    };
    let result = AssertUnwindSafe(result).catch_unwind().await;
    client.close().await.context("the browser does not end")?;
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Starts `$CHROMEDRIVER`, else `chromedriver` from the `PATH`, on a port that the kernel chooses.
async fn start_driver() -> Result<(Child, String)> {
    let program = env::var_os("CHROMEDRIVER").unwrap_or_else(|| "chromedriver".into());
    let mut driver = Command::new(program)
        .args(["--port=0", "--log-level=WARNING"])
        .env("TZ", "UTC")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context(MISSING)?;
    let output = driver.stdout.take().context("no output")?;
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await? {
        if let Some((_, port)) = line.split_once("successfully on port ") {
            let address = format!("http://127.0.0.1:{}", port.trim_end_matches('.'));
            // Who does not read may not be written to.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok((driver, address));
        }
    }
    bail!("chromedriver did not start")
}

const MISSING: &str = "Chromium and its WebDriver are needed: install Debian's packages `chromium` \
                       and `chromium-driver`, or name a driver by CHROMEDRIVER";
