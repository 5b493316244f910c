//! Development commands: `cargo xtask`.

mod alone;
mod api;
mod archive;
mod bench;
mod browser;
mod ci;
#[cfg(test)]
mod circles;
mod clients;
mod consumers;
mod cost;
mod deny;
mod dependencies;
mod deployment;
mod fix;
mod instructions;
mod inventory;
mod links;
mod lua;
mod lua_mutants;
mod monitoring;
mod msrv;
mod mutants;
mod notes;
mod package;
mod packages;
mod peers;
mod programs;
mod prose;
mod prove;
mod publish;
mod redis;
mod redis_server;
mod released;
mod servers;
mod site;
mod test;
mod tidy;
mod wheel;
mod workspace;
mod zoo;

use std::env;
use std::process::ExitCode;

use anyhow::{Result, bail};
use xshell::Shell;

fn main() -> ExitCode {
    match workspace::leave_cargo().and_then(|()| run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without a backtrace: what failed is said, and where is in the tool that was called.
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let shell = Shell::new()?;
    shell.change_dir(workspace::root());
    let args: Vec<String> = env::args().skip(1).collect();
    let Some((command, args)) = args.split_first() else {
        println!("{HELP}");
        return Ok(());
    };
    match command.as_str() {
        "test" => test::run(&shell, args).map(drop),
        "ci" => ci::run(&shell, args),
        "fix" => fix::run(&shell, args),
        "lua" => lua::run(&shell, args),
        "redis" => redis::run(args),
        "bench" => match args.split_first() {
            Some((first, args)) if first == "peers" || first == "embedded" => {
                peers::run(&shell, first, args)
            }
            _ => bench::run(&shell, args),
        },
        "prove" | "release" | "web" => in_group(&shell, command, args),
        "help" | "-h" | "--help" => {
            println!("{HELP}");
            Ok(())
        }
        unknown => bail!("there is no command {unknown:?}\n\n{HELP}"),
    }
}

fn in_group(shell: &Shell, group: &str, args: &[String]) -> Result<()> {
    let (command, args) = args.split_first().map_or(("", args), |(it, args)| (it.as_str(), args));
    match (group, command) {
        ("prove", "sim") => prove::sim(shell, args),
        ("prove", "chaos") => prove::chaos(shell, args),
        ("prove", "schedules") => prove::schedules(shell, args),
        ("prove", "soak") => prove::soak(shell, args),
        ("prove", "zoo") => zoo::run(shell, args),
        ("prove", "mutants") => mutants::run(shell, args),
        ("prove", "lua-mutants") => lua_mutants::run(shell, args),
        ("prove", "servers") => servers::run(shell, args),
        ("prove", "clients") => clients::run(shell, args),
        ("prove", "consumers") => consumers::run(shell),
        ("prove", "instructions") => instructions::run(shell, args),
        ("prove", "cost") => cost::run(shell, args),
        ("prove", "released") => released::run(shell, args),
        ("prove", "deployment") => deployment::run(shell, args),
        ("prove", "opentelemetry") => prove::opentelemetry(shell, args),
        ("prove", "outbox") => prove::outbox(shell, args),
        ("prove", "monitoring") => monitoring::run(shell, args),
        ("release", "audit") => deny::audit(shell, args),
        ("release", "package") => package::run(shell, args),
        ("release", "alone") => alone::run(shell, args),
        ("release", "api") => api::run(shell, args),
        ("release", "archive") => archive::run(shell, args),
        ("release", "notes") => notes::run(shell, args),
        ("release", "site") => site::run(shell, args),
        ("release", "publish") => publish::run(shell, args),
        ("web", "browser") => browser::run(shell, args),
        ("web", "screenshots") => browser::screenshots(shell, args),
        _ => bail!("there is no command \"{group} {command}\"\n\n{HELP}"),
    }
}

const HELP: &str = "\
Delayline's development commands

For every change:

cargo xtask test [--server NAME] [--all | CARGO ARGS] [-- TEST ARGS]
    Run the tests, against a private redis-server. Installs one with apt-get where it may.
    With --all, run what takes longer, too: examples and benchmarks as programs, partitions, chaos,
    the simulation, instructions, and (without --server) the conformance suite on the newest Redis and
    Valkey.
    With cargo arguments (-p delayline-core, say) only what they select.

cargo xtask ci [lint]
    All that must pass before a change is merged: format, text and dependency rules, an audit of the
    dependencies, lints and documentation; then tests, and a build of the packages with the oldest
    compiler, but not with `lint`.

cargo xtask fix
    Format the code, apply the lints' own corrections, and write what is made from the sources: the
    list of scripts with their digests, the tables of docs/wire.md, and golden data of a new layout.

cargo xtask lua [NAME] [--diff REV]
    Print a script as servers receive it, such as `claim`; without a name, the names of all scripts.
    A server's error says `user_script:LINE`: that is the line here. --diff shows the changes since REV.

cargo xtask redis [--tls] [--password PASSWORD]
    Run a private redis-server until Enter or Ctrl-C.

Proofs that take longer than the tests:

cargo xtask prove sim [--seeds N] [--first SEED]
    Simulate whole systems of workers and producers, with every kind of fault, in simulated time.

cargo xtask prove chaos [--server NAME] [--topology KIND] [--minutes M] [--seed S]
    Torment real servers under load: killed, frozen, cut off, full, deaf, their clocks set, the ends
    of their files lost. Or, with KIND cluster or sentinel, replaced. Says what was injected, and
    which promises held.

cargo xtask prove schedules [--processes N] [--seconds S] [--fault-ms MS] [--seed S]
    Kill and freeze schedulers in real processes while changed schedules are deployed. Counts the
    ticks that reach the target queue: none may be missing, double or early.

cargo xtask prove soak [--minutes M] [--seed S]
    Run idle and busy programs on real servers for a long time: mixed delays, many queues, idle
    spells. Says how late messages came, what was used, and whether that is as promised.

cargo xtask prove zoo [NAME ...]
    Apply the seeded defects in zoo/ one by one to the last commit, and show which test catches each.

cargo xtask prove mutants -p CRATE [--seed SEED] [--sample N] [--wide]
    Change a crate in N small ways that the seed decides, and show which changes its quick tests do
    not see; with --wide, run all tests about the crate on those. Goes on where it was stopped.

cargo xtask prove lua-mutants [--sample N] [--seed S] [--script FILE] [--again OUTPUT] [--trials A,B]
        [--list]
    Change the assembled scripts in small ways, and show which test catches each change. --script
    names one, such as claim.lua; --again runs those that survived in an earlier run, by its output,
    and those in zoo/mutants.txt; --trials names parts of the names of the trials to run; --list only
    prints all changes.

cargo xtask prove servers [NAME ...]
    Get other servers as packages of Debian and of the Python index, and unpack them below
    target/servers. Nothing is installed and no service is started.

cargo xtask prove servers test [NAME ...]
    Run the conformance suite on them; on all of them it writes docs/servers.md.

cargo xtask prove released [REVISION ...]
    Build the command of the last release, or of the tags and commits that are named, and run it and
    this version on one queue at the same time.

cargo xtask prove clients [--rust]
    Run the tests of clients/python against `delayline serve`, in memory and on a private Redis: the
    scenarios of clients/scenarios.json, kills and cut connections. Run those of clients/sqs against
    its SQS endpoint, and the programs of crates/delayline/docs/guides/aws-sdk.md as they are printed
    there. Needs Python and Node, and gets the SDKs from PyPI and npm. With --rust, also run the
    program with the SDK for Rust, which has 200 crates.

cargo xtask prove consumers
    Run the consumers in Python and Node of crates/delayline/docs/guides/relay.md as they are printed there. Needs both,
    and gets their Redis clients from PyPI and npm.

cargo xtask prove monitoring
    Let promtool read the alerts, the expressions of the Grafana dashboard and the configuration in
    examples/compose, and try the alerts on invented series. Installs Debian's prometheus where it
    may.

cargo xtask prove deployment
    Validate the manifests in packaging/kubernetes against the published schemas of Kubernetes and
    KEDA, let systemd read the units, and read workflows and Compose files as YAML. Needs kubectl
    (but no cluster), systemd-analyze and Python, and gets the schemas from PyPI.

cargo xtask prove opentelemetry
    Let the program in examples/opentelemetry export its spans and metrics over OTLP to a collector
    in its test, which checks their names and links.

cargo xtask prove outbox
    Kill processes between the commit of a transaction and the send, and between the send and the
    deletion of its row. Every committed order must be handled once. Starts a private PostgreSQL;
    installs Debian's where it may.

cargo xtask prove instructions
    Count the server's instructions for each operation, and fail if one needs 2 % more than on the page
    in docs/benchmarks/instructions. Installs Debian's valgrind where it may. `bench instructions
    --save docs/benchmarks/instructions` accepts the new figures.

cargo xtask prove cost [REVISION ...]
    Count files and lines by kind, and the files, places and lines that name features which stand for
    a change of their kind.

Measurements:

cargo xtask bench [SUBJECT ...] [--messages N] [--save DIRECTORY]
    Measure whole systems on private servers: cost, memory, throughput, lateness, bursts, backlog,
    idling; see --help. Saves tables, plots and figures. `sqs` compares with moto's server, from
    PyPI, if it can be had.

cargo xtask bench peers [QUEUE ...] [--messages N] [--rounds N] [--minutes M] [--save DIRECTORY]
    Compare Delayline with other queues on Redis, and with one on PostgreSQL, for ten minutes at
    most after the build; see --help. A failed round is reported, and the others count. Two queues
    need node and npm, and one of them Debian's postgresql.

cargo xtask bench embedded [SUBJECT ...] [--messages N] [--seconds N] [--on DIRECTORY]
    Measure queues in a directory beside SQLite with the same group commit, and beside Redis.

The dashboard:

cargo xtask web browser [CARGO TEST ARGS]
    Use the dashboard as a person does, in a Chromium without a window: journeys, hostile content,
    small screens, accessibility. Installs Debian's chromium and chromium-driver where it may; gets
    axe-core from npm.

cargo xtask web screenshots
    Write docs/screenshots: the pictures of the dashboard in the documents.

Before a release:

cargo xtask release audit
    Check licences, duplicates, sources and advisories of all dependencies. Fails if the database of
    advisories cannot be had; `ci` only says so.

cargo xtask release package
    Check that every published crate can be published: compile each from its package.

cargo xtask release alone
    Compile every published crate by itself, with its default features. A feature that a crate does
    not ask for is not noticed when the whole workspace is built.

cargo xtask release api [--check]
    Write the public API of the core and the facade to docs/api, or compare it with what is there.
    Needs cargo-public-api.

cargo xtask release archive [--target TRIPLE]
    Build the command, and pack it with its man pages, completions and systemd units into
    target/archive. This machine must be able to run the target's programs.

cargo xtask release site
    Build the pages as a site with search below target/site/html. A link or an anchor that leads
    nowhere, and a guide that is missing in docs/mkdocs.yml, are errors. Needs Python, and gets mkdocs
    from PyPI.

cargo xtask release notes TAG
    Check that version, changelog and `repository` are ready for the tag, and print its notes.

cargo xtask release publish [--dry-run]
    Publish each crate whose version the registry lacks, after those it depends on.";
