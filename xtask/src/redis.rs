//! `cargo xtask redis`.

use std::io::{Write, stdin, stdout};
use std::thread;

use anyhow::{Context, Result, bail};
use delayline_test_server::Server;

/// Runs a private server until Enter or Ctrl-C.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    let mut builder = Server::builder();
    builder = if options.tls { builder.tls() } else { builder.tcp() };
    if let Some(password) = &options.password {
        builder = builder.password(password);
    }
    let server = builder.try_start().context("could not start a server")?;
    println!("{}", options.describe(&server));
    print!("Enter or Ctrl-C ends it. ");
    stdout().flush()?;
    if stdin().read_line(&mut String::new())? == 0 {
        // Stdin is closed: only a signal can end it. The server ends with this process.
        loop {
            thread::park();
        }
    }
    Ok(())
}

#[derive(Debug, Default, PartialEq)]
struct Options {
    tls: bool,
    password: Option<String>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--tls" => options.tls = true,
                "--password" => {
                    options.password =
                        Some(args.next().context("--password needs a value")?.clone());
                }
                unknown => bail!("`redis` has no option {unknown:?}"),
            }
        }
        Ok(options)
    }

    /// Where the server is, and how to get a prompt there.
    fn describe(&self, server: &Server) -> String {
        let url = match &self.password {
            Some(password) => server.url_with_login("", password),
            None => server.url(),
        };
        let socket = server.unix_path();
        let login = match &self.password {
            Some(password) => {
                format!(" --no-auth-warning -a '{}'", password.replace('\'', r"'\''"))
            }
            None => String::new(),
        };
        let mut lines = vec![
            format!("url     {url}"),
            format!("socket  {}", socket.display()),
            format!("prompt  redis-cli -s {}{login}", socket.display()),
        ];
        if self.tls {
            lines.push(format!("ca      {}", server.ca_path().display()));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::Options;

    fn parse(args: &[&str]) -> anyhow::Result<Options> {
        Options::parse(&args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read() {
        let expected = Options { tls: true, password: Some("x".to_owned()) };
        assert_eq!(parse(&["--password", "x", "--tls"]).unwrap(), expected);
        assert_eq!(parse(&[]).unwrap(), Options::default());
        parse(&["--password"]).unwrap_err();
        parse(&["--port", "1"]).unwrap_err();
    }
}
