//! The directory of the queues, and its problems.

use axum::response::Response;
use delayline_admin::doctor::examine_directory;
use maud::html;

use super::findings::findings;
use super::layout::Frame;
use crate::context::Context;
use crate::failure::Failure;

/// The files of the directory, its room, its checkpoints and its syncs.
pub(super) async fn page(context: &Context) -> Result<Response, Failure> {
    let unknown = || {
        let why = "this dashboard was given neither the address of a server nor a directory";
        Failure::Unknown(why.to_owned())
    };
    let storage = context.storage().ok_or_else(unknown)?;
    if storage.directory_status().await?.is_none() {
        return Err(unknown());
    }
    let found = examine_directory(storage, None).await?;
    let content = html! {
        h1 { "Directory" }
        section {
            h2 { "Is it suitable?" }
            (findings(&found))
        }
    };
    let title = "Directory";
    Ok(Frame { context, title, queue: None, here: "server", live: None }.page(&content))
}
