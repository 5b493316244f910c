//! Whole-system runs that criterion cannot show: what a message costs a server in time and memory.

mod cost;
mod floor;
mod machine;
mod memory;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use serde_json::{Value, json};
use tokio::runtime::Builder;

use self::table::Table;

/// Measures what a message costs a private server, beside the plain commands that change the same
/// structures
#[derive(Parser)]
struct Args {
    /// What to measure; everything without it
    what: Vec<Subject>,

    /// How many messages to measure each figure with, more or less
    #[arg(long, default_value_t = 100_000)]
    messages: usize,

    /// Write the figures to this file as JSON, too
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Something to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// Processor time of the server for enqueue, claim and ack of a message
    Cost,
    /// Bytes in the server for a waiting and for a leased message
    Memory,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let circumstances = machine::circumstances()?;
    println!("{circumstances}\n");
    let wanted = |subject| args.what.is_empty() || args.what.contains(&subject);
    let mut tables: Vec<Table> = Vec::new();
    if wanted(Subject::Cost) {
        tables.push(runtime.block_on(cost::measure(args.messages))?);
        println!("{}\n", tables[tables.len() - 1]);
    }
    if wanted(Subject::Memory) {
        tables.push(runtime.block_on(memory::measure(args.messages))?);
        println!("{}\n", tables[tables.len() - 1]);
    }
    if let Some(path) = &args.json {
        let tables: Vec<Value> = tables.iter().map(Table::to_json).collect();
        let report = json!({ "circumstances": circumstances, "tables": tables });
        std::fs::write(path, format!("{report:#}\n"))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
