//! Delayline over [fred]: [`FredTransport`].
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use delayline_fred::FredTransport;
//!
//! let transport = FredTransport::connect(&"redis://localhost".parse()?).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! - `tls` (on by default): `rediss://`, with rustls and its `ring` provider.

mod connection;
mod driver;
mod failure;
mod transport;

pub use transport::FredTransport;
