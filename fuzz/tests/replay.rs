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
