//! Runs every target on its seeds, with any toolchain and without libFuzzer.
//!
//! What a fuzzer finds becomes a seed, so this is also the regression test.

use std::fs;
use std::path::Path;

use delayline_fuzz::{TARGETS, Target};

#[test]
fn seeds_pass() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    for (name, target) in TARGETS {
        let count = replay(&seeds.join(name), target);
        assert!(count > 0, "{name} has no seeds");
    }
    let folders = fs::read_dir(&seeds).unwrap().count();
    assert_eq!(folders, TARGETS.len(), "a folder of seeds belongs to no target");
}

/// Tests capture the output, so the last line names the file that did not pass.
fn replay(folder: &Path, target: Target) -> usize {
    let files =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    for path in &paths {
        println!("{}", path.display());
        target(&fs::read(path).unwrap());
    }
    paths.len()
}

/// The programs need libFuzzer, so only fuzzing builds them.
#[test]
fn every_target_has_a_program() {
    let libfuzzer = Path::new(env!("CARGO_MANIFEST_DIR")).join("libfuzzer");
    let manifest = fs::read_to_string(libfuzzer.join("Cargo.toml")).unwrap();
    let folder = libfuzzer.join("fuzz_targets");
    for (name, _) in TARGETS {
        let program = fs::read_to_string(folder.join(name).with_extension("rs")).unwrap();
        assert!(program.ends_with(&format!("delayline_fuzz::{name}(data));\n")), "{program}");
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
    }
    assert_eq!(fs::read_dir(folder).unwrap().count(), TARGETS.len());
}

/// The targets must also hold for nothing, and for noise.
#[test]
fn noise_passes() {
    for (_, target) in TARGETS {
        target(&[]);
        for byte in 0..=u8::MAX {
            target(&[byte; 64]);
        }
    }
}
