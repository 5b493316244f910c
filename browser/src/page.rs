//! What a person does with a page, and sees on it.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fantoccini::elements::Element;
use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, Locator};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use url::{ParseError, Url};

use crate::Settings;

/// A browser's window.
#[derive(Debug)]
pub struct Page {
    client: Client,
}

impl Page {
    pub(crate) const fn new(client: Client) -> Self {
        Self { client }
    }

    pub(crate) async fn prepare(&self, settings: Settings) -> Result<()> {
        self.resize(settings.width).await?;
        self.prefer(settings.dark).await?;
        let off = json!({ "value": !settings.scripts });
        self.devtools("Emulation.setScriptExecutionDisabled", off).await?;
        Ok(())
    }

    /// Makes the window this wide.
    ///
    /// # Errors
    ///
    /// The browser does not do it.
    pub async fn resize(&self, width: u32) -> Result<()> {
        let size =
            json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        self.devtools("Emulation.setDeviceMetricsOverride", size).await?;
        Ok(())
    }

    /// Lets the user prefer dark pages, or light ones.
    ///
    /// # Errors
    ///
    /// The browser does not do it.
    pub async fn prefer(&self, dark: bool) -> Result<()> {
        let value = if dark { "dark" } else { "light" };
        let feature = json!({ "name": "prefers-color-scheme", "value": value });
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": [feature] })).await?;
        Ok(())
    }

    /// Goes to an address.
    ///
    /// # Errors
    ///
    /// There is none such, or the browser does not answer.
    pub async fn open(&self, address: &str) -> Result<()> {
        self.client.goto(address).await.with_context(|| format!("opening {address}"))
    }

    /// Clicks the link, button, summary or box with this accessible name.
    ///
    /// # Errors
    ///
    /// There is not exactly one.
    pub async fn click(&self, name: &str) -> Result<()> {
        let begin = Instant::now();
        loop {
            // Elements may go with the page before this one while they are looked at, or be
            // replaced by others when a page keeps up; some have no name then.
            let found = self.named(name).await;
            let is_late = begin.elapsed() > PATIENCE;
            match found.as_deref() {
                Ok([it]) => match it.click().await {
                    Err(error) if error.is_stale_element_reference() && !is_late => {}
                    clicked => return clicked.with_context(|| format!("clicking {name:?}")),
                },
                Ok([]) | Err(_) if !is_late => {}
                _ => bail!("{} links, buttons and boxes are called {name:?}", found?.len()),
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// What can be clicked, is seen, and has this name.
    async fn named(&self, name: &str) -> Result<Vec<Element>> {
        let mut found = Vec::new();
        let all = "a, button, summary, input[type=checkbox]";
        for element in self.client.find_all(Locator::Css(all)).await? {
            if self.name_of(&element).await? == name && element.is_displayed().await? {
                found.push(element);
            }
        }
        Ok(found)
    }

    /// Types into the field of this label.
    ///
    /// # Errors
    ///
    /// There is no such field.
    pub async fn type_into(&self, label: &str, text: &str) -> Result<()> {
        for field in
            self.client.find_all(Locator::Css("input:not([type]), input[type=number]")).await?
        {
            if self.name_of(&field).await? == label {
                return Ok(field.send_keys(text).await?);
            }
        }
        bail!("no field is called {label:?}")
    }

    /// The name by which assistive technology announces an element.
    async fn name_of(&self, element: &Element) -> Result<String> {
        let path = format!("element/{}/computedlabel", element.element_id().as_ref());
        let name = self.issue(Method::GET, path, None).await?;
        // Some versions of Chromium keep the space between a label and its field.
        Ok(name.as_str().unwrap_or_default().trim().to_owned())
    }

    /// What the page says, as far as it is visible.
    ///
    /// # Errors
    ///
    /// The browser does not answer.
    pub async fn text(&self) -> Result<String> {
        Ok(self.client.find(Locator::Css("body")).await?.text().await?)
    }

    /// Waits until the page says something.
    ///
    /// # Errors
    ///
    /// It does not within half a minute; the message has its text.
    pub async fn says(&self, text: &str) -> Result<()> {
        self.until(text, true).await
    }

    /// Waits until the page no longer says something.
    ///
    /// # Errors
    ///
    /// It still does after half a minute.
    pub async fn says_no_more(&self, text: &str) -> Result<()> {
        self.until(text, false).await
    }

    async fn until(&self, text: &str, there: bool) -> Result<()> {
        let begin = Instant::now();
        loop {
            // Parts of the page may be replaced while they are read.
            let now = self.text().await;
            if now.as_ref().is_ok_and(|now| now.contains(text) == there) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                let not = if there { "does not say" } else { "still says" };
                bail!("the page {not} {text:?}: {}", now?);
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// The address of the page.
    ///
    /// # Errors
    ///
    /// The browser does not answer.
    pub async fn address(&self) -> Result<Url> {
        Ok(self.client.current_url().await?)
    }

    /// Runs a script as the body of a function, and returns its value.
    ///
    /// # Errors
    ///
    /// It throws something.
    pub async fn run(&self, script: &str) -> Result<Value> {
        Ok(self.client.execute(script, Vec::new()).await?)
    }

    /// Runs a script that calls its last argument with a value when it is done.
    ///
    /// # Errors
    ///
    /// It throws something, or takes too long.
    pub async fn run_until_done(&self, script: &str) -> Result<Value> {
        Ok(self.client.execute_async(script, Vec::new()).await?)
    }

    /// The faults that the browser has reported since the last call: errors of scripts, what the
    /// content security policy has stopped, and requests that failed.
    ///
    /// # Errors
    ///
    /// The browser does not answer.
    pub async fn faults(&self) -> Result<Vec<String>> {
        let body = json!({ "type": "browser" });
        let entries = self.issue(Method::POST, "se/log".to_owned(), Some(body)).await?;
        let entries = entries.as_array().context("no list of entries")?.iter();
        let bad = entries.filter(|entry| entry["level"] == "SEVERE" || entry["level"] == "WARNING");
        Ok(bad.map(|entry| entry["message"].to_string()).collect())
    }

    /// The page as PNG, of this width, up to a height.
    ///
    /// # Errors
    ///
    /// The browser does not do it.
    pub async fn screenshot(&self, width: u32, most: u64) -> Result<Vec<u8>> {
        let height = self.run("return document.documentElement.scrollHeight").await?;
        let height = height.as_u64().context("no height")?.min(most);
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
        let whole = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let answer = self.devtools("Page.captureScreenshot", whole).await?;
        Ok(STANDARD.decode(answer["data"].as_str().context("no picture")?)?)
    }

    /// A command of Chromium's own.
    async fn devtools(&self, command: &str, params: Value) -> Result<Value> {
        let body = json!({ "cmd": command, "params": params });
        let path = "goog/cdp/execute".to_owned();
        self.issue(Method::POST, path, Some(body)).await.with_context(|| command.to_owned())
    }

    async fn issue(&self, method: Method, path: String, body: Option<Value>) -> Result<Value> {
        Ok(self.client.issue_cmd(Raw { method, path, body }).await?)
    }
}

/// A command that the client does not know.
#[derive(Debug)]
struct Raw {
    method: Method,
    path: String,
    body: Option<Value>,
}

impl WebDriverCompatibleCommand for Raw {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (self.method.clone(), self.body.as_ref().map(Value::to_string))
    }
}

/// How long a page may take to say something, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
