//! Prints a script as servers receive it, without an argument the names of all scripts.

use std::process::ExitCode;

use delayline_redis_protocol::all_scripts;

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        for script in all_scripts() {
            println!("{}", script.name.trim_end_matches(".lua"));
        }
        return ExitCode::SUCCESS;
    };
    match all_scripts().iter().find(|script| script.name.trim_end_matches(".lua") == name) {
        Some(script) => print!("{}", script.source),
        None => {
            eprintln!("there is no script {name:?}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
