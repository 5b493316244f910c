//! The dashboard in Chromium, as a person uses it. `cargo xtask web browser` runs the journeys in
//! `tests/`. `cargo xtask web screenshots` takes the pictures of the documentation.

mod driver;
mod page;
mod samples;
mod site;

pub use driver::{Settings, with_browser};
pub use page::Page;
pub use samples::samples;
pub use site::Site;
